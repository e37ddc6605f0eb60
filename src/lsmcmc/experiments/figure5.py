"""Figure 5: the convolutional network on MNIST, at the posterior's temperature and at the released code's."""

import os
import threading
from collections.abc import Callable
from concurrent.futures import CancelledError, ThreadPoolExecutor, as_completed
from dataclasses import asdict
from typing import Any

import jax
import numpy as np

import lsmcmc as ls
from lsmcmc.experiments.figure5_claims import claims, intervals
from lsmcmc.experiments.parts import Arrays, Parts
from lsmcmc.experiments.result import Result, interval_of_mean
from lsmcmc.experiments.scored import PARTS, PREDICTORS, SCORES, Found, Problem, Size, chain, last_common, over_seeds
from lsmcmc.progress import Progress

NAME = "figure5"
TITLE = "Figure 5: a convolutional network on MNIST"

BATCH_SIZE = 100
SIGMA = 0.5
LARGER = (1 + 4 * SIGMA) ** 0.25
ETAS = {"SGLD": 0.02, "pSGLD": 2e-4, "LS-SGLD": 0.02 * LARGER, "LS-pSGLD": 2e-4 * LARGER}
TEMPERATURES: dict[str, Callable[[float, int], float]] = {  # of U, from η and N
    "posterior": lambda eta, n: 1.0,
    "released code": lambda eta, n: n * eta**2,
}
FULL = Size(seeds=3, long=50, short=10, steps=600, burn_in=3_000, images=10_000)
SHORT = Size(seeds=3, long=4, short=4, steps=80, burn_in=160, images=2_000)
QUICK = (
    f"{SHORT.long * SHORT.steps} steps of every chain instead of {FULL.long} and {FULL.short} epochs of 600, "
    f"{SHORT.burn_in} steps of burn-in instead of {FULL.burn_in:,}, scores on {SHORT.images:,} images of each part "
    f"instead of {FULL.images:,}; {SHORT.seeds} seeds as in --full"
)


SETTINGS = [(sampler, temperature) for temperature in TEMPERATURES for sampler in ETAS]


def scale(sampler: str, temperature: str, num_examples: int) -> tuple[float, float]:
    """Step size and temperature: h = η/N, and T = N/β, which is Nη² where the noise has standard deviation η√(2η).

    For pSGLD too: V is of ∇Û/N, so that its drift h G ∇U is η G ∇f.
    """
    eta = ETAS[sampler]
    return eta / num_examples, TEMPERATURES[temperature](eta, num_examples)


def make(sampler: str, temperature: str, num_examples: int, axes: Any) -> ls.Sampler:
    """A sampler at one of the two temperatures."""
    h, T = scale(sampler, temperature, num_examples)
    if sampler == "SGLD":
        return ls.sgld(h, temperature=T)
    if sampler == "pSGLD":
        return ls.psgld(h, temperature=T)
    smoothed = ls.ls_sgld if sampler == "LS-SGLD" else ls.ls_psgld
    return smoothed(h, sigma=SIGMA, axes=axes, temperature=T)


def run(*, quick: bool, seed: int, parts: Parts = Parts(), size: Size | None = None) -> Result:
    """All samplers at both temperatures; at another `size` than these two, `quick` is only what the result says."""
    size = size or (SHORT if quick else FULL)
    problem = Problem.of(ls.models.mnist_cnn(), ls.data.mnist(), BATCH_SIZE, size.images)
    n = problem.posterior.num_examples
    found = _chains(problem, size, seed, parts)
    return Result(
        NAME,
        TITLE,
        {
            "quick": quick,
            "seed": seed,
            **asdict(size),
            "batch_size": BATCH_SIZE,
            "sigma": SIGMA,
            **{f"eta of {sampler}": eta for sampler, eta in ETAS.items()},
            **{
                f"T of {sampler}, {temperature}": scale(sampler, temperature, n)[1] for sampler, temperature in SETTINGS
            },
        },
        claims(found, size),
        {"means": _means(found, size), "curves": _curves(found, size)},
        {f"curves-{temperature.split()[0]}": _plot(found, size, temperature, n) for temperature in TEMPERATURES},
        [*_remarks(size), *_diverged(found)],
        intervals(size),
    )


def _remarks(size: Size) -> list[str]:
    return [
        "U is the whole potential and f = U/N the paper's mean loss: h = η/N, T = N/β. β is never given. At the "
        "posterior's temperature β = N, T = 1. The released code's noise has standard deviation η√(2η), which is "
        "T = Nη²: 24 for SGLD and, its step being larger, 42 for LS-SGLD, hotter than the posterior; 0.0024 and 0.0042 "
        "for pSGLD and LS-pSGLD, close to no noise. So there the smoothed sampler is also √3 times as hot, and only "
        "T = 1 compares samplers of one law. The steps are the paper's; the released code has 0.01 and 0.013.",
        "pSGLD's V is of ∇Û/N, so its η means the same, η = hN; its drift is about η for each weight and step. The "
        "correction Γ is dropped, as published. LS-pSGLD is G^{1/2}A⁻¹G^{1/2} in drift and noise, V of the raw "
        "gradient; the released code smooths before V and its drift and noise do not match.",
        "Smoothing is of each tensor in the released code's order of axes (out, in, h, w). Batches are reshuffled "
        "passes. Pixels are normalised as in the released code; no ReLU between the dense layers.",
        f"Two predictions: the network at the running average of all positions after {size.burn_in:,} steps, which is "
        f"the paper's, and the average of the probabilities of draws {size.steps // 2} steps apart, the Bayesian one. "
        "Before the end of the burn-in both are the network at the current position. Scores are on "
        f"{size.images:,} images of each part, the same for all.",
        "No early stopping: what is judged are the last values, and the curves are whole. The paper stopped pSGLD and "
        "LS-pSGLD early and does not say how. As a substitute that does not choose by what it is scored on, each half "
        "of the test images is scored at the row that is best on the other half (claims that say stopped early).",
        "The chains of one seed share start, batches and noise. They are far from having forgotten their start: "
        f"{size.long * size.steps:,} steps of h = 3.3e-7 are a time of {size.long * size.steps * 0.02 / 6e4:.2g} in "
        "units of U. Nothing here measures a distance to the posterior; the gap that the paper speaks of is read off "
        "the negative log-likelihood, as the paper does.",
    ]


def _diverged(found: Found) -> list[str]:
    left = [
        f"{sampler} at the temperature of the {temperature}, seed {i}, at step {int(arrays['diverged']):,}"
        for (sampler, temperature, i), arrays in found.items()
        if arrays["diverged"] >= 0
    ]
    return [f"Left the finite numbers: {'; '.join(left)}. Their curves end there."] if left else []


def _chains(problem: Problem, size: Size, seed: int, parts: Parts) -> Found:
    """By setting and seed, the longest first, a few at a time: a step keeps little more than one core busy."""
    wanted = [(*setting, i) for i in range(size.seeds) for setting in SETTINGS]
    total = sum(_rows(size, i) * size.steps for *_, i in wanted)
    with Progress(total, label=NAME) as bar, ThreadPoolExecutor(min(4, os.cpu_count() or 1)) as pool:
        watch = _Watch(bar)
        running = {which: pool.submit(_one, problem, *which, size, seed, parts, watch) for which in wanted}
        try:
            for future in as_completed(running.values()):
                future.result()
        finally:
            watch.stopped = True  # after an interrupt or an error the others end soon
            pool.shutdown(cancel_futures=True)
    return {which: future.result() for which, future in running.items()}


def _one(
    problem: Problem, sampler: str, temperature: str, i: int, size: Size, seed: int, parts: Parts, watch: "_Watch"
) -> Arrays:
    """One chain; its start, batches and noise depend on the seed alone."""
    made = make(sampler, temperature, problem.posterior.num_examples, problem.model.axes)
    key = jax.random.fold_in(jax.random.key(seed, impl="threefry2x32"), i)
    left = _rows(size, i) * size.steps

    def advance(steps: int) -> None:
        nonlocal left
        left -= steps
        watch.advance(steps)

    name = f"{sampler}-{temperature}-{i}".replace(" ", "-")
    found = parts.get(name, lambda: chain(problem, made, size, _rows(size, i), key, advance))
    watch.advance(left)  # of a part that was there, or of a chain that diverged
    return found


def _rows(size: Size, i: int) -> int:
    return size.long if i == 0 else size.short


class _Watch:
    """Counts the steps of all threads, and stops them."""

    def __init__(self, bar: Progress):
        self.bar, self.stopped, self.lock = bar, False, threading.Lock()

    def advance(self, steps: int) -> None:
        if self.stopped:
            raise CancelledError
        with self.lock:
            self.bar.advance(steps)


def _means(found: Found, size: Size) -> list[dict[str, Any]]:
    """At the last score that all seeds of a sampler have, with 95 % intervals."""
    rows = []
    for sampler, temperature in SETTINGS:
        last = last_common((found[sampler, temperature, i] for i in range(size.seeds)), size.short)
        scores = over_seeds(found, sampler, temperature, last)
        for p, predictor in enumerate(PREDICTORS):
            for q, part in enumerate(PARTS):
                row: dict[str, Any] = {
                    "temperature": temperature,
                    "sampler": sampler,
                    "prediction": predictor,
                    "part": part,
                    "steps": (last + 1) * size.steps,
                }
                for k, name in enumerate(SCORES):
                    mean, low, high = interval_of_mean(scores[:, p, q, k])
                    row |= {name: mean, f"{name}_low": low, f"{name}_high": high}
                rows.append(row)
    return rows


def _curves(found: Found, size: Size) -> list[dict[str, Any]]:
    """Every score of every chain; `diverged` is the step at which it left the finite numbers, or −1."""
    return [
        {
            "temperature": temperature,
            "sampler": sampler,
            "seed": i,
            "steps": (row + 1) * size.steps,
            "diverged": int(arrays["diverged"]),
            **{
                f"{predictor}_{part}_{name}": float(arrays["scores"][row, p, q, k])
                for p, predictor in enumerate(PREDICTORS)
                for q, part in enumerate(PARTS)
                for k, name in enumerate(SCORES)
            },
        }
        for (sampler, temperature, i), arrays in found.items()
        for row in range(len(arrays["scores"]))
    ]


def _plot(found: Found, size: Size, temperature: str, n: int) -> Any:
    """Panels (a) to (d) of the paper, and the calibration error, at one temperature."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12, 6.8), layout="constrained")
    panels = figure.subplots(len(PARTS), len(SCORES), sharex=True)
    for q, part in enumerate(PARTS):
        for k, label in enumerate(("negative log-likelihood", "accuracy", "calibration error")):
            panel = panels[q, k]
            for color, sampler in enumerate(ETAS):
                _draw(panel, found, size, (sampler, temperature), (q, k), f"C{color}")
            if k != SCORES.index("accuracy"):
                panel.set_yscale("log")
            panel.set_title(f"{label}, {part}", fontsize=9)
    for panel in panels[-1]:
        panel.set_xlabel("iterations")
    panels[0, 0].legend(fontsize=7, frameon=False)
    temperatures = ", ".join(f"{scale(sampler, temperature, n)[1]:.3g} ({sampler})" for sampler in ETAS)
    figure.suptitle(
        f"T: {temperatures}. Lines: network at the running average; dashes: averaged predictive", fontsize=9
    )
    return figure


def _draw(panel: Any, found: Found, size: Size, setting: tuple[str, str], which: tuple[int, int], color: str) -> None:
    """The curves of one sampler: thick the first seed, thin the others."""
    q, k = which
    for i in range(size.seeds):
        scores = found[(*setting, i)]["scores"]
        steps = (1 + np.arange(len(scores))) * size.steps
        width = 1.4 if i == 0 else 0.5
        panel.plot(steps, scores[:, 0, q, k], color=color, linewidth=width, label=setting[0] if i == 0 else None)
        panel.plot(steps, scores[:, 1, q, k], "--", color=color, linewidth=width / 2)
