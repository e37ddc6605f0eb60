"""The command line: `lsmcmc reproduce`."""

import signal
import sys
import time
from pathlib import Path
from typing import Annotated, Any

import typer

app = typer.Typer(
    help="Stochastic gradient MCMC with Laplacian smoothing.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # errors as one line, for logs too
)
_INTERRUPTED = 128 + signal.SIGINT


def main() -> None:
    """The command `lsmcmc`."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # a terminal without Greek letters
    _keep_compiled()
    app()


def _keep_compiled() -> None:
    """JAX's persistent compile cache, unless one is set: the next command with the same shapes does not compile."""
    import jax

    from lsmcmc.data import _fetch

    if jax.config.jax_compilation_cache_dir is None:  # type: ignore[attr-defined]
        jax.config.update("jax_compilation_cache_dir", str(_fetch.cache_folder() / "compiled"))


def _print_version(wanted: bool) -> bool:
    if wanted:
        import lsmcmc

        typer.echo(f"lsmcmc {lsmcmc.__version__}")
        raise typer.Exit
    return wanted


@app.callback()
def lsmcmc_command(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Stochastic gradient MCMC with Laplacian smoothing."""


@app.command()
def reproduce(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="NAME ...|all", help="What to reproduce; all of it if nothing is named.", show_default=False
        ),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Shortened experiments, minutes. The default.")] = False,
    full: Annotated[bool, typer.Option("--full", help="The paper's sizes, hours.")] = False,
    out: Annotated[Path, typer.Option(metavar="DIR", file_okay=False, help="Where results go.")] = Path("reproduction"),
    seed: Annotated[int, typer.Option(min=0, metavar="N", help="Seed of every random number.")] = 0,
    show: Annotated[bool, typer.Option("--list", help="Show the names and what --quick shortens, and exit.")] = False,
) -> None:
    """Reproduce the paper's tables and figures, with a verdict for every claim.

    Each writes DIR/NAME: result.json, tables as CSV, figures as PNG and SVG. DIR/report.html sets paper and measurement
    side by side. Results that DIR already holds at the same settings are kept, so a stopped command continues.
    """
    if quick and full:
        raise typer.BadParameter("--quick and --full exclude each other.")
    if show:
        _show_names()
        return
    chosen = _chosen(names or ["all"])
    _make(out)
    from lsmcmc.data import ChecksumError

    try:
        for name in chosen:
            _reproduce_one(name, out, quick=not full, seed=seed)
    except (OSError, ChecksumError) as error:  # data that cannot be had, a full disk: the message says it all
        typer.echo(f"Error: {error}", err=True)
        raise typer.Exit(1) from None
    except KeyboardInterrupt:
        typer.echo("Stopped. The same command continues with what is not finished.", err=True)
        raise typer.Exit(_INTERRUPTED) from None
    _print_claims(chosen, out)


def _chosen(names: list[str]) -> list[str]:
    from lsmcmc.experiments import EXPERIMENTS

    for name in names:
        if name not in EXPERIMENTS and name != "all":
            raise typer.BadParameter(f"{name!r} is not an experiment. The names are all, {', '.join(EXPERIMENTS)}.")
    return list(EXPERIMENTS) if "all" in names else list(dict.fromkeys(names))


def _make(out: Path) -> None:
    """The folder, before hours are spent on what goes into it."""
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise typer.BadParameter(f"{str(out)!r} cannot be made: {error.strerror}.", param_hint="--out") from None


def _show_names() -> None:
    from lsmcmc.experiments import EXPERIMENTS

    for name, experiment in EXPERIMENTS.items():
        typer.echo(f"{name}\n    {experiment.TITLE}\n    --quick: {experiment.QUICK}")


def _reproduce_one(name: str, out: Path, *, quick: bool, seed: int) -> None:
    """One experiment, unless `out` has it, and the report of all that `out` has."""
    from lsmcmc.experiments import EXPERIMENTS, Parts, report, result

    if result.is_finished(out, name, quick=quick, seed=seed):
        typer.echo(f"{name}: finished before, kept (delete {out / name} to run it again)", err=True)
    else:
        began = time.monotonic()
        parts = Parts.of(out, name, quick=quick, seed=seed)
        found = EXPERIMENTS[name].run(quick=quick, seed=seed, parts=parts)
        result.write(found, out, time.monotonic() - began)
        parts.forget()
        typer.echo(f"{name}: {time.monotonic() - began:.1f} s", err=True)
    report.write(out)


def _print_claims(names: list[str], out: Path) -> None:
    from lsmcmc.experiments import report, result

    for name in names:
        record: Any = result.read(out, name)
        for claim in record["claims"]:
            typer.echo(f"{name}: {report.sentence(claim)}")
    typer.echo(f"Report: {out / report.NAME}")
