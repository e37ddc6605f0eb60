"""A run in the making: room for its draws, and what each compiled call of the loop leaves behind."""

import os
from typing import Any

import jax
import numpy as np
from jaxtyping import PyTree

from lsmcmc.keeping import Keep, Sums, Totals
from lsmcmc.lowrank import Spread
from lsmcmc.run import Run


class Recording:
    """What the calls made so far, which `run` gives out at any time. `like` has the shapes that are stored of a draw.

    What takes time comes first and is changed last, so that an interrupt finds a whole call or none of it.
    """

    def __init__(self, target: Any, keep: Keep, like: PyTree, num_chains: int, num_draws: int, thin: int, state: Any):
        self.target, self.keep, self.num_chains, self.thin = target, keep, num_chains, thin
        self.room = _room(like, num_chains, num_draws)
        self.step_sizes = np.zeros(num_draws if keep.fn is not None else 1)
        self.statistics: dict[str, Any] = {}
        self.state = state
        self.totals: Totals | None = None
        self.spread = Spread(keep.rank) if keep.rank else None
        self.num_draws = self.num_steps = 0
        self.seconds = self.compile_seconds = 0.0

    def take(
        self, drawn: PyTree, step_sizes: Any, state: Any, num_steps: int, seconds: float, full: Sums | None
    ) -> None:
        """The filled slots of one call, where it led, and its moments if their block is `full`."""
        end = self.num_draws + len(step_sizes)

        def put(held: Any, slots: Any) -> None:
            held[:, self.num_draws : end] = np.moveaxis(np.asarray(slots)[: len(step_sizes)], 0, 1)

        if self.keep.fn is None:
            self.step_sizes[: len(step_sizes)] = step_sizes[-1:]
        else:
            self.step_sizes[self.num_draws : end] = step_sizes
            draws, statistics = drawn
            jax.tree.map(put, self.room, draws)
            for name, slots in statistics.items():
                shape = self.num_chains, len(self.step_sizes)
                put(self.statistics.setdefault(name, np.empty(shape, slots.dtype)), slots)
        totals = self._and(full)
        self.totals, self.state, self.num_draws = totals, state, end
        self.num_steps += num_steps
        self.seconds += seconds

    def hold(self, state: Any) -> None:
        """The draw at which a call ended, if it is one of those that the covariance is made of."""
        if self.spread is not None:
            self.spread.take(self.num_draws, state.sampler.position)

    def run(self, sums: Sums | None) -> Run:
        """The run so far; `sums` are the moments of the block that is not full."""
        totals = self._and(sums)
        draws: Any
        statistics: dict[str, Any]
        if self.keep.moments is not None:
            num_draws, draws, statistics = 0 if totals is None else int(totals.count.min()), None, {}
        elif self.keep.fn is None:  # the last alone
            num_draws, statistics = min(self.num_draws, 1), {}
            draws = jax.tree.map(lambda x: np.asarray(x)[:, np.newaxis][:, :num_draws], self.state.sampler.position)
        else:
            num_draws = self.num_draws
            draws, statistics = jax.tree.map(lambda held: held[:, :num_draws], (self.room, self.statistics))
        return Run(
            target=self.target,
            draws=draws,
            step_sizes=None if draws is None else self.step_sizes[:num_draws],
            statistics=statistics,
            state=self.state,
            num_chains=self.num_chains,
            num_draws=num_draws,
            thin=self.thin,
            num_steps=self.num_steps,
            seconds=self.seconds,
            compile_seconds=self.compile_seconds,
            _keep=self.keep,
            _totals=totals,
            _spread=self.spread,
        )

    def _and(self, sums: Sums | None) -> Totals | None:
        """The moments with a block more. One that a call interrupted at the wrong moment had taken is lost."""
        if sums is None or any(leaf.is_deleted() for leaf in jax.tree.leaves(sums)) or not sums.count.any():
            return self.totals
        block = Totals.of(sums)
        return block if self.totals is None else self.totals.merge(block)


def _room(like: PyTree, num_chains: int, num_draws: int) -> PyTree:
    """Empty arrays for the draws of a run, if the machine has the memory."""
    needed = num_chains * num_draws * sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(like))
    available = _physical_memory()
    if available and needed > available:
        raise ValueError(
            f"{num_chains} chains of {num_draws} draws need {needed / 1e9:.1f} GB and this machine has "
            f"{available / 1e9:.1f} GB. Write a larger thin, keep=function_of_the_position, or keep='moments'."
        )
    return jax.tree.map(lambda leaf: np.empty((num_chains, num_draws, *leaf.shape), leaf.dtype), like)


def _physical_memory() -> int:
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError, AttributeError):  # not offered by this system
        return 0
