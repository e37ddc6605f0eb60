"""The grid search for the step of Figure 2 and Table 2, by the distance to the reference and nothing else."""

from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lsmcmc.experiments import mixture
from lsmcmc.experiments import mixture_chains as chains
from lsmcmc.experiments.mixture_chains import SMALL, Size
from lsmcmc.experiments.parts import Arrays, Parts
from lsmcmc.experiments.result import interval_of_mean

GRID = (SMALL, 0.01, 0.03, 0.1, 0.2, 0.4, 0.7, 1.0, 1.4)


@dataclass(frozen=True)
class Search:
    """One sampler: the distance of every pilot chain at every step, (step, chain), and whether it was in one mode."""

    sampler: str
    distance: NDArray[np.float64]
    one_mode: NDArray[np.bool_]

    @property
    def best(self) -> float:
        """The step with the smallest mean distance."""
        return GRID[int(self.distance.mean(1).argmin())]

    def rows(self) -> list[dict[str, Any]]:
        """For the table."""
        rows = []
        for eta, distance, one_mode in zip(GRID, self.distance, self.one_mode, strict=True):
            mean, low, high = interval_of_mean(distance)
            row = {"sampler": self.sampler, "eta": eta, "w2": mean, "w2_low": low, "w2_high": high}
            rows.append(row | {"chains_in_one_mode": one_mode.mean(), "best": "best" if eta == self.best else ""})
        return rows


def searches(size: Size, seed: int, parts: Parts, label: str) -> dict[str, Search]:
    """Of all samplers, each with pilot chains that are used for nothing else."""
    chains.blocks(size.pilot_points, seed)  # once, before the threads want it
    tasks = [
        partial(parts.get, f"grid-{sampler}-{eta}", partial(_pilots, sampler, eta, size, seed))
        for sampler in mixture.SAMPLERS
        for eta in GRID
    ]
    found = iter(chains.in_threads(tasks, f"{label}, grid search"))
    made = {}
    for sampler in mixture.SAMPLERS:
        arrays = [next(found) for _ in GRID]
        made[sampler] = Search(sampler, *(np.stack([a[name] for a in arrays]) for name in ("distance", "one_mode")))
    return made


@lru_cache(maxsize=64)
def _pilots(sampler: str, eta: float, size: Size, seed: int) -> Arrays:
    """The last 10 K iterates of the pilot chains at one step."""
    start = chains.at_zero(size.pilots, chains.key(seed, 0))
    before = chains.advance("density", sampler, eta, seed, start, size.pilot_steps - chains.WINDOW, chains.WINDOW)
    thin = chains.WINDOW // chains.HELD
    window = chains.advance("density", sampler, eta, seed, {"state": before.state}, chains.WINDOW, thin).draws
    return {
        "distance": chains.distances(window, size.pilot_points, seed),
        "one_mode": chains.in_one_mode(window),
    }
