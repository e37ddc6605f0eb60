"""Rows of Parquet and Arrow files, decoded a row group at a time and kept while there is room."""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Lock
from typing import Any

import jax
import numpy as np
from jaxtyping import PyTree
from numpy.typing import NDArray

from lsmcmc import _trees
from lsmcmc.data._columns import Columns
from lsmcmc.data._files import file_identity
from lsmcmc.streams import Source


class Tables(Source):
    """The columns of one or more files, one after the other; each file is a list of row groups (record batches)."""

    def __init__(self, paths: Sequence[Path], kind: str, columns: PyTree, most: int):
        self._paths = list(paths)
        self.name = ", ".join(path.name for path in self._paths)
        self._parts = [_PARTS[kind](path) for path in self._paths]
        self._columns = Columns.of(columns, self._parts[0].names)
        for part in self._parts:
            self._columns.check(part)
        groups = [(p, g, rows) for p, part in enumerate(self._parts) for g, rows in enumerate(part.lengths) if rows]
        self._groups = [(p, g) for p, g, _ in groups]
        self._starts = np.cumsum([0, *(rows for _, _, rows in groups)])
        self.num_rows = min(most, int(self._starts[-1]))
        self._held: OrderedDict[int, PyTree] = OrderedDict()
        self._lock = Lock()
        self._memory = 0
        if not self.num_rows:
            raise ValueError(f"{self.name} has no rows.")
        self.like = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), self._group(0))

    def limit(self, num_rows: int, memory: int) -> None:
        """Groups are kept decoded in that much memory."""
        self.num_rows, self._memory = num_rows, memory

    def read(self, rows: NDArray[np.int64]) -> PyTree:
        """Each group that has some of them is decoded once."""
        which = np.searchsorted(self._starts, rows, side="right") - 1
        parts = []
        for group in np.unique(which):
            within = rows[which == group] - self._starts[group]
            parts.append(jax.tree.map(lambda leaf, at=within: np.take(leaf, at, axis=0), self._group(int(group))))
        return jax.tree.map(lambda *leaves: np.concatenate(leaves), *parts)

    def where(self, leaf: int, row: int, entry: tuple[int, ...]) -> str:
        """The file, its row, and the column."""
        part, _ = self._groups[int(np.searchsorted(self._starts, row, side="right")) - 1]
        return f"{self._paths[part].name}, row {row - self._first_row(part)}, {self._columns.where(leaf, entry)}"

    def identity(self) -> dict[str, str | int]:
        """Sizes and times of the files, and which columns are read."""
        merged: dict[str, str | int] = {"columns": repr(self._columns.tree)}
        for path in self._paths:
            merged |= file_identity(path)
        return merged

    def check_plan(self, estimator: Any) -> None:
        """The groups that a window touches must fit into memory, or they would be decoded for every few batches."""
        longest = int(np.diff(self._starts).max())
        num_groups, block = len(self._groups), getattr(estimator, "block", None)
        if block is not None:
            num_groups = min(num_groups, (estimator.window // block + 2) * (-(-block // longest) + 1))
        needed = num_groups * longest * _trees.num_bytes(self.like)
        if num_groups > 1 and needed > self._memory:
            raise ValueError(
                f"{self.name} has row groups of up to {longest} rows, and this plan goes to and fro between "
                f"{num_groups} of them: {needed / 1e6:.0f} MB decoded, with room for {self._memory / 1e6:.0f}. Write "
                f"ls.data.stream(…, memory={2 * needed}); or gradient=ls.Minibatch(batch_size, 'blocks', "
                f"block={longest}, window={longest}), in which a window has few groups; or write the file again with "
                f"smaller ones: pyarrow.parquet.write_table(table, path, row_group_size=1024)."
            )

    def _first_row(self, part: int) -> int:
        """Of a file, among all rows."""
        return int(self._starts[[p for p, _ in self._groups].index(part)])

    def _group(self, k: int) -> PyTree:
        """A group's arrays; the lock lets one thread decode, with all of Arrow's own."""
        with self._lock:
            if k not in self._held:
                self._held[k] = self._decode(k)
            self._held.move_to_end(k)
            while len(self._held) > 1 and sum(map(_num_bytes, self._held.values())) > self._memory:
                self._held.popitem(last=False)
            return self._held[k]

    def _decode(self, k: int) -> PyTree:
        part, group = self._groups[k]
        table = self._parts[part].read(group, self._columns.names)
        used = table.slice(0, max(1, self.num_rows - int(self._starts[k])))
        first = int(self._starts[k]) - self._first_row(part)
        return self._columns.arrays(used, f"{self._paths[part].name}, row", first)


def _num_bytes(tree: PyTree) -> int:
    return sum(leaf.nbytes for leaf in jax.tree.leaves(tree))


class _Parquet:
    """One Parquet file."""

    def __init__(self, path: Path):
        import pyarrow.parquet

        self.path = path
        self._file = pyarrow.parquet.ParquetFile(path, memory_map=True)
        self.names = list(self._file.schema_arrow.names)
        metadata = self._file.metadata
        self.lengths = [metadata.row_group(g).num_rows for g in range(metadata.num_row_groups)]

    def read(self, group: int, names: Sequence[str]) -> Any:
        """A table of those columns."""
        return self._file.read_row_group(group, columns=list(names))


class _Arrow:
    """One Arrow (Feather) file."""

    def __init__(self, path: Path):
        import pyarrow.ipc

        self.path = path
        self._mapped = pyarrow.memory_map(str(path))
        one = pyarrow.ipc.IpcReadOptions(included_fields=[0])  # a compressed column is decompressed to learn its length
        counting = pyarrow.ipc.open_file(self._mapped, options=one)
        self.lengths = [counting.get_batch(g).num_rows for g in range(counting.num_record_batches)]
        self.names = list(pyarrow.ipc.open_file(self._mapped).schema.names)

    def read(self, group: int, names: Sequence[str]) -> Any:
        """A table of those columns."""
        import pyarrow

        fields = pyarrow.ipc.IpcReadOptions(included_fields=sorted({self.names.index(name) for name in names}))
        batch = pyarrow.ipc.open_file(self._mapped, options=fields).get_batch(group)
        return pyarrow.Table.from_batches([batch])


_PARTS: dict[str, Callable[[Path], Any]] = {"parquet": _Parquet, "arrow": _Arrow}
