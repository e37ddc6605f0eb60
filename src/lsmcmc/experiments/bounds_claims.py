"""What the exact distances on Gaussians say of Theorems 1 and 2."""

import numpy as np
from numpy.typing import NDArray

from lsmcmc.experiments.gaussian_distances import CASES, COUNTS, JUDGED, RESCALED, SIGMAS, SIMILAR, Found, of
from lsmcmc.experiments.result import Claim, Verdict, errors_off, interval_of_mean, judge_below


def claims(found: Found, simulated: NDArray[np.float64]) -> list[Claim]:
    """Whether they are bounds, and what they say of smoothing."""
    return [
        _simulation(simulated),
        *[_is_a_bound(found, case, form) for form in ("proof", "stated", "nonconvex") for case in CASES],
        *[claim for case in CASES if case != RESCALED for claim in _trade_off(found, case)],
    ]


def _is_a_bound(found: Found, case: str, form: str) -> Claim:
    """Reproduced if no Gaussian of the case has a K and a σ at which the distance is above the bound."""
    ratio = of(found, case, "total") / of(found, case, form)
    worst = ratio.max((1, 2))
    least = 1 / ratio.max(2).min(1)
    _, s, k = np.unravel_index(ratio.argmax(), ratio.shape)
    theorem = (
        "Theorem 2"
        if form == "nonconvex"
        else f"Theorem 1 ({'as its proof gives it' if form == 'proof' else 'as stated'})"
    )
    return Claim(
        f"{theorem} bounds W₂(P(x_K), π): distance ÷ bound on {case}, the largest over K and σ",
        "at most 1",
        float(worst.mean()),
        (float(worst.min()), float(worst.max())),
        Verdict.REPRODUCED if worst.max() <= 1 else Verdict.NOT_REPRODUCED,
        f"{'Above' if worst.max() > 1 else 'Below'} 1. Largest at K = {COUNTS[k]:,}, σ = {SIGMAS[s]:g}; at its best K "
        f"the bound is {np.median(least):.3g} times the distance.",
    )


def _trade_off(found: Found, case: str) -> list[Claim]:
    """Smaller discretisation, similar ergodicity, smaller error in the end."""
    s = SIGMAS.index(JUDGED)
    steps, total = (of(found, case, what) for what in ("discretisation", "total"))
    smaller = (steps[:, s] / steps[:, 0]).max(1)
    slower = time_to_a_tenth(of(found, case, "ergodicity"))
    slower, last = slower[:, s] / slower[:, 0], total[:, s, -1] / total[:, 0, -1]
    worse = (total[:, s] > total[:, 0]).any(0)
    until = (
        f"Before, the error is larger with smoothing at some K up to {COUNTS[int(np.flatnonzero(worse).max())]:,}."
        if worse.any()
        else ""
    )
    where = f"σ = {JUDGED:g} against none, {case}"
    return [
        _below(
            f"smoothing has a strictly smaller discretisation error: ratio, largest over K, {where}",
            "smaller",
            smaller,
            1.0,
        ),
        _below(
            f"smoothing mixes at a similar rate: time until the ergodicity term is a tenth, ratio, {where}",
            "similar (Section 1)",
            slower,
            SIMILAR,
            f"Similar is read as up to {SIMILAR:g}.",
        ),
        _below(
            f"the error of a long run is smaller with smoothing: ratio at K = {COUNTS[-1]:,}, {where}",
            "much smaller",
            last,
            1.0,
            until,
        ),
    ]


def _below(claim: str, paper: str, values: NDArray[np.float64], bound: float, note: str = "") -> Claim:
    if len(values) > 1:
        return judge_below(claim, paper, values, bound, note)
    value = float(values[0])
    verdict = Verdict.REPRODUCED if value < bound else Verdict.NOT_REPRODUCED
    return Claim(
        claim,
        paper,
        value,
        (value, value),
        verdict,
        f"{'Below' if value < bound else 'Above'} {bound:g}. {note}".strip(),
    )


def time_to_a_tenth(ergodicity: NDArray[np.float64]) -> NDArray[np.float64]:
    """K at which the last axis falls to a tenth of its first value, between its points by a line in the logs.

    >>> counts = np.array(COUNTS)
    >>> time_to_a_tenth(2.0 / counts).round(6).tolist()
    10.0
    """
    level = ergodicity[..., :1] / 10
    after = np.argmax(ergodicity < level, axis=-1)[..., np.newaxis]
    x, y = np.log(np.array(COUNTS)), np.log(ergodicity.clip(1e-300))
    x0, x1 = x[after - 1], x[after]
    y0, y1 = (np.take_along_axis(y, index, axis=-1) for index in (after - 1, after))
    return np.exp(x0 + (x1 - x0) * (np.log(level) - y0) / (y1 - y0))[..., 0]


def _simulation(ratio: NDArray[np.float64]) -> Claim:
    """Reproduced unless a σ is further from 1 than chance puts the further of them once in a hundred."""
    furthest, allowed = errors_off(ratio, 1)
    mean, low, high = interval_of_mean(ratio.mean(0))
    return Claim(
        "chains have the exact law (a check of this library, not of the paper): E|x_K − μ|², simulated ÷ exact",
        "no such check in the paper",
        mean,
        (low, high),
        Verdict.REPRODUCED if furthest < allowed else Verdict.NOT_REPRODUCED,
        f"{furthest:.1f} standard errors from 1; more than {allowed:.1f} would happen by chance once in a hundred. "
        f"{ratio.shape[1]} seeds of 500 chains.",
    )
