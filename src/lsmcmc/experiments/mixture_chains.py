"""Chains on the mixture of §4.1.2 for Figure 2 and Table 2: long ones, the law of x_K, and how far each is off."""

import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeVar

import jax
import numpy as np
from numpy.typing import NDArray

import lsmcmc as ls
from lsmcmc.experiments import mixture
from lsmcmc.experiments.parts import Arrays
from lsmcmc.progress import Progress

STOPS = (100_000, 500_000, 900_000, 1_000_000)  # numbers of iterates in Table 2 and Figure 2
WINDOW = 10_000  # the last iterates before a stop
TRAIL = 50  # every so many iterates of all are held
HELD = 2_000  # of a window
SMALL = 0.001  # a step at which chains are trapped
IN_ONE_MODE = 0.01  # a window with less than this share on one side

_PIECE = 50_000  # steps between two looks at whether to stop
_Outcome = TypeVar("_Outcome")
_stopping = threading.Event()  # an interrupt or an error ended `in_threads`


@dataclass(frozen=True)
class Size:
    """How many chains, and how many of their points are transported."""

    chains: int
    points: int  # of a chain, against as many of the reference
    pilots: int  # chains of each step in the grid search
    pilot_steps: int
    pilot_points: int
    all_stops: bool  # for the second step and the literal reading too
    batches: int  # of chains, for the law of x_K
    batch_chains: int
    counts: tuple[int, ...]  # the K of x_K
    large: bool  # transport 10 K points as the paper did

    @property
    def floors(self) -> int:
        """Pairs of independent references."""
        return min(20, mixture.WALKERS * mixture.KEPT // self.points // 2)


FULL = Size(32, 2_000, 24, 100_000, 1_000, True, 20, 1_000, (10, 30, 100, 300, 1_000, 3_000), True)
SHORT = Size(20, 1_000, 12, 20_000, 500, False, 10, 1_000, (10, 30, 100, 300), False)


@dataclass(frozen=True)
class Setting:
    """A reading of the paper's gradient, and a step: that of the grid search for each sampler, or one for all."""

    reading: str
    small: bool

    @property
    def label(self) -> str:
        """As claims and tables say it."""
        step = f"η = {SMALL}" if self.small else "best step"
        return step if self.reading == "density" else f"{self.reading}, {step}"

    @property
    def name(self) -> str:
        """Of files."""
        return f"{self.reading.split()[0]}-{'small' if self.small else 'best'}"

    def stops(self, size: Size) -> tuple[int, ...]:
        """How long its chains are."""
        return STOPS if size.all_stops or self == BEST else STOPS[:1]

    def eta(self, best: float) -> float:
        """The step, where `best` is that of the grid search."""
        return SMALL if self.small else best


BEST = Setting("density", False)
SETTINGS = (BEST, Setting("density", True), Setting("printed gradient", False))


def key(seed: int, *parts: int) -> Any:
    """Of one use: chains of another use are independent of these."""
    made = jax.random.key(seed, impl="threefry2x32")
    for part in parts:
        made = jax.random.fold_in(made, part)
    return made


def advance(reading: str, sampler: str, eta: float, seed: int, start: dict[str, Any], gap: int, thin: int) -> ls.Run:
    """`gap` steps on, every `thin`-th iterate held; subsets of 10 rows without replacement, as in Algorithm 1."""
    if _stopping.is_set():
        raise CancelledError
    return ls.sample(
        mixture.SAMPLERS[sampler](eta),
        mixture.posterior(reading, seed),
        **start,
        num_draws=gap // thin,
        thin=thin,
        gradient=ls.Minibatch(mixture.BATCH, "subset"),
        progress=False,
    )


def at_zero(chains: int, seed: Any) -> dict[str, Any]:
    """The start of Algorithm 1."""
    return {"init": np.zeros((chains, 2), np.float32), "seed": seed}


@lru_cache(maxsize=16)
def walk(reading: str, sampler: str, eta: float, chains: int, stops: tuple[int, ...], seed: int) -> Arrays:
    """Chains of the last of `stops` iterates, the same for every sampler in start, batches and noise.

    `trail` is every 50th iterate of all, (chain, draw, 2); `windows` every 5th of the last 10 K before each stop,
    (stop, chain, draw, 2); `first` those 10 K of the first chain.
    """
    start, done = at_zero(chains, key(seed, 1)), 0
    trail, windows, first = [], [], []
    for stop in stops:
        for gap, thin in (*_pieces(stop - WINDOW - done), (WINDOW, 1)):
            run = advance(reading, sampler, eta, seed, start, gap, thin)
            start = {"state": run.state}
            trail.append(run.draws[:, TRAIL // thin - 1 :: TRAIL // thin])
        windows.append(run.draws[:, WINDOW // HELD - 1 :: WINDOW // HELD].copy())
        first.append(run.draws[0].copy())
        done = stop
    return {"trail": np.concatenate(trail, axis=1), "windows": np.stack(windows), "first": np.stack(first)}


def _pieces(gap: int) -> list[tuple[int, int]]:
    return [(min(_PIECE, gap - done), TRAIL) for done in range(0, gap, _PIECE)]


def law(sampler: str, eta: float, size: Size, batch: int, seed: int) -> NDArray[np.float32]:
    """x_K of a batch of chains of the density, (K, chain, 2)."""
    start, done, found = at_zero(size.batch_chains, key(seed, 2, batch)), 0, []
    for count in size.counts:
        run = advance("density", sampler, eta, seed, start, count - done, count - done)
        start, done = {"state": run.state}, count
        found.append(run.draws[:, 0])
    return np.stack(found)


def blocks(n: int, seed: int) -> NDArray[np.float32]:
    """Independent references of the density, (block, n, 2)."""
    points = mixture.reference("density", seed).points()
    return points[: len(points) // n * n].reshape(-1, n, 2)


def distances(clouds: Any, n: int, seed: int) -> NDArray[np.float64]:
    """W₂ of n evenly spaced points of each cloud (cloud, point, 2), each against a reference of its own."""
    references = blocks(n, seed)
    each = [cloud[:: len(cloud) // n][:n] for cloud in clouds]
    return np.array(
        [ls.diagnostics.wasserstein2(x, references[i % len(references)]) for i, x in enumerate(each)], np.float64
    )


@lru_cache(maxsize=8)
def floor(n: int, pairs: int, seed: int) -> NDArray[np.float64]:
    """W₂ of pairs of independent references: what a perfect sampler would score."""
    references = blocks(n, seed)
    return np.array([ls.diagnostics.wasserstein2(a, b) for a, b in references[: 2 * pairs].reshape(pairs, 2, n, 2)])


def in_one_mode(clouds: Any) -> NDArray[np.bool_]:
    """Of each cloud (…, point, 2), whether nearly all of it is on one side of x + y = 0."""
    share = mixture.share(clouds)
    return (share < IN_ONE_MODE) | (share > 1 - IN_ONE_MODE)


def short(stop: int) -> str:
    """A number of iterates as the paper writes it.

    >>> short(500_000)
    '5E5'
    """
    return f"{stop:.0E}".replace("E+0", "E")


def in_threads(tasks: Sequence[Callable[[], _Outcome]], label: str) -> list[_Outcome]:
    """All of them, a few at a time: one keeps little more than one core busy."""
    with Progress(len(tasks), label=label) as bar, ThreadPoolExecutor(min(4, os.cpu_count() or 1)) as pool:
        running = [pool.submit(task) for task in tasks]
        found = []
        try:
            for future in running:
                found.append(future.result())
                bar.advance(1)
        except BaseException:
            _stopping.set()  # those that run end soon, the others do not begin
            raise
        finally:
            pool.shutdown(cancel_futures=True)
            _stopping.clear()
    return found
