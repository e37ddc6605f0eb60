"""Rows of a LIBSVM text file, found by an index of every 256th line."""

import mmap
from pathlib import Path

import numpy as np
from jax import ShapeDtypeStruct
from jaxtyping import PyTree
from numpy.typing import NDArray

from lsmcmc.data._files import file_identity
from lsmcmc.data._libsvm import check_features, check_rows, parse_rows
from lsmcmc.streams import Source

_EVERY = 256  # lines
_BLOCK = 2**24  # bytes
_NEWLINE = 10


class Lines(Source):
    """Rows `label index:value …` as (X, y) in float32: X dense with `num_features` columns, y the labels.

    The file is read through once to find its lines, up to the last that is needed.
    """

    def __init__(self, path: Path, num_features: int, most: int):
        self._path, self._num_features, self.name = path, num_features, path.name
        with path.open("rb") as file:
            self._mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self._starts, self.num_rows = _index(path, most)
        self.like = ShapeDtypeStruct((num_features,), np.float32), ShapeDtypeStruct((), np.float32)

    def read(self, rows: NDArray[np.int64]) -> PyTree:
        """The lines are split out of the 256 around each, and those alone are parsed."""
        lines: list[bytes] = []
        for part in np.unique(rows // _EVERY):
            here = self._mapped[self._starts[part] : self._starts[part + 1]].split(b"\n")
            lines += [here[row - part * _EVERY].rstrip(b"\r") for row in rows[rows // _EVERY == part]]
        numbers = (rows + 1).tolist()
        check_rows(lines, self.name, numbers)
        check_features(lines, self._num_features, self.name, numbers)
        with np.errstate(over="ignore"):
            X, y = parse_rows(lines, self._num_features)
        if np.isinf(X).any() or np.isinf(y).any():
            row = int(rows[np.flatnonzero(np.isinf(X).any(1) | np.isinf(y))[0]])
            raise ValueError(f"{self.name}, row {row + 1} has a number beyond float32. Rescale it.")
        return X, y

    def where(self, leaf: int, row: int, entry: tuple[int, ...]) -> str:
        """The line, counted from 1 as editors do."""
        return f"{self.name}, row {row + 1}" + (f", feature {entry[0] + 1}" if leaf == 0 else ", label")

    def identity(self) -> dict[str, str | int]:
        """Size and time of the file."""
        return file_identity(self._path)


def _index(path: Path, most: int) -> tuple[NDArray[np.int64], int]:
    """Where every 256th line starts, and the end; and how many lines there are, up to `most`."""
    starts, num_lines, seen = [np.zeros(1, np.int64)], 0, 0
    block = b""
    with path.open("rb") as file:
        while num_lines < most and (block := file.read(_BLOCK)):
            ends = np.flatnonzero(np.frombuffer(block, np.uint8) == _NEWLINE)
            numbers = num_lines + 1 + np.arange(len(ends))  # of the lines that start after them
            starts.append(seen + ends[numbers % _EVERY == 0] + 1)
            num_lines, seen, last = num_lines + len(ends), seen + len(block), block
    unfinished = seen > 0 and not last.endswith(b"\n") and num_lines < most
    return np.concatenate([*starts, [seen]]), min(most, num_lines + unfinished)
