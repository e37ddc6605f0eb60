"""Figure 1: a correlated 2-D Gaussian with noisy gradients, error of the covariance against autocorrelation time."""

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

import lsmcmc as ls
from lsmcmc.experiments.parts import Parts
from lsmcmc.experiments.result import Claim, Result, Verdict, errors_off, interval_of_mean, judge_smaller
from lsmcmc.progress import Progress

NAME = "figure1"
TITLE = "Figure 1: a 2-D Gaussian with noisy gradients"
SEEDS, QUICK_SEEDS = 100, 20
QUICK = f"{QUICK_SEEDS} seeds instead of {SEEDS}; the length of each chain is the paper's"

COVARIANCE = np.array([[1.0, 0.9], [0.9, 1.0]])
PRECISION = np.linalg.inv(COVARIANCE)
SIGMA = 0.1
STEP = 0.19
LARGER = (1 + 4 * SIGMA) ** 0.25
FACTORS = tuple(0.8**k for k in range(5))
NUM_DRAWS, BURN_IN, FIRST = 200_000, 1_000, 600


def _log_density(x: Any) -> Any:
    return -0.5 * x @ jnp.asarray(PRECISION, x.dtype) @ x


def _target() -> ls.Target:
    """∇Û = Σ⁻¹x + N(0, I), the setting of Chen et al. 2014 that the paper refers to."""
    return ls.Target(_log_density, noise_scale=1.0)  # the same function every time: one compilation per sampler


SAMPLERS = {
    "SGLD": lambda h: ls.sgld(h),
    "pSGLD": lambda h: ls.psgld(h),
    "LS-SGLD": lambda h: ls.ls_sgld(h, sigma=SIGMA),
    "LS-pSGLD": lambda h: ls.ls_psgld(h, sigma=SIGMA),
}
EXACT = {"SGLD": 0.0, "LS-SGLD": SIGMA}  # the σ of those whose chain is linear


@dataclass(frozen=True)
class Point:
    """One sampler at one step size, over all seeds."""

    sampler: str
    k: int
    larger: bool
    step_size: float
    mse: NDArray[np.float64]
    tau: NDArray[np.float64]
    first: NDArray[np.float32]

    def row(self) -> dict[str, Any]:
        """For the table: means with 95 % intervals, and the exact values where there are any."""
        row: dict[str, Any] = {
            "sampler": self.sampler,
            "steps": "larger" if self.larger else "same",
            "step_size": self.step_size,
        }
        for what, values, exactly in zip(
            ("mse", "tau"), (self.mse, self.tau), self.exact() or (None, None), strict=True
        ):
            mean, low, high = interval_of_mean(values)
            row |= {what: mean, f"{what}_low": low, f"{what}_high": high, f"{what}_exact": exactly}
        return row

    def exact(self) -> tuple[float, float] | None:
        """Expected covariance error and τ, where the chain is linear."""
        return exact(self.sampler, self.step_size) if self.sampler in EXACT else None


def run(*, quick: bool, seed: int, parts: Parts = Parts()) -> Result:
    """All samplers at all step sizes."""
    del parts  # a minute's work
    seeds = QUICK_SEEDS if quick else SEEDS
    points = _points(seeds, seed)
    return Result(
        NAME,
        TITLE,
        {
            "quick": quick,
            "seed": seed,
            "seeds": seeds,
            "num_draws": NUM_DRAWS,
            "burn_in": BURN_IN,
            "sigma": SIGMA,
            "step": STEP,
            "larger": LARGER,
            "factors": FACTORS,
        },
        _claims(points),
        {"points": [point.row() for point in points]},
        {"samples": _plot_samples(points), "errors": _plot_errors(points)},
        [
            "Read as the setting of Chen et al. 2014: U(x) = ½xᵀΣ⁻¹x, and each gradient has N(0, I) added to it. "
            "The printed density has the wrong sign, and the N(0, I) called a prior contradicts Σ.",
            "The error is the mean over the four entries of the squared error of Σₜxₜxₜᵀ/n about the known mean 0; "
            "τ is the mean of the two coordinates' autocorrelation times, about the known mean as well.",
            "The curves of SGLD and LS-SGLD are exact: their chains are linear, so covariance, autocorrelation time "
            "and the expected error at this length follow from a Lyapunov equation. pSGLD has no such curve.",
        ],
        f"95 % intervals by Student's t over {seeds} independent chains. Where two samplers are compared the number is "
        "the ratio of their geometric means, paired by seed (below 1: smaller with smoothing). No correction for the "
        "number of claims: of forty comparisons without a difference, one would be called reproduced by chance.",
    )


def _points(seeds: int, seed: int) -> list[Point]:
    """Every setting, a few at a time: the loop of one run keeps one core busy."""
    settings = list(_settings())
    points = []
    with Progress(len(settings), label=NAME) as bar, ThreadPoolExecutor(min(4, os.cpu_count() or 1)) as pool:
        running = [pool.submit(_measure, *setting, seeds, seed) for setting in settings]
        try:
            for future in running:
                points.append(future.result())
                bar.advance(1)
        finally:
            pool.shutdown(cancel_futures=True)  # after an interrupt or an error the others do not begin
    return points


def exact(sampler: str, step_size: float) -> tuple[float, float]:
    """Expected covariance error and τ at this length, for a linear chain."""
    chain = ls.theory.linear_chain(PRECISION, step_size, sigma=EXACT[sampler], gradient_noise=1.0)
    return chain.covariance_mse(NUM_DRAWS, COVARIANCE), float(chain.autocorrelation_time().mean())


def _settings() -> Iterator[tuple[str, int, bool]]:
    for sampler in SAMPLERS:
        for larger in (False, True) if sampler.startswith("LS") else (False,):
            for k in range(len(FACTORS)):
                yield sampler, k, larger


def _measure(sampler: str, k: int, larger: bool, seeds: int, seed: int) -> Point:
    step_size = STEP * FACTORS[k] * (LARGER if larger else 1.0)
    run = ls.sample(
        SAMPLERS[sampler](step_size),
        _target(),
        jnp.zeros(2),
        num_draws=NUM_DRAWS,
        burn_in=BURN_IN,
        chains=seeds,
        seed=seed,
        progress=False,
    )
    tau = ls.diagnostics.autocorrelation_time(run.draws, mean=0.0, per_chain=True).mean(1)
    mse = ls.diagnostics.covariance_mse(run.draws, COVARIANCE)
    return Point(sampler, k, larger, step_size, mse, tau, run.draws[0, :FIRST].copy())


def _claims(points: list[Point]) -> list[Claim]:
    def find(sampler: str, k: int, larger: bool = False) -> Point:
        return next(p for p in points if (p.sampler, p.k, p.larger) == (sampler, k, larger))

    errors = [
        _smaller_error(find(f"LS-{base}", k, larger), find(base, k))
        for base in ("SGLD", "pSGLD")
        for larger in (False, True)
        for k in range(len(FACTORS))
    ]
    times = [
        _smaller_time(find("LS-pSGLD", k, larger), find("pSGLD", k))
        for larger in (False, True)
        for k in range(len(FACTORS))
    ]
    return [_on_the_curve(points, "mse"), _on_the_curve(points, "tau"), *errors, *times]


def _smaller_error(ours: Point, other: Point) -> Claim:
    panel = "d" if ours.larger else "b"
    claim = f"{ours.sampler} has a smaller covariance error than {other.sampler}, {_steps(ours, other)}"
    ours_exact, other_exact = ours.exact(), other.exact()
    note = (
        f"Exact ratio of the expected errors: {ours_exact[0] / other_exact[0]:.3g}."
        if ours_exact and other_exact
        else ""
    )
    return judge_smaller(claim, f"smaller (panel {panel})", ours.mse, other.mse, note)


def _smaller_time(ours: Point, other: Point) -> Claim:
    panel = "d" if ours.larger else "b"
    claim = f"smoothing reduces the autocorrelation time of {other.sampler}, {_steps(ours, other)}"
    return judge_smaller(claim, f"smaller (panel {panel})", ours.tau, other.tau)


def _steps(ours: Point, other: Point) -> str:
    return f"step {ours.step_size:.3f} against {other.step_size:.3f}" if ours.larger else f"step {other.step_size:.3f}"


def _on_the_curve(points: list[Point], what: str) -> Claim:
    """Measured ÷ exact, on average over the points of the linear chains; judged by the point furthest from its value.

    Reproduced unless a point is further than chance puts the furthest of them once in a hundred.
    """
    linear = [p for p in points if p.sampler in EXACT]
    values = np.array([getattr(p, what) for p in linear])  # (point, seed)
    exactly = np.array([exact(p.sampler, p.step_size)[("mse", "tau").index(what)] for p in linear])
    furthest, allowed = errors_off(values, exactly)
    mean, low, high = interval_of_mean((values / exactly[:, np.newaxis]).mean(0))
    return Claim(
        f"the {'covariance error' if what == 'mse' else 'autocorrelation time'} of SGLD and LS-SGLD is that of the "
        "exact curve (a check of this library, not of the paper): measured ÷ exact",
        "no curve in the paper",
        mean,
        (low, high),
        Verdict.REPRODUCED if furthest < allowed else Verdict.NOT_REPRODUCED,
        f"The furthest of {len(linear)} points is {furthest:.1f} standard errors from its exact value; "
        f"more than {allowed:.1f} would happen by chance once in a hundred.",
    )


def _plot_samples(points: list[Point]) -> Any:
    """Panels (a) and (c): the first samples over the contours."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 5.6), layout="constrained")
    axes = figure.subplots(2, 4, sharex=True, sharey=True)
    grid = np.linspace(-3, 3, 81)
    x, y = np.meshgrid(grid, grid)
    flat = np.stack([x, y], axis=-1)
    density = np.exp(-0.5 * np.einsum("...i,ij,...j->...", flat, PRECISION, flat))
    for row, larger in enumerate((False, True)):
        for panel, sampler in zip(axes[row], SAMPLERS, strict=True):
            own = larger and sampler.startswith("LS")
            point = next(p for p in points if (p.sampler, p.k, p.larger) == (sampler, 0, own))
            panel.contour(x, y, density, levels=4, colors="grey", linewidths=0.7)
            panel.plot(*point.first.T, ".", markersize=2)
            panel.set_title(f"({'ac'[row]}) {sampler}, h = {point.step_size:.3f}", fontsize=9)
            panel.set_xlim(-3, 3)
            panel.set_ylim(-3, 3)
    return figure


def _plot_errors(points: list[Point]) -> Any:
    """Panels (b) and (d): error against autocorrelation time, with the exact curves."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 4.4), layout="constrained")
    for panel, larger in zip(figure.subplots(1, 2, sharey=True), (False, True), strict=True):
        for i, sampler in enumerate(SAMPLERS):
            own = larger and sampler.startswith("LS")
            rows = [p.row() for p in points if (p.sampler, p.larger) == (sampler, own)]
            x, y = ([row[what] for row in rows] for what in ("tau", "mse"))
            spread = [
                [[row[what] - row[f"{what}_low"] for row in rows], [row[f"{what}_high"] - row[what] for row in rows]]
                for what in ("tau", "mse")
            ]
            panel.errorbar(x, y, spread[1], spread[0], "o", color=f"C{i}", markersize=4, label=sampler)
            if sampler in EXACT:
                top = STEP * (LARGER if own else 1.0)
                curve = np.array([exact(sampler, h) for h in np.geomspace(top * FACTORS[-1], top, 40)])
                panel.plot(curve[:, 1], curve[:, 0], color=f"C{i}", linewidth=1, label=f"{sampler}, exact")
        panel.set_yscale("log")
        panel.set_xlabel("autocorrelation time τ")
        panel.set_title(f"({'bd'[larger]}) {'LS with larger steps' if larger else 'the same steps'}")
        panel.legend(fontsize=8, frameon=False)
    figure.axes[0].set_ylabel("mean squared error of the covariance")
    return figure
