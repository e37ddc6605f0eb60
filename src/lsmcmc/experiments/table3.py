"""Table 3: the largest variance of the smoothed minibatch gradient on a path through the a3a posterior."""

from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array
from numpy.typing import NDArray

import lsmcmc as ls
from lsmcmc.experiments import blr
from lsmcmc.experiments.gradient_variance import of_a_mean, variance_by_draws, variance_of_one
from lsmcmc.experiments.parts import Parts
from lsmcmc.experiments.result import Claim, Result, Verdict, errors_off, interval_of_mean, judge_smaller
from lsmcmc.progress import Progress

NAME = "table3"
TITLE = "Table 3: the variance of smoothed minibatch gradients, a3a"
PATHS, QUICK_PATHS = 40, 8
QUICK = f"{QUICK_PATHS} paths instead of {PATHS}; their length and the 100 draws are the paper's procedure in full"

SIGMAS = (0.0, *blr.SIGMAS)
BATCHES = (10, 15, 50)
LENGTH, DRAWS = 200, 100
PRINTED = np.array(  # (σ, batch size)
    [[7.69e-1, 3.17e-1, 5.69e-2], [2.56e-1, 1.06e-2, 1.96e-2], [1.54e-1, 6.37e-2, 1.21e-2], [8.52e-2, 3.54e-2, 7.04e-3]]
)
_OUT_OF_LINE = 2.0  # a printed ratio this many times off the median over the batch sizes


@dataclass(frozen=True)
class Measured:
    """Over all paths: the exact maximum of one example's variance (path, σ), and by draws (path, batch, σ)."""

    per_example: NDArray[np.float64]
    drawn: NDArray[np.float64]
    where: NDArray[np.int64]  # (path, σ, 2): the step and the coordinate of the maximum
    ratio: NDArray[np.float64]  # (path,): sum of all variances by draws over their exact sum

    def exact(self, batch: int) -> NDArray[np.float64]:
        """The maximum at a batch size, (path, σ)."""
        return self.per_example * of_a_mean(batch, blr.posterior().num_examples)


def run(*, quick: bool, seed: int, parts: Parts = Parts()) -> Result:
    """The table by its closed form and by draws, on independent paths."""
    num_paths = QUICK_PATHS if quick else PATHS
    measured = _measure_all(num_paths, seed, parts)
    return Result(
        NAME,
        TITLE,
        {
            "quick": quick,
            "seed": seed,
            "paths": num_paths,
            "length": LENGTH,
            "draws": DRAWS,
            "step": blr.STEPS["SGLD"],
            "sigmas": SIGMAS,
            "batch_sizes": BATCHES,
        },
        claims(measured),
        {"variances": _rows(measured)},
        {"variances": _plot(measured)},
        _remarks(measured),
        f"Exact values: 95 % intervals by Student's t over {num_paths} independent paths. Where a printed number is "
        "compared, the interval is that of one repetition of the paper's procedure (one path, 100 draws), which "
        "95 of 100 repetitions fall into.",
    )


# Measuring


def _measure_all(num_paths: int, seed: int, parts: Parts) -> Measured:
    """A part per path."""
    key = jax.random.fold_in(jax.random.key(seed), 3)
    x0 = blr.starts(key, num_paths)
    walk = ls.sample(
        ls.lmc(blr.STEPS["SGLD"]), blr.posterior(), init=x0, num_draws=LENGTH - 1, seed=seed, progress=False
    )
    paths = np.concatenate([np.asarray(x0)[:, np.newaxis], walk.draws], axis=1)
    found = []
    with Progress(num_paths, label=NAME) as bar:
        for p, path in enumerate(paths):
            keys = jax.random.split(jax.random.fold_in(key, p), len(BATCHES))
            found.append(parts.get(f"path{p}", partial(_measure, path, keys)))
            bar.advance(1)
    return Measured(**{name: np.stack([part[name] for part in found]) for name in found[0]})


def _measure(path: NDArray[Any], keys: Array) -> dict[str, NDArray[Any]]:
    posterior = blr.posterior()
    X, y = posterior.data
    R = blr.residuals(path, X, y)
    exactly = np.stack([variance_of_one(R, X, sigma) for sigma in SIGMAS])  # (σ, point, coordinate)
    flat = exactly.reshape(len(SIGMAS), -1)
    drawn = np.stack(
        [
            np.asarray(variance_by_draws(posterior, jnp.asarray(path), key, batch, SIGMAS, DRAWS), np.float64)
            for key, batch in zip(keys, BATCHES, strict=True)
        ]
    )
    factors = np.array([of_a_mean(batch, posterior.num_examples) for batch in BATCHES])
    return {
        "per_example": flat.max(1),
        "drawn": drawn.reshape(len(BATCHES), len(SIGMAS), -1).max(-1),
        "where": np.stack(np.unravel_index(flat.argmax(1), exactly.shape[1:]), axis=1),
        "ratio": np.mean(drawn.sum((1, 2, 3)) / (factors * exactly.sum())),
    }


# Judging


def claims(measured: Measured) -> list[Claim]:
    """By fixed rules, each in its function."""
    sigmas, batches = range(len(SIGMAS)), range(len(BATCHES))
    return [
        _draws_agree(measured),
        *[_smaller(measured, s) for s in sigmas[1:]],
        *[_ratio(measured, s, b) for s in sigmas[1:] for b in batches],
        *[_between_batches(measured, b) for b in batches[1:]],
        *[_size(measured, b) for b in batches],
    ]


def _draws_agree(measured: Measured) -> Claim:
    """Reproduced unless the mean over paths is further from 1 than chance puts it once in a hundred."""
    mean, low, high = interval_of_mean(measured.ratio)
    off, allowed = errors_off(measured.ratio, 1)
    return Claim(
        "the variance by draws is that of the closed form (a check of this library, not of the paper): sum over "
        "coordinates and points, drawn ÷ exact",
        "no such check in the paper",
        mean,
        (low, high),
        Verdict.REPRODUCED if off < allowed else Verdict.NOT_REPRODUCED,
        f"{off:.1f} standard errors from 1; more than {allowed:.1f} would happen by chance once in a hundred.",
    )


def _smaller(measured: Measured, s: int) -> Claim:
    printed = ", ".join(f"{ratio:.3f}" for ratio in PRINTED[s] / PRINTED[0])
    return judge_smaller(
        f"smoothing with σ = {SIGMAS[s]:g} lowers the maximum variance (exact, ratio to σ = 0, the same for every B)",
        f"ratios {printed}",
        measured.per_example[:, s],
        measured.per_example[:, 0],
    )


def _ratio(measured: Measured, s: int, b: int) -> Claim:
    """Inconsistent if out of line with the other batch sizes; reproduced if a repetition could have given it."""
    printed = PRINTED[s] / PRINTED[0]
    mean, low, high = repetition(measured.drawn[:, b, s] / measured.drawn[:, b, 0])
    exactly = np.exp(np.mean(np.log(measured.per_example[:, s] / measured.per_example[:, 0])))
    common = float(np.median(printed))
    note = f"Exact ratio: {exactly:.3f}, whatever B is."
    if abs(np.log(printed[b] / common)) > np.log(_OUT_OF_LINE):
        verdict = Verdict.INCONSISTENT
        note += f" The median over the batch sizes is {common:.3f} in the paper, and the ratio cannot depend on B."
    else:
        verdict = Verdict.REPRODUCED if low <= printed[b] <= high else Verdict.NOT_REPRODUCED
    return Claim(
        f"maximum variance at σ = {SIGMAS[s]:g} ÷ that at σ = 0, B = {BATCHES[b]}, by {DRAWS} draws",
        f"{printed[b]:.3f}",
        mean,
        (low, high),
        verdict,
        note,
    )


def _between_batches(measured: Measured, b: int) -> Claim:
    """Reproduced if a repetition could have given it; else inconsistent: the batch size alone fixes this ratio."""
    printed = PRINTED[0, 0] / PRINTED[0, b]
    mean, low, high = repetition(measured.drawn[:, 0, 0] / measured.drawn[:, b, 0])
    N = blr.posterior().num_examples
    fixed = of_a_mean(BATCHES[0], N) / of_a_mean(BATCHES[b], N)
    return Claim(
        f"maximum variance at B = {BATCHES[0]} ÷ that at B = {BATCHES[b]}, σ = 0, by {DRAWS} draws",
        f"{printed:.2f}",
        mean,
        (low, high),
        Verdict.REPRODUCED if low <= printed <= high else Verdict.INCONSISTENT,
        f"Batches drawn without replacement give {fixed:.2f} on any data and any path.",
    )


def _size(measured: Measured, b: int) -> Claim:
    """Inconsistent if above 1/B, which no data of zeros and ones can exceed; else judged by a repetition."""
    printed, bound = PRINTED[0, b], 1 / BATCHES[b]
    mean, low, high = repetition(measured.drawn[:, b, 0])
    within = Verdict.REPRODUCED if low <= printed <= high else Verdict.NOT_REPRODUCED
    exactly = measured.exact(BATCHES[b])[:, 0].mean()
    return Claim(
        f"maximum variance of the mean gradient at σ = 0, B = {BATCHES[b]}, by {DRAWS} draws",
        f"{printed:.3g}",
        mean,
        (low, high),
        Verdict.INCONSISTENT if printed > bound else within,
        f"Exact: {exactly:.3g}. One example's gradient lies in [−1, 1] in every coordinate, as the features are zeros "
        f"and ones, so the variance cannot be above 1/B = {bound:.3g}.",
    )


def repetition(values: Any) -> tuple[float, float, float]:
    """Geometric mean of independent positive replications, and the 95 % interval of one more.

    >>> mean, low, high = repetition([0.9, 1.0, 1.1])
    >>> low < 0.9 < mean < 1.1 < high
    True
    """
    from scipy.stats import t

    logs = np.log(np.asarray(values, np.float64))
    half = t.ppf(0.975, len(logs) - 1) * logs.std(ddof=1) * np.sqrt(1 + 1 / len(logs))
    return tuple(float(np.exp(logs.mean() + shift)) for shift in (0, -half, half))  # type: ignore[return-value]


# Writing


def _remarks(measured: Measured) -> list[str]:
    steps = measured.where[..., 0] + 1
    return [
        "Read as the mean gradient, ∇f with f = U/N: the gradient of the sum has variances N² = 10⁷ times these. "
        f"Batches are subsets without replacement (Algorithm 1). One path by the full gradient at step "
        f"{blr.STEPS['SGLD']:g}, the same for all σ and B, from N(0, 1e-2 I); the paper does not say how long.",
        f"Of a path's {LENGTH} points, the one with the maximum is number {int(np.median(steps))} at the median and "
        f"number {int(steps.max())} at the latest, so the length hardly matters.",
        "The mean of B examples has exactly (1/B)(N − B)/(N − 1) times the variance of one example. So the ratios in σ "
        "do not depend on B, and the ratios in B do not depend on σ, the data or the path.",
        "Beside the printed ratios stands 1/(1+4σ), what smoothing does to a gradient of which a single coordinate "
        "varies. In a3a neighbouring coordinates vary together, and smoothing averages less away.",
    ]


def _rows(measured: Measured) -> list[dict[str, Any]]:
    rows = []
    for s, sigma in enumerate(SIGMAS):
        for b, batch in enumerate(BATCHES):
            mean, low, high = interval_of_mean(measured.exact(batch)[:, s])
            drawn, drawn_low, drawn_high = repetition(measured.drawn[:, b, s])
            rows.append(
                {
                    "sigma": sigma,
                    "batch_size": batch,
                    "printed": PRINTED[s, b],
                    "exact": mean,
                    "exact_low": low,
                    "exact_high": high,
                    "drawn": drawn,
                    "drawn_low": drawn_low,
                    "drawn_high": drawn_high,
                    "printed_ratio": PRINTED[s, b] / PRINTED[0, b],
                    "exact_ratio": float(np.mean(measured.per_example[:, s] / measured.per_example[:, 0])),
                    "drawn_ratio": repetition(measured.drawn[:, b, s] / measured.drawn[:, b, 0])[0],
                    "one_coordinate": 1 / (1 + 4 * sigma),
                }
            )
    return rows


def _plot(measured: Measured) -> Any:
    """Variances and their ratios in σ, printed and measured."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 4.2), layout="constrained")
    sizes, ratios = figure.subplots(1, 2)
    rows = _rows(measured)
    for b, batch in enumerate(BATCHES):
        own = [row for row in rows if row["batch_size"] == batch]
        for panel, printed, drawn, exact in (
            (sizes, "printed", "drawn", "exact"),
            (ratios, "printed_ratio", "drawn_ratio", "exact_ratio"),
        ):
            panel.plot(SIGMAS, [row[printed] for row in own], f"C{b}x--", lw=1, label=f"printed, B = {batch}")
            panel.plot(SIGMAS, [row[drawn] for row in own], f"C{b}o", markersize=4, label=f"100 draws, B = {batch}")
            panel.plot(SIGMAS, [row[exact] for row in own], f"C{b}-", lw=1)
            panel.set_yscale("log")
            panel.set_xlabel("σ")
    grid = np.linspace(0, 2, 50)
    ratios.plot(grid, 1 / (1 + 4 * grid), color="grey", lw=1, ls=":", label="1/(1+4σ)")
    sizes.set_title("largest variance (lines: exact)")
    ratios.set_title("divided by that at σ = 0")
    ratios.legend(fontsize=7, frameon=False)
    return figure
