"""Figure 4: Bayesian logistic regression on a3a by all four samplers, and how far they end from a long NUTS run."""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from typing import Any

import jax
import numpy as np
from jaxtyping import Array

from lsmcmc.experiments import blr, blr_nuts
from lsmcmc.experiments.blr_chains import BATCH_SIZE, BURN_IN, PARTS, SCORES, SETTINGS, Found, Setting, chains
from lsmcmc.experiments.blr_nuts import Length
from lsmcmc.experiments.figure4_claims import claims, distances, limits
from lsmcmc.experiments.figure4_plots import curves_plot, distances_plot
from lsmcmc.experiments.parts import Arrays, Parts
from lsmcmc.experiments.result import Result, interval_of_mean
from lsmcmc.progress import Progress

NAME = "figure4"
TITLE = "Figure 4: Bayesian logistic regression on a3a"

COUNTS = (10, 30, 100, 300, 1_000, 1_300, 2_000, 3_000, 5_000, 10_000, 20_000, 50_000, 100_000)  # of steps, scored


@dataclass(frozen=True)
class Size:
    """How long the chains are, and the references."""

    seeds: int
    steps: int
    nuts: dict[str, Length]


FULL = Size(10, 100_000, {"Γ": Length(4, 500, 1_000, 9), "N(0, I)": Length(4, 300, 2_000, 10)})
SHORT = Size(5, 10_000, {"Γ": Length(2, 150, 100, 9), "N(0, I)": Length(4, 150, 300, 10)})
QUICK = (
    f"{SHORT.seeds} seeds of {SHORT.steps:,} steps instead of {FULL.seeds} of {FULL.steps:,}, NUTS runs of "
    f"{SHORT.nuts['N(0, I)'].draws} and, under the Γ prior, {SHORT.nuts['Γ'].draws} draws a chain instead of "
    f"{FULL.nuts['N(0, I)'].draws:,} and {FULL.nuts['Γ'].draws:,}"
)


def run(*, quick: bool, seed: int, parts: Parts = Parts(), size: Size | None = None) -> Result:
    """All samplers under both priors; at another `size` than these two, `quick` is only what the result says."""
    size = size or (SHORT if quick else FULL)
    found, references = _measure_all(size, seed, parts)
    counts = _counts(size)
    apart = distances(found, references)
    return Result(
        NAME,
        TITLE,
        {"quick": quick, "seed": seed, "seeds": size.seeds, "steps": size.steps, "burn_in": BURN_IN}
        | {"batch_size": BATCH_SIZE, "sigmas": blr.SIGMAS, **{f"NUTS, {p}": asdict(n) for p, n in size.nuts.items()}},
        claims(found, references, counts),
        {
            "scores": _rows(found, counts),
            "steps": limits(found, references["N(0, I)"]["mean"]),
            "distances": apart,
            "references": [_reference_row(prior, held) for prior, held in references.items()],
        },
        {f"curves-{sigma:g}": curves_plot(found, counts, sigma) for sigma in blr.SIGMAS}
        | {"distances": distances_plot(apart)},
        _remarks(size, references),
        f"95 % intervals by Student's t over {size.seeds} seeds, paired: the chains of one seed share start and "
        "batches. For a log loss or a distance the number is the ratio of geometric means (below 1: smaller with "
        "smoothing), for an accuracy the difference in percentage points. No correction for the number of claims.",
    )


# Measuring


def _measure_all(size: Size, seed: int, parts: Parts) -> tuple[Found, dict[str, Arrays]]:
    """References and settings, a few at a time."""
    key = jax.random.fold_in(jax.random.key(seed), 4)
    todo: dict[Any, Callable[[], Arrays]] = {
        prior: _nuts_job(prior, length, key) for prior, length in size.nuts.items()
    }
    todo |= {(s, prior): _chains_job(s, prior, size, seed, key) for prior in size.nuts for s in SETTINGS}
    with Progress(len(todo), label=NAME) as bar, ThreadPoolExecutor(min(4, os.cpu_count() or 1)) as pool:
        running = {pool.submit(parts.get, _part_name(which), job): which for which, job in todo.items()}
        made = {}
        try:
            for future in as_completed(running):
                made[running[future]] = future.result()
                bar.advance(1)
        finally:
            pool.shutdown(cancel_futures=True)  # after an interrupt or an error the others do not begin
    return {which: made[which] for which in todo if which not in size.nuts}, {p: made[p] for p in size.nuts}


def _nuts_job(prior: str, length: Length, key: Array) -> Callable[[], Arrays]:
    return lambda: blr_nuts.reference(prior, length, jax.random.fold_in(key, 1))


def _chains_job(setting: Setting, prior: str, size: Size, seed: int, key: Array) -> Callable[[], Arrays]:
    return lambda: chains(setting, prior, blr.starts(key, size.seeds), _counts(size), seed)


def _part_name(which: Any) -> str:
    priors = {"Γ": "gamma", "N(0, I)": "normal"}
    if isinstance(which, str):
        return f"nuts-{priors[which]}"
    setting, prior = which
    return f"{setting.sampler}-{setting.sigma:g}-{'sum' if setting.gradient == '∇U' else 'mean'}-{priors[prior]}"


def _counts(size: Size) -> tuple[int, ...]:
    return *(n for n in COUNTS if n < size.steps), size.steps


# Writing


def _rows(found: Found, counts: tuple[int, ...]) -> list[dict[str, Any]]:
    """Every score of every sampler, with 95 % intervals over seeds."""
    rows = []
    for (setting, prior), arrays in found.items():
        for k, count in enumerate(counts):
            row: dict[str, Any] = {"prior": prior, "sampler": setting.label, "steps": count}
            values = {
                f"{part}_{name}": arrays["scores"][:, k, q, s]
                for q, part in enumerate(PARTS)
                for s, name in enumerate(SCORES)
            } | {"test_nll_predictive": arrays["predictive"][:, k]}
            for name, value in values.items():
                mean, low, high = interval_of_mean(value)
                row |= {name: mean, f"{name}_low": low, f"{name}_high": high}
            rows.append(row)
    return rows


def _reference_row(prior: str, held: Arrays) -> dict[str, Any]:
    return {
        "prior": prior,
        "largest_rhat": float(held["rhat"]),
        "smallest_ess": float(held["ess"]),
        "divergences": int(held["divergences"]),
        "norm": float(held["norm"]),
        "median_sd": float(np.median(held["sd"])),
        "test_nll_predictive": float(held["loss"]),
    }


def _remarks(size: Size, references: dict[str, Arrays]) -> list[str]:
    X = blr.data().train[0]
    rank = int(np.linalg.matrix_rank(X))
    gamma, normal = (references[prior] for prior in ("Γ", "N(0, I)"))
    return [
        "U = Σᵢ log(1 + exp(−yᵢ⟨dᵢ, x⟩)) + λ log‖x‖ + θ‖x‖ is the paper's f with its factor n, and T = 1. The gradient "
        "of the prior is singular at the paper's start x₀ = 0: chains start from N(0, 1e-2 I). Batches are subsets "
        "without replacement (Algorithm 1). The paper gives no σ here; those of Table 3 are run.",
        "Of pSGLD two readings. V of ∇U/N, as Li et al. publish it and as this library has it: a coordinate then "
        "moves by about hN = 6.4 in a step. V of ∇U, the paper's formulas with its f: by about 0.002. LS-pSGLD "
        "likewise.",
        f"After {BURN_IN:,} steps the scores are those at the running average of all later positions, as in the paper; "
        "before, at the current position. The log loss of the averaged probabilities stands beside it.",
        "The posterior under the Γ prior is far wider than these chains travel. The features of a3a have rank "
        f"{rank} of {X.shape[1]}: {X.shape[1] - rank} directions are in no likelihood, and features that one class "
        f"alone has are bounded on one side. There the prior decides: NUTS finds ‖x‖ about {gamma['norm']:,.0f} and a "
        f"median sd of {np.median(gamma['sd']):.3g} ({np.median(normal['sd']):.2g} under N(0, I)), where the noise of "
        f"{size.steps:,} steps of 1e-3 moves a coordinate by {np.sqrt(2e-3 * size.steps):.2g}. So all chains still "
        "depend on their start and their length. For that the same is run under the prior N(0, I), which chains of "
        "this length can reach.",
        "Distances, of all draws of a chain after the burn-in: of the mean, RMS over coordinates of the difference in "
        "posterior sd; of the sd, RMS of the log ratio; of the predictive, RMS over test rows of the difference in "
        "P(y = +1). NUTS against NUTS is the distance of two halves of its chains. "
        f"Largest R-hat: {gamma['rhat']:.3f} under Γ, {normal['rhat']:.3f} under N(0, I).",
        "The linear stability limit is 2/λmax(GH): at the start, at the mean of NUTS under N(0, I), and at the running "
        "average with the G of the end of the chain. Above it a chain on a quadratic explodes. Here it grows until the "
        "classifier is sure of itself: H = Σᵢ pᵢ(1 − pᵢ)dᵢdᵢᵀ is small there, and the step is stable again.",
    ]
