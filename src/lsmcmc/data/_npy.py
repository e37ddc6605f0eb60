"""Rows of `.npy` files and of arrays that are memory-mapped already."""

from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.tree_util import keystr
from jaxtyping import PyTree
from numpy.typing import NDArray

from lsmcmc.data._files import file_identity, format_of
from lsmcmc.streams import Source


class Arrays(Source):
    """A pytree of arrays with a common leading axis: NumPy's, or paths of `.npy` files, which are memory-mapped."""

    def __init__(self, tree: PyTree):
        leaves, self._structure = jax.tree.flatten(tree)
        names = [f"data{keystr(path)}" for path, _ in jax.tree_util.tree_leaves_with_path(tree)]
        self._paths = [Path(leaf).expanduser() if isinstance(leaf, str | Path) else None for leaf in leaves]
        self._names = [path.name if path else name for path, name in zip(self._paths, names, strict=True)]
        opened = [_open(path) if path else leaf for path, leaf in zip(self._paths, leaves, strict=True)]
        self._arrays = [_checked(name, array) for name, array in zip(self._names, opened, strict=True)]
        self.name = ", ".join(self._names)
        self.num_rows = _common_length(self._names, self._arrays)
        shapes = [jax.ShapeDtypeStruct(array.shape[1:], array.dtype) for array in self._arrays]
        self.like = jax.tree.unflatten(self._structure, shapes)

    def read(self, rows: NDArray[np.int64]) -> PyTree:
        """A copy of those rows."""
        return jax.tree.unflatten(self._structure, [np.take(array, rows, axis=0) for array in self._arrays])

    def where(self, leaf: int, row: int, entry: tuple[int, ...]) -> str:
        """The file and the row."""
        return f"{self._names[leaf]}, row {row}{f', entry {list(entry)}' if entry else ''}"

    def identity(self) -> dict[str, str | int]:
        """Sizes and times of the files."""
        merged: dict[str, str | int] = {}
        for path in self._paths:
            merged |= file_identity(path) if path else {}
        return merged


def _open(path: Path) -> NDArray[Any]:
    kind = format_of(path)
    if kind != "npy":
        raise ValueError(f"a pytree of files is one of .npy files, and {path.name} is {kind}. Give its path alone.")
    try:
        return np.load(path, mmap_mode="r", allow_pickle=False)
    except ValueError as error:
        raise ValueError(
            f"{path.name} cannot be memory-mapped: {error}. Write it again with numpy.save(path, array), from an array "
            f"of numbers."
        ) from error


def _checked(name: str, array: Any) -> NDArray[Any]:
    if not isinstance(array, np.ndarray):
        raise TypeError(f"a source is a path, a pytree of paths or arrays, or an object with rows, got {array!r}.")
    if array.dtype.kind not in "fiub":
        raise TypeError(f"{name} must be an array of real numbers, got dtype {array.dtype}; write .astype(float).")
    if array.ndim == 0:
        raise ValueError(f"{name} is a single number; it needs a leading axis of examples.")
    if array.ndim > 1 and array.flags.f_contiguous and not array.flags.c_contiguous:
        raise ValueError(
            f"{name} lies column by column (Fortran order), so reading a row would touch the whole file. "
            f"Write it again with numpy.save(path, numpy.ascontiguousarray(array))."
        )
    return array


def _common_length(names: list[str], arrays: list[NDArray[Any]]) -> int:
    if not arrays:
        raise ValueError("the source has no arrays in it; write ls.data.stream(('X.npy', 'y.npy'), num_examples=N).")
    if len({len(array) for array in arrays}) > 1:
        listing = ", ".join(f"{name} has {len(array)}" for name, array in zip(names, arrays, strict=True))
        raise ValueError(f"all arrays of a source need the same number of rows: {listing}.")
    return len(arrays[0])
