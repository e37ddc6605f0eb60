"""Table 2: W₂ between the last iterates on the mixture and a Metropolis reference; and the law of x_K over chains."""

from functools import partial
from typing import Any

import numpy as np

import lsmcmc as ls
from lsmcmc.experiments import mixture, table2_plots
from lsmcmc.experiments import mixture_chains as chains
from lsmcmc.experiments.figure2 import readings, settings
from lsmcmc.experiments.mixture_chains import SETTINGS, Setting, Size
from lsmcmc.experiments.mixture_steps import Search, searches
from lsmcmc.experiments.parts import Arrays, Parts
from lsmcmc.experiments.result import Result, interval_of_mean
from lsmcmc.experiments.table2_claims import COMMON, PRINTED, STOPS, Cell, Law, Scale, claims
from lsmcmc.progress import Progress

NAME = "table2"
TITLE = "Table 2: the 2-Wasserstein distance to a Metropolis reference"
QUICK = (
    f"{chains.SHORT.chains} chains instead of {chains.FULL.chains}, subsamples of {chains.SHORT.points:,} points "
    f"instead of {chains.FULL.points:,} and no transport of 10 K points, the grid search as in figure2, the small step "
    f"and the literal reading at 1E5 alone, the law of x_K up to K = {chains.SHORT.counts[-1]:,} over "
    f"{chains.SHORT.batches} batches of chains instead of K = {chains.FULL.counts[-1]:,} over {chains.FULL.batches}"
)

LARGE_PAIRS = 4  # of references of 10 K


def run(*, quick: bool, seed: int, parts: Parts = Parts(), size: Size | None = None) -> Result:
    """Every setting; at another `size` than the two, `quick` is only what the result says."""
    size = size or (chains.SHORT if quick else chains.FULL)
    steps = searches(size, seed, parts, NAME)
    scale = _scale(size, seed, parts)
    cells = _cells(steps, size, seed, parts)
    laws = _laws(steps, size, seed, parts)
    return Result(
        NAME,
        TITLE,
        settings(steps, size, quick=quick, seed=seed) | {"eta for all, law of x_K": COMMON},
        claims(cells, laws, steps, scale),
        {
            "distances": [_row(cell, scale) for cell in cells],
            "law": [row for law in laws for row in law.rows(scale)],
            "grid": [row for search in steps.values() for row in search.rows()],
            "scale": scale.rows(),
        },
        {
            "distances": table2_plots.distances(cells, scale),
            "law": table2_plots.laws(laws, scale),
            "grid": table2_plots.grid(steps),
        },
        [*readings(steps, size), *_remarks(size, scale)],
        f"Of a printed number: the middle 95 % of {size.chains} independent chains, into which one chain such as the "
        f"paper's falls, each by {size.points:,} evenly spaced of its last 10 K iterates and as many draws of the "
        "reference; the measured number is their mean. Of a row of them: all pilot chains. Of a comparison: the ratio "
        "of geometric means with its 95 % interval by Student's t, paired by chain (the samplers share start, batches "
        f"and noise). Of the law of x_K: over {size.batches} independent batches of {size.batch_chains:,} chains, "
        "paired by batch.",
    )


def _remarks(size: Size, scale: "Scale") -> list[str]:
    once = (
        f"With 10 K points, as the paper's, the floor is {scale.large.mean():.3g} over {len(scale.large)} pairs; the "
        "column 'once' is the paper's procedure, one chain, 10 K against 10 K."
        if size.large
        else "The paper's own transport, 10 K points against 10 K, is made by --full alone."
    )
    return [
        f"The floor, W₂ of two independent references of {size.points:,} points, is {scale.floor.mean():.3g} over "
        f"{len(scale.floor)} pairs: a perfect sampler scores that. {once}",
        f"A chain that is all in the larger mode scores {scale.larger.mean():.3g}, in the smaller mode "
        f"{scale.smaller.mean():.3g}; one in one mode against a reference in the other {scale.opposite.mean():.3g}. "
        "The printed numbers are of two kinds, six below 0.7 and three above 5. Against a correct reference the small "
        "ones need chains that change modes often, the large ones chains that hardly move, and both are printed in one "
        "row. A chain and a reference that are each in one mode, now the same and now not, would give both kinds; "
        "whether that happened cannot be known.",
        "A chain counts as in one mode if less than 1 % of its last 10 K iterates lie on one side of x + y = 0.",
        "The law of x_K, which the theorems bound, is that of many chains at one time and not of one chain over time. "
        "Its distance to the target once it has settled is the discretisation error, minibatch noise included. It is "
        f"given at each sampler's best step and at one step for all, η = {COMMON:g}, where this error stands out of "
        "the floor. From the start at 0, between the modes, it settles within some dozen steps. How soon a chain "
        "changes modes is the autocorrelation time of the mode, mode_tau; for trapped chains it means nothing.",
        "No correction for the number of claims: of forty comparisons without a difference, one would be called "
        "reproduced by chance.",
    ]


# Measuring


def _scale(size: Size, seed: int, parts: Parts) -> Scale:
    """What distances are to be compared with."""

    def make() -> Arrays:
        pairs = chains.blocks(size.points, seed)[: 2 * size.floors].reshape(size.floors, 2, size.points, 2)
        law, found = mixture.quadrature("density", seed), mixture.reference("density", seed)
        points = found.points()
        low, high = (points[side][: size.floors * size.points] for side in (_below(points), ~_below(points)))
        one = [np.resize(half, (size.floors, size.points, 2)) for half in (low, high)]
        return {
            "floor": chains.floor(size.points, size.floors, seed),
            "smaller": np.array([ls.diagnostics.wasserstein2(a, b) for a, b in zip(one[0], pairs[:, 1], strict=True)]),
            "larger": np.array([ls.diagnostics.wasserstein2(a, b) for a, b in zip(one[1], pairs[:, 1], strict=True)]),
            "opposite": np.array([ls.diagnostics.wasserstein2(a, b) for a, b in zip(*one, strict=True)]),
            "share": mixture.share(found.draws),
            "exact_share": np.array(law.share),
            "law_floor": chains.floor(size.batch_chains, 20, seed),
            "pilot_floor": chains.floor(size.pilot_points, 20, seed),
        }

    made = parts.get("scale", make)
    if not size.large:
        return Scale(**made, large=np.zeros(0))
    large = parts.get("scale-large", lambda: {"w2": chains.floor(chains.WINDOW, LARGE_PAIRS, seed)})
    return Scale(**made, large=large["w2"])


def _below(points: Any) -> Any:
    return points.sum(1) < 0


def _cells(steps: dict[str, Search], size: Size, seed: int, parts: Parts) -> list[Cell]:
    wanted = [(setting, sampler) for setting in SETTINGS for sampler in mixture.SAMPLERS]

    def part(setting: Setting, sampler: str) -> Arrays:
        eta = setting.eta(steps[sampler].best)
        return parts.get(f"{setting.name}-{sampler}", partial(_measure, setting, sampler, eta, size, seed))

    found = chains.in_threads([partial(part, *which) for which in wanted], NAME)
    once = _once(wanted, found, size, seed, parts)
    return [
        Cell(
            setting,
            sampler,
            setting.eta(steps[sampler].best),
            stop,
            **{name: arrays[name][i] for name in ("distance", "one_mode", "share", "tau")},
            points=size.points,
            once=once.get((setting, sampler, stop), np.nan),
        )
        for (setting, sampler), arrays in zip(wanted, found, strict=True)
        for i, stop in enumerate(_stops(setting, size))
    ]


def _measure(setting: Setting, sampler: str, eta: float, size: Size, seed: int) -> Arrays:
    walk = chains.walk(setting.reading, sampler, eta, size.chains, setting.stops(size), seed)
    windows = walk["windows"][: len(_stops(setting, size))]
    return {
        "distance": np.stack([chains.distances(window, size.points, seed) for window in windows]),
        "one_mode": chains.in_one_mode(windows),
        "share": mixture.share(windows),
        "tau": np.stack([_tau(window) for window in windows]),
        "first": walk["first"][: len(windows)],
    }


def _tau(window: Any) -> Any:
    """Autocorrelation time of the mode, of each chain, in iterates."""
    mode = (window.sum(-1) < 0)[..., np.newaxis].astype(np.float64)
    return chains.WINDOW // chains.HELD * ls.diagnostics.autocorrelation_time(mode, per_chain=True)[:, 0]


def _stops(setting: Setting, size: Size) -> tuple[int, ...]:
    return tuple(stop for stop in setting.stops(size) if stop in STOPS)


def _once(wanted: Any, found: list[Arrays], size: Size, seed: int, parts: Parts) -> dict[Any, float]:
    """The paper's procedure: the last 10 K iterates of one chain against one reference of 10 K. One at a time: 5 GB."""
    if not size.large:
        return {}
    reference = chains.blocks(chains.WINDOW, seed)[-1]
    made = {}
    total = sum(len(arrays["first"]) for arrays in found)
    with Progress(total, label=f"{NAME}, 10 K points") as bar:
        for (setting, sampler), arrays in zip(wanted, found, strict=True):
            for stop, first in zip(_stops(setting, size), arrays["first"], strict=True):
                transport = partial(_transport, first, reference)
                part = parts.get(f"once-{setting.name}-{sampler}-{stop}", transport)
                made[setting, sampler, stop] = float(part["w2"])
                bar.advance(1)
    return made


def _transport(points: Any, reference: Any) -> Arrays:
    return {"w2": np.array(ls.diagnostics.wasserstein2(points, reference))}


def _laws(steps: dict[str, Search], size: Size, seed: int, parts: Parts) -> list[Law]:
    wanted = [(sampler, eta) for sampler in mixture.SAMPLERS for eta in (steps[sampler].best, COMMON)]
    wanted = list(dict.fromkeys(wanted))
    tasks = [
        partial(parts.get, f"law-{sampler}-{eta}-{batch}", partial(_law, sampler, eta, size, batch, seed))
        for sampler, eta in wanted
        for batch in range(size.batches)
    ]
    found = iter(chains.in_threads(tasks, f"{NAME}, law of x_K"))
    laws = []
    for sampler, eta in wanted:
        batches = [next(found) for _ in range(size.batches)]
        arrays = {name: np.stack([batch[name] for batch in batches], axis=1) for name in batches[0]}
        laws.append(Law(sampler, eta, eta == steps[sampler].best, size.counts, **arrays))
    return laws


def _law(sampler: str, eta: float, size: Size, batch: int, seed: int) -> Arrays:
    points = chains.law(sampler, eta, size, batch, seed)
    reference = chains.blocks(size.batch_chains, seed)
    own = reference[batch % len(reference)]
    return {
        "distance": np.array([ls.diagnostics.wasserstein2(x, own) for x in points]),
        "share": mixture.share(points),
    }


# Writing


def _row(cell: Cell, scale: Scale) -> dict[str, Any]:
    mean, low, high = interval_of_mean(cell.distance)
    least, most = cell.range()
    printed = PRINTED.get(cell.sampler, {}).get(cell.stop)
    row = {"setting": cell.setting.label, "sampler": cell.sampler, "eta": cell.eta, "iterates": cell.stop}
    row |= {"printed": printed, "once": cell.once, "w2": mean, "w2_low": low, "w2_high": high}
    row |= {"one_chain_low": least, "one_chain_high": most, "floor": scale.floor.mean()}
    return row | {
        "chains_in_one_mode": cell.one_mode.mean(),
        "smaller_half": cell.share.mean(),
        "mode_tau": cell.tau.mean(),
    }
