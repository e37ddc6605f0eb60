"""Where the draws of a run on disk are: chunks in files, and the last one in memory too, until it is full."""

import dataclasses
import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jaxtyping import PyTree
from numpy.typing import NDArray

from lsmcmc.recording import refuse_beyond_memory
from lsmcmc.runs import zarrays
from lsmcmc.runs.checkpoint import Torn
from lsmcmc.runs.zarrays import Column

_MOST_DRAWS = 8192  # in a chunk
_MOST_BYTES = 2**22


class Store:
    """Room for draws (`recording.Room`) in the folder `path`, in chunks of `each` draws.

    `put` is in memory alone, so it cannot fail half-way; `write` brings what is there to the disk, and lets go of the
    chunks that are full but for the last one, the tail, which checkpoints hold too. Draws too large for that fill a
    chunk each, and there is no tail. `build` makes (draws, statistics) of the arrays of all columns but the step sizes.
    """

    def __init__(
        self,
        path: Path,
        columns: list[Column],
        chains: int,
        each: int | None,
        build: Callable[[Any], Any],
        layout: Any,
    ):
        self.path, self.columns, self.chains, self.build, self.layout = path, columns, chains, build, layout
        self.each = chunk_length(columns) if each is None else each
        self.chunks: dict[int, list[NDArray[Any]]] = {}

    @property
    def waiting_bytes(self) -> int:
        """Of chunks in memory, the tail aside."""
        return sum(
            array.nbytes for chunk in list(self.chunks.values())[: -1 if self.has_tail else None] for array in chunk
        )

    def described(self) -> dict[str, Any]:
        """What another process needs to read it."""
        columns = [dataclasses.asdict(column) for column in self.columns]
        return {"columns": columns, "each": self.each, "layout": self.layout}

    def put(self, first: int, draws: PyTree, statistics: dict[str, Any], step_sizes: Any) -> None:
        """The filled slots of one call, (slot, chain, …), into their chunks."""
        slots = [np.asarray(leaf)[: len(step_sizes)] for leaf in jax.tree.leaves((draws, statistics))]
        along = [*(np.moveaxis(leaf, 0, 1) for leaf in slots), np.asarray(step_sizes)]
        done, end = first, first + len(step_sizes)
        while done < end:
            number, start = divmod(done, self.each)
            count = min(self.each - start, end - done)
            for column, held, new in zip(self.columns, self._chunk(number), along, strict=True):
                taken = new[column.along(slice(done - first, done - first + count))]
                held[column.along(slice(start, start + count))] = taken
            done += count

    def _chunk(self, number: int) -> list[NDArray[Any]]:
        if number not in self.chunks:
            self.chunks[number] = [column.empty(self.each) for column in self.columns]
        return self.chunks[number]

    def write(self, num_draws: int) -> None:
        """Every chunk in memory that has draws below `num_draws`."""
        for number in sorted(self.chunks):
            if number * self.each < num_draws:
                for column, chunk in zip(self.columns, self.chunks[number], strict=True):
                    column.write(self.path, number, chunk)
                zarrays.write_coordinate(self.path, number, self.each)
        first = self._first_in_memory(num_draws)
        self.chunks = {number: chunk for number, chunk in self.chunks.items() if number >= first}

    def show(self, num_draws: int, durable: bool = False) -> None:
        """That many to those who read the store."""
        zarrays.show(self.path, self.columns, self.chains, num_draws, self.each, durable)

    def tail(self, num_draws: int) -> list[NDArray[Any]]:
        """The draws of the last chunk, for a checkpoint."""
        if not num_draws or not self.has_tail:
            return []
        filled = slice(num_draws - self._last(num_draws) * self.each)
        held = self.chunks[self._last(num_draws)]
        return [array[column.along(filled)] for column, array in zip(self.columns, held, strict=True)]

    def hold(self, num_draws: int, tail: list[Any]) -> None:
        """The draws of the last chunk, from a checkpoint."""
        self.chunks = {}
        if num_draws and tail:
            filled = slice(num_draws - self._last(num_draws) * self.each)
            for column, held, array in zip(self.columns, self._chunk(self._last(num_draws)), tail, strict=True):
                held[column.along(filled)] = array

    @property
    def has_tail(self) -> bool:
        """Whether checkpoints hold the last chunk."""
        return self.each > 1

    def _first_in_memory(self, num_draws: int) -> int:
        return self._last(num_draws) if self.has_tail else num_draws

    def _last(self, num_draws: int) -> int:
        return max(0, num_draws - 1) // self.each

    def torn_tail(self, num_draws: int) -> list[str]:
        """What is wrong with the last chunk's files, which the checkpoint makes good."""
        found = []
        for column in self.columns if num_draws and self.has_tail else []:
            try:
                column.read(self.path, self._last(num_draws), self.each)
            except Torn as torn:
                found.append(str(torn))
        return found

    def lost(self, num_draws: int) -> tuple[str, str] | None:
        """The first chunk that is not as it should be and that the checkpoint does not hold, and what was in it.

        Lengths are looked at, which is quick, and where there is no tail the last one is read.
        """
        for number in range(self._first_in_memory(num_draws)):
            for column in self.columns:
                torn = column.torn(self.path, number, self.each, whole=not self.has_tail and number == num_draws - 1)
                if torn is not None:
                    return torn, f"draws {number * self.each} to {(number + 1) * self.each - 1}"
        return None

    def kept(self, num_draws: int) -> "Stored":
        """The first `num_draws`, read when asked for."""
        return Stored(self, num_draws)

    def read(self, column: Column, held: Callable[[int], Any], num_draws: int) -> NDArray[Any]:
        """One column, chunk by chunk; `held` has those that are in memory."""
        out = column.empty(num_draws)
        for number in range(self._last(num_draws) + 1 if num_draws else 0):
            start, count = number * self.each, min(self.each, num_draws - number * self.each)
            chunk = held(number)
            if chunk is None:
                chunk = self._from_disk(column, number)
            out[column.along(slice(start, start + count))] = chunk[column.along(slice(count))]
        return out

    def _from_disk(self, column: Column, number: int) -> Any:
        try:
            return column.read(self.path, number, self.each)
        except Torn as torn:
            raise ValueError(
                f"{torn}. These are draws {number * self.each} to {(number + 1) * self.each - 1} of {column.name}; "
                f"the others are whole: xarray.open_zarr({str(self.path / column.group)!r}) reads them."
            ) from torn


class Stored:
    """The first draws of a store, as a run has them: read when first asked for, and then in memory."""

    def __init__(self, store: Store, num_draws: int):
        self._store, self._num_draws = store, num_draws
        self._in_memory = dict(store.chunks)
        self.path = str(store.path / zarrays.DRAWS)

    @functools.cached_property
    def draws(self) -> PyTree:
        """All draws; refused where the machine has not the memory."""
        return self._read(zarrays.DRAWS)[0]

    @functools.cached_property
    def statistics(self) -> dict[str, Any]:
        """What the sampler says about them."""
        return self._read(zarrays.STATISTICS)[1]

    @functools.cached_property
    def step_sizes(self) -> NDArray[np.float64]:
        """Of the steps that made them."""
        return self._column(len(self._store.columns) - 1)

    def _read(self, group: str) -> Any:
        columns = self._store.columns[:-1]
        wanted = [i for i, column in enumerate(columns) if column.group == group]
        size = sum(columns[i].empty(1).nbytes for i in wanted) * self._num_draws
        refuse_beyond_memory(size, f"{self._store.chains} chains of {self._num_draws} draws")
        return self._store.build([self._column(i) if i in wanted else None for i in range(len(columns))])

    def _column(self, i: int) -> NDArray[Any]:
        def held(number: int) -> Any:
            return self._in_memory[number][i] if number in self._in_memory else None

        return self._store.read(self._store.columns[i], held, self._num_draws)


def chunk_length(columns: list[Column]) -> int:
    """How many draws a chunk has: a few megabytes of all columns together, or one draw."""
    bytes_of_a_draw = sum(column.empty(1).nbytes for column in columns)
    return int(min(_MOST_DRAWS, max(1, _MOST_BYTES // bytes_of_a_draw)))
