"""Columns of a table as NumPy arrays: which ones, in which structure, and what cannot be numbers."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jaxtyping import PyTree
from numpy.typing import NDArray


def _is_matrix(node: Any) -> bool:
    """A list of columns is one array with an axis for them; tuples and dicts are structure."""
    return isinstance(node, list)


@dataclass(frozen=True)
class Columns:
    """A pytree of column names, in which a list of names stands for a matrix."""

    tree: PyTree

    @classmethod
    def of(cls, tree: PyTree, names: Sequence[str]) -> "Columns":
        """All columns by their names, unless some are asked for."""
        asked = cls({name: name for name in names} if tree is None else tree)
        for leaf in asked.leaves:
            if not leaf or not all(isinstance(name, str) for name in (leaf if _is_matrix(leaf) else [leaf])):
                raise TypeError(
                    f"columns must be a pytree of names in which a list of names is a matrix, such as "
                    f"columns=(['x1', 'x2'], 'y'), got {leaf!r} in it."
                )
        return asked

    @property
    def leaves(self) -> list[Any]:
        """A name or a list of names for each array."""
        return jax.tree.leaves(self.tree, is_leaf=_is_matrix)

    @property
    def names(self) -> list[str]:
        """All of them, each once."""
        return list(dict.fromkeys(name for leaf in self.leaves for name in (leaf if _is_matrix(leaf) else [leaf])))

    def check(self, part: Any) -> None:
        """A file has them all."""
        missing = [name for name in self.names if name not in part.names]
        if missing:
            raise ValueError(
                f"{part.path.name} has no column {missing[0]!r}. It has {', '.join(map(repr, part.names))}."
            )

    def where(self, leaf: int, entry: tuple[int, ...]) -> str:
        """The column of a number, and its place in it."""
        name = self.leaves[leaf]
        if _is_matrix(name):
            name, entry = name[entry[0]], entry[1:]
        return f"column {name!r}" + (f", entry {list(entry)}" if entry else "")

    def arrays(self, table: Any, file: str, first: int) -> PyTree:
        """The arrays of a row group whose first row in its file is `first`."""
        found = {name: _array(table.column(name), file, first, name) for name in self.names}

        def one(leaf: Any) -> NDArray[Any]:
            return np.stack([found[name] for name in leaf], axis=1) if _is_matrix(leaf) else found[leaf]

        return jax.tree.map(one, self.tree, is_leaf=_is_matrix)


def _array(column: Any, file: str, first: int, name: str) -> NDArray[Any]:
    """A column's numbers, with more axes where its values are lists."""
    import pyarrow as pa
    import pyarrow.compute as pc

    column = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if column.null_count:
        row = first + int(np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False))[0])
        raise ValueError(
            f"{file} {row}, column {name!r} has no value (null). Fill it, or drop the row: pyarrow's table.drop_null()."
        )
    kind = column.type
    if pa.types.is_dictionary(kind):
        column, kind = column.dictionary_decode(), kind.value_type
    if isinstance(kind, pa.FixedShapeTensorType):
        return column.to_numpy_ndarray()
    if any(is_list(kind) for is_list in (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)):
        return _matrix(column, file, first, name)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return _parsed(column, file, first, name)
    if pa.types.is_decimal(kind):
        column = pc.cast(column, pa.float64())
    elif not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)):
        raise ValueError(
            f"{file} {first}, column {name!r} is {kind}, not numbers. Leave it out of columns=, or cast it."
        )
    return column.to_numpy(zero_copy_only=False)


def _matrix(column: Any, file: str, first: int, name: str) -> NDArray[Any]:
    """Lists of one length as rows."""
    import pyarrow.compute as pc

    lengths = pc.list_value_length(column).to_numpy(zero_copy_only=False)
    ragged = np.flatnonzero(lengths != lengths[0])
    if len(ragged):
        raise ValueError(
            f"{file} {first + int(ragged[0])}, column {name!r} has {lengths[ragged[0]]} entries and row {first} has "
            f"{lengths[0]}. Pad them to one length, and mask them in log_likelihood."
        )
    values = _array(column.flatten(), file, first, name)
    return values.reshape(len(lengths), -1, *values.shape[1:])


def _parsed(column: Any, file: str, first: int, name: str) -> NDArray[Any]:
    """Text that is numbers."""
    import pyarrow as pa
    import pyarrow.compute as pc

    try:
        return pc.cast(column, pa.float64()).to_numpy(zero_copy_only=False)
    except pa.ArrowInvalid:
        row, text = next((i, text) for i, text in enumerate(column.to_pylist()) if not _is_number(text))
        raise ValueError(
            f"{file} {first + row}, column {name!r} is {text!r}, which is not a number. Code it by numbers, or leave "
            f"the column out of columns=."
        ) from None


def _is_number(text: str) -> bool:
    import pyarrow as pa
    import pyarrow.compute as pc

    try:
        pc.cast(pa.scalar(text), pa.float64())
    except pa.ArrowInvalid:
        return False
    return True
