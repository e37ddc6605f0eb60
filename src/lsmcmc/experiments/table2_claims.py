"""The claims of the text about Table 2, judged over chains, and those of the theory about the law of x_K."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lsmcmc.experiments.mixture_chains import BEST, SETTINGS, WINDOW, Setting, short
from lsmcmc.experiments.mixture_steps import Search
from lsmcmc.experiments.result import Claim, Verdict, errors_off, interval_of_mean, judge_similar, judge_smaller

STOPS = (100_000, 500_000, 900_000)
PRINTED = {
    "SGLD": dict(zip(STOPS, (0.695, 6.726, 0.285), strict=True)),
    "pSGLD": dict(zip(STOPS, (5.364, 0.286, 6.728), strict=True)),
    "LS-SGLD": dict(zip(STOPS, (0.421, 0.414, 0.418), strict=True)),
}
COMMON = 1.0  # a step for all, at which the law of x_K is visibly off
ALIKE = 1.5  # the factor up to which two distances count as similar, as in Figure 3


@dataclass(frozen=True)
class Cell:
    """A cell of the table in one setting, over all chains."""

    setting: Setting
    sampler: str
    eta: float
    stop: int
    distance: NDArray[np.float64]
    one_mode: NDArray[np.bool_]
    share: NDArray[np.float64]
    tau: NDArray[np.float64]  # autocorrelation time of the mode that the chain is in, in iterates
    points: int
    once: float  # by 10 K points, NaN where not made

    def range(self) -> tuple[float, float]:
        """What 95 of 100 chains fall into."""
        low, high = np.quantile(self.distance, (0.025, 0.975))
        return float(low), float(high)


@dataclass(frozen=True)
class Law:
    """The law of x_K of one sampler at one step: W₂ and the mass of the smaller half, (K, batch)."""

    sampler: str
    eta: float
    own: bool  # whether this is its best step
    counts: tuple[int, ...]
    distance: NDArray[np.float64]
    share: NDArray[np.float64]

    def rows(self, scale: "Scale") -> list[dict[str, Any]]:
        """For the table."""
        rows = []
        for k, distance, share in zip(self.counts, self.distance, self.share, strict=True):
            mean, low, high = interval_of_mean(distance)
            half, half_low, half_high = interval_of_mean(share)
            row = {"sampler": self.sampler, "eta": self.eta, "best step": "best" if self.own else "", "K": k}
            row |= {"w2": mean, "w2_low": low, "w2_high": high, "floor": scale.law_floor.mean()}
            row |= {"smaller_half": half, "smaller_half_low": half_low, "smaller_half_high": half_high}
            rows.append(row | {"smaller_half_exact": float(scale.exact_share)})
        return rows


@dataclass(frozen=True)
class Scale:
    """W₂ of pairs of references, of one mode against them, of one mode against the other; and the modes' shares."""

    floor: NDArray[np.float64]
    smaller: NDArray[np.float64]
    larger: NDArray[np.float64]
    opposite: NDArray[np.float64]
    share: NDArray[np.float64]  # of each Metropolis chain
    exact_share: NDArray[np.float64]
    law_floor: NDArray[np.float64]
    pilot_floor: NDArray[np.float64]
    large: NDArray[np.float64]  # the floor with 10 K points, empty where not made

    def rows(self) -> list[dict[str, Any]]:
        """For the table."""
        what = {
            "two references": self.floor,
            "two references, as many points as chains in a batch": self.law_floor,
            "two references, as many points as of a pilot chain": self.pilot_floor,
            "two references of 10 K points": self.large,
            "larger mode alone against a reference": self.larger,
            "smaller mode alone against a reference": self.smaller,
            "one mode against the other": self.opposite,
        }
        return [
            {"w2 of": name, "mean": x.mean(), "least": x.min(), "most": x.max(), "pairs": len(x)}
            for name, x in what.items()
            if len(x)
        ]


def claims(cells: list[Cell], laws: list[Law], searches: dict[str, Search], scale: Scale) -> list[Claim]:
    """Every row, every number and the paper's sentence about them in every setting; then the law of x_K."""
    judged = [_reference(scale), *[_row(searches[sampler], scale) for sampler in PRINTED]]
    for setting in SETTINGS:
        own = [cell for cell in cells if cell.setting == setting]
        judged += [_number(cell, scale) for cell in own if cell.sampler in PRINTED]
        ours = {cell.stop: cell for cell in own if cell.sampler == "LS-SGLD"}
        judged += [_closer(ours[cell.stop], cell) for cell in own if cell.sampler in ("SGLD", "pSGLD")]
    return [*judged, *_of_the_law(laws), _as_soon(cells)]


def _reference(scale: Scale) -> Claim:
    """Reproduced unless the share is further from that of quadrature than chance puts it once in a hundred."""
    mean, low, high = interval_of_mean(scale.share)
    off, allowed = errors_off(scale.share, float(scale.exact_share))
    return Claim(
        "the Metropolis reference has the target's share of the smaller mode (a check of this library, not of the "
        "paper)",
        "not printed",
        mean,
        (low, high),
        Verdict.REPRODUCED if off < allowed else Verdict.NOT_REPRODUCED,
        f"By quadrature {float(scale.exact_share):.4f}, {off:.1f} standard errors off; more than {allowed:.1f} would "
        "happen by chance once in a hundred.",
    )


def _row(search: Search, scale: Scale) -> Claim:
    """Inconsistent if no pilot chain scores the largest number at a step at which one comes near the floor.

    Near the floor is where the smallest number of every row is, and only chains that change modes often come there.
    """
    numbers = list(PRINTED[search.sampler].values())
    mixing = search.distance[search.distance.min(1) < ALIKE * scale.pilot_floor.mean()]
    low, high = float(mixing.min(initial=np.inf)), float(mixing.max(initial=-np.inf))
    return Claim(
        f"one step gives all three numbers of {search.sampler}, from {min(numbers):.3f} to {max(numbers):.3f}: largest "
        "W₂ of the pilot chains at the steps at which one comes near the floor",
        " ".join(f"{number:.3f}" for number in numbers),
        high,
        (low, high),
        Verdict.REPRODUCED if max(numbers) <= high else Verdict.INCONSISTENT,
        f"The interval holds all {mixing.size} pilot chains at these {len(mixing)} steps; their floor is "
        f"{scale.pilot_floor.mean():.2f}. All in the smaller mode scores {scale.smaller.mean():.2f}, in one mode "
        f"against a reference in the other {scale.opposite.mean():.2f}.",
    )


def _number(cell: Cell, scale: Scale) -> Claim:
    """Reproduced if one chain in this setting may score it. Fewer points than the paper's have a higher floor."""
    printed = PRINTED[cell.sampler][cell.stop]
    low, high = cell.range()
    seen = "Within." if low <= printed <= high else "Below." if printed < low else "Above."
    if printed < low and cell.points < WINDOW and printed**2 > low**2 - scale.floor.mean() ** 2:
        seen = f"Below, but by no more than the floor of {cell.points:,} points, where the paper has 10 K: undecided."
    once = f" By 10 K points, once: {cell.once:.3f}." if np.isfinite(cell.once) else ""
    return Claim(
        f"W₂ of {cell.sampler} at {short(cell.stop)} ({cell.setting.label})",
        f"{printed:.3f}",
        float(cell.distance.mean()),
        (low, high),
        Verdict.REPRODUCED if low <= printed <= high else Verdict.NOT_REPRODUCED,
        f"{seen} In one mode: {100 * cell.one_mode.mean():.0f} % of the chains.{once}",
    )


def _closer(ours: Cell, other: Cell) -> Claim:
    claim = f"LS-SGLD is closer to the reference than {other.sampler} at {short(other.stop)} ({other.setting.label})"
    return judge_smaller(claim, "consistently closer (Table 2)", ours.distance, other.distance)


def _of_the_law(laws: list[Law]) -> list[Claim]:
    """Closer once settled, at one step for both and at each one's best."""
    (ours, other), (ours_best, other_best) = (
        [next(law for law in laws if law.sampler == sampler and wanted(law)) for sampler in ("LS-SGLD", "SGLD")]
        for wanted in (lambda law: law.eta == COMMON, lambda law: law.own)
    )
    settled = f"the law of x_K is closer to the target with LS-SGLD than with SGLD, K = {ours.counts[-1]:,}"
    return [
        judge_smaller(
            f"{settled}, step η = {COMMON:g} for both",
            "smaller discretisation error",
            ours.distance[-1],
            other.distance[-1],
        ),
        judge_smaller(
            f"{settled}, best steps η = {ours_best.eta:g} and {other_best.eta:g}",
            "smaller overall sampling error",
            ours_best.distance[-1],
            other_best.distance[-1],
        ),
    ]


def _as_soon(cells: list[Cell]) -> Claim:
    """The rate at which chains change modes, which is what takes long here, in the time of the theory."""
    last = max(cell.stop for cell in cells if cell.setting == BEST)
    ours, other = (
        next(cell for cell in cells if (cell.setting, cell.sampler, cell.stop) == (BEST, sampler, last))
        for sampler in ("LS-SGLD", "SGLD")
    )
    return judge_similar(
        "LS-SGLD and SGLD change modes at a similar rate: autocorrelation time of the mode, in iterates × η",
        "similar ergodicity rate",
        ours.eta * ours.tau,
        other.eta * other.tau,
        ALIKE,
        f"In iterates {ours.tau.mean():.0f} and {other.tau.mean():.0f}, best steps, last 10 K of {short(last)}.",
    )
