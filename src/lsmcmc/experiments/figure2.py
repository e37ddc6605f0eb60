"""Figure 2: kernel density plots of the iterates of one chain on the mixture, and how far from the target they are."""

from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lsmcmc.experiments import mixture
from lsmcmc.experiments import mixture_chains as chains
from lsmcmc.experiments.mixture_chains import SETTINGS, Setting, Size
from lsmcmc.experiments.mixture_steps import Search, searches
from lsmcmc.experiments.parts import Arrays, Parts
from lsmcmc.experiments.result import Claim, Result, Verdict, interval_of_mean, judge_smaller

NAME = "figure2"
TITLE = "Figure 2: kernel densities of chains on a Gaussian mixture"
QUICK = (
    f"{chains.SHORT.chains} chains instead of {chains.FULL.chains}, distances between {chains.SHORT.points:,} points "
    f"instead of {chains.FULL.points:,}, a grid search with {chains.SHORT.pilots} pilot chains of "
    f"{chains.SHORT.pilot_steps:,} iterates instead of {chains.FULL.pilots} of {chains.FULL.pilot_steps:,}, and the "
    "small step and the literal reading at 1E5 alone; the length of the other chains is the paper's"
)

STOPS = (100_000, 500_000, 1_000_000)
PRINTED = ("SGLD", "pSGLD", "LS-SGLD")  # the panels that the paper has
ALIKE = 1.5  # the factor of the floor up to which a sample matches the reference
_SEEN, _SIDE = 4_000, 60  # iterates in a kernel density, and its grid


@dataclass(frozen=True)
class Found:
    """One sampler in one setting: W₂ of every chain at every stop, (stop, chain), and the trail of the first."""

    setting: Setting
    sampler: str
    eta: float
    stops: tuple[int, ...]
    distance: NDArray[np.float64]
    share: NDArray[np.float64]  # of the smaller half, (stop, chain)
    trail: NDArray[np.float32]  # of the first chain

    def seen(self, stop: int) -> NDArray[np.float32]:
        """What a panel shows: iterates of the first chain up to `stop`, evenly spaced."""
        held = self.trail[: stop // chains.TRAIL]
        return held[:: max(1, len(held) // _SEEN)]

    def rows(self, floor: NDArray[np.float64]) -> list[dict[str, Any]]:
        """For the table."""
        rows = []
        for stop, distance, share in zip(self.stops, self.distance, self.share, strict=True):
            mean, low, high = interval_of_mean(distance)
            row = {"setting": self.setting.label, "sampler": self.sampler, "eta": self.eta, "iterates": stop}
            row |= {"w2": mean, "w2_low": low, "w2_high": high, "floor": floor.mean()}
            rows.append(row | {"least": distance.min(), "most": distance.max(), "smaller_half": share.mean()})
        return rows


def run(*, quick: bool, seed: int, parts: Parts = Parts(), size: Size | None = None) -> Result:
    """Every setting; at another `size` than the two, `quick` is only what the result says."""
    size = size or (chains.SHORT if quick else chains.FULL)
    steps = searches(size, seed, parts, NAME)
    floor = chains.floor(size.points, size.floors, seed)
    found = _chains(steps, size, seed, parts)
    return Result(
        NAME,
        TITLE,
        settings(steps, size, quick=quick, seed=seed),
        claims(found, floor),
        {
            "distances": [row for one in found for row in one.rows(floor)],
            "grid": [row for search in steps.values() for row in search.rows()],
        },
        {f"densities-{setting.name}": _plot(found, setting, seed) for setting in SETTINGS},
        [
            *readings(steps, size),
            "A panel shows all iterates of one chain up to that number, as the text says. What is measured is W₂ of "
            f"{size.points:,} of them, evenly spaced, against as many draws of the reference. “Matches well” is read "
            f"as: on average within a factor {ALIKE:g} of the floor, which is what two independent references are "
            "apart. A large discrepancy is more than that. More points have a lower floor, so this is stricter in "
            "--full.",
            f"Floor: {floor.mean():.3g} over {len(floor)} pairs. One chain is drawn; the numbers are over all chains.",
        ],
        f"95 % intervals by Student's t over {size.chains} independent chains of each sampler; chains of one number "
        "share start, batches and noise over the samplers and are paired. Compared with the floor: the ratio of means, "
        "by the delta method on the log scale. Compared with each other: the ratio of geometric means.",
    )


def settings(steps: dict[str, Search], size: Size, *, quick: bool, seed: int) -> dict[str, Any]:
    """Of Figure 2 and Table 2 alike."""
    return {
        "quick": quick,
        "seed": seed,
        **asdict(size),
        "batch_size": mixture.BATCH,
        "sigma": mixture.SIGMA,
        **{f"eta of {sampler}": search.best for sampler, search in steps.items()},
    }


def readings(steps: dict[str, Search], size: Size) -> list[str]:
    """What Figure 2 and Table 2 have in common."""
    best = ", ".join(f"{search.best:g} ({sampler})" for sampler, search in steps.items())
    return [
        "The target is exp(−f) with the printed fᵢ. The printed gradient is not that of the printed fᵢ but of a law "
        "with 2 % of its mass at x + y < 0, where the target has a third. The density is followed; the literal "
        "reading, the printed gradient judged against the reference of the printed density, is run beside it.",
        "No step is printed. The grid search gives each sampler the step η (of f = U/n, β = 1) with the smallest mean "
        f"W₂ between the last 10 K of {size.pilot_steps:,} iterates and the reference, over {size.pilots} pilot chains "
        f"that are not used again: {best}. Steps beside these are nearly as good (table: grid). At these steps a chain "
        f"changes modes more than a hundred times in 10 K iterates. η = {chains.SMALL}, at which it changes about "
        "once, is run as well: distances as large as the printed ones need chains that are trapped.",
        "The reference is random walk Metropolis (blackjax), a thousand chains at once, so that it is not trapped; its "
        "share of the smaller mode is checked against quadrature in table2. All chains start at 0 with subsets of 10 "
        "rows without replacement (Algorithm 1); σ = 1.",
    ]


def _chains(steps: dict[str, Search], size: Size, seed: int, parts: Parts) -> list[Found]:
    wanted = [(setting, sampler) for setting in SETTINGS for sampler in mixture.SAMPLERS]
    tasks = [
        partial(
            parts.get,
            f"{setting.name}-{sampler}",
            partial(_measure, setting, sampler, setting.eta(steps[sampler].best), size, seed),
        )
        for setting, sampler in wanted
    ]
    return [
        Found(setting, sampler, setting.eta(steps[sampler].best), _stops(setting, size), **arrays)
        for (setting, sampler), arrays in zip(wanted, chains.in_threads(tasks, NAME), strict=True)
    ]


def _stops(setting: Setting, size: Size) -> tuple[int, ...]:
    return tuple(stop for stop in setting.stops(size) if stop in STOPS)


def _measure(setting: Setting, sampler: str, eta: float, size: Size, seed: int) -> Arrays:
    trail = chains.walk(setting.reading, sampler, eta, size.chains, setting.stops(size), seed)["trail"]
    upto = [trail[:, : stop // chains.TRAIL] for stop in _stops(setting, size)]
    return {
        "distance": np.stack([chains.distances(held, size.points, seed) for held in upto]),
        "share": np.stack([mixture.share(held) for held in upto]),
        "trail": trail[0],
    }


# Judging


def claims(found: list[Found], floor: NDArray[np.float64]) -> list[Claim]:
    """The paper's three sentences about Figure 2, in every setting."""
    judged = []
    for setting in SETTINGS:
        own = {one.sampler: one for one in found if one.setting == setting}
        stops = own["SGLD"].stops
        at = {sampler: dict(zip(stops, one.distance, strict=True)) for sampler, one in own.items()}
        judged += [_far(sampler, setting, at[sampler][STOPS[0]], floor) for sampler in PRINTED]
        if STOPS[1] in stops:
            judged += [_closer(other, setting, at["LS-SGLD"][STOPS[1]], at[other][STOPS[1]]) for other in PRINTED[:2]]
        if STOPS[2] in stops:
            judged += [_near(sampler, setting, at[sampler][STOPS[2]], floor) for sampler in PRINTED]
    return judged


def _far(sampler: str, setting: Setting, distance: NDArray[np.float64], floor: NDArray[np.float64]) -> Claim:
    """Reproduced if the whole interval lies above the factor."""
    claim = f"{sampler}: a large discrepancy after 1E5 iterates, W₂ ÷ floor ({setting.label})"
    ratio, low, high = _over_floor(distance, floor)
    verdict = Verdict.REPRODUCED if low > ALIKE else Verdict.NOT_REPRODUCED
    stays = low > ALIKE and setting.reading != "density"
    other = " It would not go away with more iterates: these chains have another law." if stays else ""
    return Claim(claim, "large discrepancy", ratio, (low, high), verdict, _seen(low, high) + other)


def _near(sampler: str, setting: Setting, distance: NDArray[np.float64], floor: NDArray[np.float64]) -> Claim:
    """Reproduced if the whole interval lies below the factor."""
    claim = f"{sampler}: matches the reference well after 1E6 iterates, W₂ ÷ floor ({setting.label})"
    ratio, low, high = _over_floor(distance, floor)
    verdict = Verdict.REPRODUCED if high < ALIKE else Verdict.NOT_REPRODUCED
    return Claim(claim, "matches well", ratio, (low, high), verdict, _seen(low, high))


def _seen(low: float, high: float) -> str:
    where = "Below" if high < ALIKE else "Above" if low > ALIKE else "Undecided: the interval contains"
    return f"{where} {ALIKE:g}."


def _over_floor(distance: NDArray[np.float64], floor: NDArray[np.float64]) -> tuple[float, float, float]:
    """Ratio of means of two independent groups, by the delta method on the log scale."""
    from scipy.stats import t

    ratio = distance.mean() / floor.mean()
    spread = np.hypot(*(x.std(ddof=1) / x.mean() / np.sqrt(len(x)) for x in (distance, floor)))
    half = t.ppf(0.975, min(len(distance), len(floor)) - 1) * spread
    return float(ratio), float(ratio * np.exp(-half)), float(ratio * np.exp(half))


def _closer(other: str, setting: Setting, ours: NDArray[np.float64], theirs: NDArray[np.float64]) -> Claim:
    claim = f"LS-SGLD is closer to the reference than {other} after 5E5 iterates ({setting.label})"
    return judge_smaller(claim, "better (5E5)", ours, theirs)


# Drawing


def _plot(found: list[Found], setting: Setting, seed: int) -> Any:
    """A row of panels for each sampler, the kernel density over the contours of the target, and the reference."""
    from matplotlib.figure import Figure

    own = [one for one in found if one.setting == setting]
    figure = Figure(figsize=(2.4 * (1 + len(own[0].stops)), 8.2), layout="constrained")
    axes = figure.subplots(len(own), 1 + len(own[0].stops), sharex=True, sharey=True, squeeze=False)
    reference = mixture.reference("density", seed).points()
    axis = np.linspace(-6, 6, _SIDE)
    expected = kernel_density(reference[:: len(reference) // _SEEN], axis)
    for row, one in zip(axes, own, strict=True):
        for panel, stop in zip(row, one.stops, strict=False):
            title = f"{one.sampler}, {chains.short(stop)}, η = {one.eta:g}"
            _panel(panel, axis, kernel_density(one.seen(stop), axis), seed, title)
        _panel(row[-1], axis, expected, seed, "reference")
    figure.suptitle(f"{setting.label}. Shades: iterates of one chain; lines: the target", fontsize=9)
    return figure


def _panel(panel: Any, axis: NDArray[np.float64], density: NDArray[np.float64], seed: int, title: str) -> None:
    panel.contourf(axis, axis, density, levels=12, cmap="Blues")
    target = mixture.quadrature("density", seed)
    side = int(np.sqrt(len(target.weights)))
    lines = target.grid[:side, 1]
    panel.contour(lines, lines, target.weights.reshape(side, side).T, levels=5, colors="C1", linewidths=0.5)
    panel.set_title(title, fontsize=7)
    panel.set_xlim(-6, 6)
    panel.set_ylim(-6, 6)
    panel.tick_params(labelsize=6)


def kernel_density(points: NDArray[np.float32], axis: NDArray[np.float64]) -> NDArray[np.float64]:
    """Gaussian kernels of Scott's width, turned with the points, at (row y, column x)."""
    from scipy.stats import gaussian_kde

    grid = np.stack(np.meshgrid(axis, axis)).reshape(2, -1)
    return np.asarray(gaussian_kde(points.T.astype(np.float64))(grid)).reshape(len(axis), len(axis))
