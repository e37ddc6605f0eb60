"""Rows of anything with a length and an index: the random-access sources of Grain, or a class of one's own."""

from typing import Any

import jax
import numpy as np
from jax.tree_util import keystr
from jaxtyping import PyTree
from numpy.typing import NDArray

from lsmcmc.streams import Source


class Records(Source):
    """`source[i]` is row i, a pytree of numbers and arrays, the same shapes for every i."""

    def __init__(self, source: Any):
        self._source, self.num_rows = source, len(source)
        self.name = type(source).__name__
        if not self.num_rows:
            raise ValueError(f"{self.name} has no rows.")
        first = source[0]
        self._paths = [keystr(path) for path, _ in jax.tree_util.tree_leaves_with_path(first)]
        self._structure: Any = jax.tree.structure(first)
        arrays = [self._array(0, path, leaf) for path, leaf in zip(self._paths, jax.tree.leaves(first), strict=True)]
        if not arrays:
            raise ValueError(f"{self.name}, row 0 is {first!r}; a row is a number, an array, or a pytree of them.")
        self.like = jax.tree.unflatten(self._structure, [jax.ShapeDtypeStruct(a.shape, a.dtype) for a in arrays])
        self._shapes = [array.shape for array in arrays]

    def read(self, rows: NDArray[np.int64]) -> PyTree:
        """One after the other."""
        columns = zip(*(self._row(int(row)) for row in rows), strict=True)
        return jax.tree.unflatten(self._structure, [np.stack(column) for column in columns])

    def where(self, leaf: int, row: int, entry: tuple[int, ...]) -> str:
        """The source, the row, and the place in it."""
        return f"{self.name}, row {row}{self._paths[leaf]}" + (f", entry {list(entry)}" if entry else "")

    def identity(self) -> dict[str, str | int]:
        """What it calls itself; it has no file that could be asked."""
        return {"source": self.name, "records": len(self._source)}

    def _row(self, row: int) -> list[NDArray[Any]]:
        record = self._source[row]
        if jax.tree.structure(record) != self._structure:
            raise ValueError(
                f"{self.name}, row {row} is {jax.tree.structure(record)} and row 0 is {self._structure}. All rows need "
                f"the same structure; a filter leaves holes (None) and belongs before, in a source of its own."
            )
        arrays = [self._array(row, path, leaf) for path, leaf in zip(self._paths, jax.tree.leaves(record), strict=True)]
        for path, array, shape in zip(self._paths, arrays, self._shapes, strict=True):
            if array.shape != shape:
                raise ValueError(
                    f"{self.name}, row {row}{path} has shape {array.shape} and row 0 has {shape}. Pad them to one "
                    f"shape, and mask them in log_likelihood."
                )
        return arrays

    def _array(self, row: int, path: str, leaf: Any) -> NDArray[Any]:
        array = np.asarray(leaf)
        if array.dtype.kind not in "fiub":
            raise ValueError(
                f"{self.name}, row {row}{path} is {leaf!r}, which is not a number. Map it to numbers, or leave it out "
                f"of the record."
            )
        return array
