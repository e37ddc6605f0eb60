"""The command line, in this process and as a process of its own."""

import json
import subprocess
import sys

import pytest
import typer
from typer.testing import CliRunner

import lsmcmc as ls
from lsmcmc import cli, experiments
from lsmcmc.experiments import Claim, Result, Verdict


def run(*arguments):
    return CliRunner().invoke(cli.app, [str(argument) for argument in arguments])


def as_process(*arguments):
    command = [sys.executable, "-m", "lsmcmc", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, encoding="utf-8")


class Fake:
    """An experiment that counts its runs."""

    TITLE, QUICK = "A fake", "nothing"

    def __init__(self, name):
        self.NAME, self.runs, self.error = name, 0, None

    def run(self, *, quick, seed, parts):
        self.runs += 1
        if self.error:
            raise self.error
        claim = Claim(f"{self.NAME} holds", "1", 1.0, (0.9, 1.1), Verdict.REPRODUCED)
        return Result(self.NAME, self.TITLE, {"quick": quick, "seed": seed}, [claim])


@pytest.fixture
def fakes(monkeypatch):
    found = {name: Fake(name) for name in ("one", "two")}
    monkeypatch.setattr(experiments, "EXPERIMENTS", found)
    return found


def test_the_command_prints_claims_with_verdicts_and_where_the_report_is(fakes, tmp_path):
    done = run("reproduce", "all", "--out", tmp_path)
    assert done.exit_code == 0
    assert done.stdout.splitlines() == [
        "one: one holds: 1 [0.9, 1.1], paper: 1: reproduced",
        "two: two holds: 1 [0.9, 1.1], paper: 1: reproduced",
        f"Report: {tmp_path / 'report.html'}",
    ]
    assert [line.split(":")[0] for line in done.stderr.splitlines()] == ["one", "two"]
    assert (tmp_path / "report.html").is_file()


@pytest.mark.parametrize(("arguments", "quick"), [([], True), (["--quick"], True), (["--full"], False)])
def test_quick_is_the_default_and_settings_are_recorded(fakes, tmp_path, arguments, quick):
    assert run("reproduce", "one", "--out", tmp_path, "--seed", 3, *arguments).exit_code == 0
    settings = json.loads((tmp_path / "one/result.json").read_text(encoding="utf-8"))["settings"]
    assert (settings["quick"], settings["seed"]) == (quick, 3)
    assert fakes["two"].runs == 0


def test_an_interrupted_command_continues_where_it_stopped(fakes, tmp_path):
    fakes["two"].error = KeyboardInterrupt()
    stopped = run("reproduce", "all", "--out", tmp_path)
    assert stopped.exit_code == 130
    assert "The same command continues" in stopped.stderr
    assert (tmp_path / "report.html").is_file()
    fakes["two"].error = None
    assert "one: finished before, kept" in run("reproduce", "all", "--out", tmp_path).stderr
    assert (fakes["one"].runs, fakes["two"].runs) == (1, 2)
    run("reproduce", "one", "--out", tmp_path, "--full")
    assert fakes["one"].runs == 2


def test_a_name_given_twice_runs_once(fakes, tmp_path):
    assert run("reproduce", "two", "one", "two", "--out", tmp_path, "--full").exit_code == 0
    assert (fakes["one"].runs, fakes["two"].runs) == (1, 1)


def test_a_folder_that_cannot_be_made_is_an_error_before_any_work(fakes, tmp_path):
    (tmp_path / "file").write_text("")
    done = run("reproduce", "one", "--out", tmp_path / "file" / "below")
    assert done.exit_code == 2
    assert "cannot be made" in done.stderr
    assert fakes["one"].runs == 0


def test_quick_and_full_exclude_each_other():
    done = run("reproduce", "--quick", "--full")
    assert done.exit_code == 2
    assert "--quick and --full exclude each other" in done.stderr


def test_the_list_says_what_quick_shortens():
    done = run("reproduce", "--list")
    assert done.exit_code == 0
    for name, experiment in experiments.EXPERIMENTS.items():
        assert f"{name}\n    {experiment.TITLE}\n    --quick: {experiment.QUICK}\n" in done.stdout


def test_every_command_and_every_option_has_help():
    group = typer.main.get_command(cli.app)
    assert group.help
    for command in [group, *group.commands.values()]:
        assert command.help
        assert all(parameter.help for parameter in command.params if hasattr(parameter, "help")), command.name


def test_as_a_process_an_unknown_name_is_exit_code_2_and_names_the_known_ones():
    done = as_process("reproduce", "table9")
    assert done.returncode == 2
    assert "'table9' is not an experiment" in done.stderr
    assert all(name in done.stderr for name in experiments.EXPERIMENTS)
    assert done.stdout == ""


def test_as_a_process_the_version_is_printed():
    import lsmcmc

    done = as_process("--version")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"lsmcmc {lsmcmc.__version__}\n", "")


def test_as_a_process_table_1_is_reproduced(tmp_path):
    done = as_process("reproduce", "table1", "--out", tmp_path)
    assert done.returncode == 0
    assert done.stdout.count("paper inconsistent") == 5
    assert (tmp_path / "table1/gamma2.csv").is_file()
    assert "\r" not in done.stderr  # no progress bar where nobody watches


@pytest.mark.parametrize("error", [ConnectionError("no network"), ls.data.ChecksumError("not the published file")])
def test_data_that_cannot_be_had_are_an_error_in_one_line(fakes, tmp_path, error):
    fakes["one"].error = error
    done = run("reproduce", "one", "--out", tmp_path)
    assert done.exit_code == 1
    assert done.stderr == f"Error: {error}\n"


@pytest.mark.parametrize("chosen", [None, "/elsewhere"])
def test_the_command_keeps_compiled_programs_in_the_cache_unless_a_folder_is_set(chosen, tmp_path, monkeypatch):
    import jax

    monkeypatch.setenv("LSMCMC_CACHE", str(tmp_path))
    before = jax.config.jax_compilation_cache_dir
    try:
        jax.config.update("jax_compilation_cache_dir", chosen)
        cli._keep_compiled()
        assert jax.config.jax_compilation_cache_dir == (chosen or str(tmp_path / "compiled"))
    finally:
        jax.config.update("jax_compilation_cache_dir", before)
