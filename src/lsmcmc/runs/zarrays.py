"""Arrays of a Zarr store, version 3, in the layout of ArviZ: their description, and their chunks as whole files.

Chunks are written here and not by the Zarr library, so that each is on the disk before a checkpoint counts on it, and
read here, so that a torn one is named and nothing that a store asks for is ever run. xarray and Zarr read them all.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import keystr
from jaxtyping import PyTree

from lsmcmc.runs import files
from lsmcmc.runs.checkpoint import Torn

GROUPS = DRAWS, STATISTICS = "posterior", "sample_stats"
STEP_SIZE = "step_size"
_TAKEN = {"chain", "draw", "zarr.json", ""}
_CHECKSUM = 4  # bytes


@dataclass(frozen=True)
class Column:
    """One array of a store, axes (chain, draw, …); without chains, axes (draw, …)."""

    group: str
    name: str
    dtype: str  # of the draws; the store has it in a dtype that Zarr knows, which holds the same numbers
    shape: tuple[int, ...]  # of one draw
    chains: int | None

    @property
    def stored(self) -> Any:
        """The dtype on disk."""
        dtype = jnp.dtype(self.dtype)
        if dtype.kind in "biufc" and dtype.isbuiltin == 1:
            return dtype.newbyteorder("<")
        return np.dtype("<f4" if jnp.issubdtype(dtype, jnp.floating) else "<i4")

    def empty(self, draws: int) -> Any:
        """Room for that many."""
        return np.zeros((*self._leading(draws), *self.shape), jnp.dtype(self.dtype))

    def along(self, draws: slice) -> tuple[slice, ...]:
        """The index of those draws."""
        return (draws,) if self.chains is None else (slice(None), draws)

    def file(self, store: Path, number: int) -> Path:
        """Where a chunk is."""
        places = (*self._leading(number, chains=0), *[0] * len(self.shape))
        return store.joinpath(self.group, self.name, "c", *map(str, places))

    def write(self, store: Path, number: int, chunk: Any) -> None:
        """One chunk, whole."""
        path = self.file(store, number)
        path.parent.mkdir(parents=True, exist_ok=True)
        content = np.ascontiguousarray(chunk, self.stored).reshape(-1).view(np.uint8)
        files.write(path, content, files.checksum(content))

    def read(self, store: Path, number: int, draws: int) -> Any:
        """A chunk of that many draws, or `Torn`."""
        why = self.torn(store, number, draws)
        if why is not None:
            raise Torn(why)
        content = memoryview(self.file(store, number).read_bytes())
        if files.checksum(content[:-_CHECKSUM]) != content[-_CHECKSUM:]:
            raise Torn(f"{self.file(store, number)} is torn: its checksum is not that of its bytes")
        numbers = np.frombuffer(content[:-_CHECKSUM], self.stored)
        return numbers.reshape(*self._leading(draws), *self.shape).astype(jnp.dtype(self.dtype))

    def torn(self, store: Path, number: int, draws: int, whole: bool = False) -> str | None:
        """What is wrong with a chunk: with its length, which is quickly looked at, or with the `whole` of it."""
        if whole:
            try:
                self.read(store, number, draws)
            except Torn as torn:
                return str(torn)
        path = self.file(store, number)
        expected = int(np.prod((*self._leading(draws), *self.shape), dtype=np.int64)) * self.stored.itemsize + _CHECKSUM
        if not path.exists():
            return f"{path} is missing"
        found = path.stat().st_size
        return None if found == expected else f"{path} is torn: it has {found} bytes of {expected}"

    def described(self, total: int, each: int) -> dict[str, Any]:
        """Its zarr.json, of `total` draws in chunks of `each`."""
        names = [f"{self.name}_dim_{i}" for i in range(len(self.shape))]
        shape, chunks = ((*self._leading(n), *self.shape) for n in (total, each))
        return _array(shape, chunks, self.stored, [*self._leading("draw", chains="chain"), *names])

    def _leading(self, draws: Any, chains: Any = None) -> tuple[Any, ...]:
        if self.chains is None:
            return (draws,)
        return (self.chains if chains is None else chains, draws)


def _array(shape: Iterable[int], chunks: Iterable[int], dtype: Any, dimensions: list[str]) -> dict[str, Any]:
    of_bytes = {"name": "bytes", **({"configuration": {"endian": "little"}} if dtype.itemsize > 1 else {})}
    nothing: Any = {"f": "NaN", "b": False, "c": ["NaN", "NaN"]}.get(dtype.kind, 0)
    return {
        "zarr_format": 3,
        "node_type": "array",
        "shape": list(shape),
        "data_type": dtype.name,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": list(chunks)}},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
        "fill_value": nothing,
        "codecs": [of_bytes, {"name": "crc32c"}],
        "attributes": {},
        "dimension_names": dimensions,
        "storage_transformers": [],
    }


def columns(draws: PyTree, statistics: PyTree, chains: int) -> list[Column]:
    """One for each leaf, and the step sizes; the trees have the shapes and dtypes of one draw of one chain."""
    made: list[Column] = []
    for group, tree in ((DRAWS, draws), (STATISTICS, statistics)):
        used = _TAKEN | ({STEP_SIZE} if group == STATISTICS else set())
        for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
            name = _free(keystr(path, simple=True, separator=".") or "x", used)
            used = used | {name}
            made.append(Column(group, name, jnp.dtype(leaf.dtype).name, tuple(leaf.shape), chains))
    return [*made, Column(STATISTICS, STEP_SIZE, "float64", (), None)]


def _free(name: str, used: set[str]) -> str:
    """A name that a folder can have and nothing else has."""
    name = "".join("_" if letter in '/\\:*?"<>|\0' else letter for letter in name)[:200]
    name = f"_{name}" if name.startswith((".", "__")) else name
    while name in used:
        name += "_"
    return name


def prepare(store: Path, chains: int) -> None:
    """The chains' coordinate, which does not change."""
    for group in GROUPS:
        _coordinate(store / group / "chain", 0, np.arange(chains))


def write_coordinate(store: Path, number: int, each: int) -> None:
    """A chunk of the draws' coordinate."""
    for group in GROUPS:
        _coordinate(store / group / "draw", number, np.arange(number * each, (number + 1) * each))


def _coordinate(array: Path, number: int, values: Any) -> None:
    path, content = array / "c" / str(number), values.astype("<i8").view(np.uint8)
    if not path.exists() or path.stat().st_size != content.size + _CHECKSUM:
        path.parent.mkdir(parents=True, exist_ok=True)
        files.write(path, content, files.checksum(content))


def show(store: Path, made: list[Column], chains: int, total: int, each: int, durable: bool) -> None:
    """`total` draws to readers: the description of each group, in one file, changes at once for all of its arrays."""
    arrays = {f"{column.group}/{column.name}": column.described(total, each) for column in made}
    for group in GROUPS:
        arrays[f"{group}/chain"] = _array([chains], [chains], np.dtype("<i8"), ["chain"])
        arrays[f"{group}/draw"] = _array([total], [each], np.dtype("<i8"), ["draw"])
    for name, array in arrays.items():
        _write_json(store / name, array, durable)
    for group in GROUPS:
        within = {name.partition("/")[2]: array for name, array in arrays.items() if name.startswith(f"{group}/")}
        _write_json(store / group, _group(within), durable)
    groups = {group: _group({}) for group in GROUPS}
    _write_json(store, _group({**groups, **dict(sorted(arrays.items()))}), durable)  # Zarr needs a group together


def _group(within: dict[str, Any]) -> dict[str, Any]:
    inline = {"kind": "inline", "must_understand": False, "metadata": within}
    return {"zarr_format": 3, "node_type": "group", "attributes": {}, "consolidated_metadata": inline}


def _write_json(node: Path, described: dict[str, Any], durable: bool) -> None:
    node.mkdir(parents=True, exist_ok=True)
    files.write(node / "zarr.json", json.dumps(described, indent=1).encode(), durable=durable)
