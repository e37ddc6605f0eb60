"""A run in the making: room for its draws, and what each compiled call of the loop leaves behind.

The room is memory here; `runs` has one on disk.
"""

from typing import Any, Protocol, runtime_checkable

import jax
import numpy as np
from jaxtyping import PyTree

from lsmcmc import _memory, _trees
from lsmcmc.keeping import Keep, Sums, Totals
from lsmcmc.lowrank import Spread
from lsmcmc.run import NOTHING, Kept, Run


@runtime_checkable
class Room(Protocol):
    """Where draws go."""

    def put(self, first: int, draws: PyTree, statistics: dict[str, Any], step_sizes: Any) -> None:
        """The filled slots of one call, draw `first` and after; the same ones may be put again."""

    def kept(self, num_draws: int) -> Any:
        """The first `num_draws` of them, as `draws`, `statistics` and `step_sizes`."""


class Memory:
    """Room for all draws of a run, if the machine has it. `like` has the shapes that are stored of one draw."""

    def __init__(self, like: PyTree, num_chains: int, num_draws: int):
        size = num_chains * num_draws * _trees.num_bytes(like)
        refuse_beyond_memory(size, f"{num_chains} chains of {num_draws} draws")
        self.draws = jax.tree.map(lambda leaf: np.empty((num_chains, num_draws, *leaf.shape), leaf.dtype), like)
        self.step_sizes = np.zeros(num_draws)
        self.statistics: dict[str, Any] = {}
        self.shape = num_chains, num_draws

    def put(self, first: int, draws: PyTree, statistics: dict[str, Any], step_sizes: Any) -> None:
        """Into their places."""
        end = first + len(step_sizes)

        def into(held: Any, slots: Any) -> None:
            held[:, first:end] = np.moveaxis(np.asarray(slots)[: len(step_sizes)], 0, 1)

        self.step_sizes[first:end] = step_sizes
        jax.tree.map(into, self.draws, draws)
        for name, slots in statistics.items():
            into(self.statistics.setdefault(name, np.empty(self.shape, slots.dtype)), slots)

    def kept(self, num_draws: int) -> Kept:
        """Views of them."""
        draws, statistics = jax.tree.map(lambda held: held[:, :num_draws], (self.draws, self.statistics))
        return Kept(draws, statistics, self.step_sizes[:num_draws])


class Recording:
    """What the calls made so far, which `run` gives out at any time. `room` is for draws, None where none are stored.

    What takes time comes first and is changed last, so that an interrupt finds a whole call or none of it.
    """

    def __init__(self, target: Any, keep: Keep, room: Room | None, num_chains: int, thin: int, state: Any):
        self.target, self.keep, self.num_chains, self.thin = target, keep, num_chains, thin
        self.room, self.state = room, state
        self.totals: Totals | None = None
        self.spread = Spread(keep.rank) if keep.rank else None
        self.num_draws = self.num_steps = 0
        self.step_size = 0.0  # of the last draw
        self.seconds = self.compile_seconds = 0.0

    def take(
        self, drawn: PyTree, step_sizes: Any, state: Any, num_steps: int, seconds: float, full: Sums | None
    ) -> None:
        """The filled slots of one call, where it led, and its moments if their block is `full`."""
        end = self.num_draws + len(step_sizes)
        if self.room is not None:
            draws, statistics = drawn
            self.room.put(self.num_draws, draws, statistics, step_sizes)
        if len(step_sizes):
            self.step_size = float(step_sizes[-1])
        totals = self._and(full)
        self.totals, self.state, self.num_draws = totals, state, end
        self.num_steps += num_steps
        self.seconds += seconds

    def hold(self, number: int, state: Any) -> None:
        """Draw `number`, at which a call ended, if it is one of those that the covariance is made of."""
        if self.spread is not None:
            self.spread.take(number, state.sampler.position)

    def run(self, sums: Sums | None) -> Run:
        """The run so far; `sums` are the moments of the block that is not full."""
        totals = self._and(sums)
        num_draws, kept = self._kept(totals)
        return Run(
            target=self.target,
            state=self.state,
            num_chains=self.num_chains,
            num_draws=num_draws,
            thin=self.thin,
            num_steps=self.num_steps,
            seconds=self.seconds,
            compile_seconds=self.compile_seconds,
            _keep=self.keep,
            _kept=kept,
            _totals=totals,
            _spread=self.spread,
        )

    def _kept(self, totals: Totals | None) -> tuple[int, Any]:
        """How many draws there are, and those that are stored."""
        if self.room is not None:
            return self.num_draws, self.room.kept(self.num_draws)
        if self.keep.moments is not None:
            return 0 if totals is None else int(totals.count.min()), NOTHING
        number = min(self.num_draws, 1)  # the last alone
        draws = jax.tree.map(lambda x: np.asarray(x)[:, np.newaxis][:, :number], self.state.sampler.position)
        return number, Kept(draws, {}, np.full(number, self.step_size))

    def _and(self, sums: Sums | None) -> Totals | None:
        """The moments with a block more. One that a call interrupted at the wrong moment had taken is lost."""
        if sums is None or any(_is_deleted(leaf) for leaf in jax.tree.leaves(sums)) or not sums.count.any():
            return self.totals
        block = Totals.of(sums)
        return block if self.totals is None else self.totals.merge(block)


def _is_deleted(leaf: Any) -> bool:
    return isinstance(leaf, jax.Array) and leaf.is_deleted()


def refuse_beyond_memory(needed: int, what: str) -> None:
    """Before the machine runs out of it."""
    available = _memory.physical()
    if available and needed > available:
        raise ValueError(
            f"{what} need {needed / 1e9:.1f} GB and this machine has {available / 1e9:.1f} GB. Write a larger thin, "
            f"keep=function_of_the_position, or keep='moments'; with path= draws go to disk, and xarray.open_zarr"
            f"(run.store) reads a part of them."
        )
