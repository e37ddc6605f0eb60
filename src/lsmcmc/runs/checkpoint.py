"""Checkpoints: the state of a run in one file with a checksum, the last two of them kept.

    magic line | length of the header | header, JSON | arrays, their bytes in order | CRC-32C of all before

The header has what is small, and of each part its structure (`structure`) and the shapes of its arrays. Nothing in it
is ever run.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from lsmcmc.runs import files, structure

_MAGIC = b"lsmcmc checkpoint 1\n"
_LENGTH, _CHECKSUM = 8, 4  # bytes
_KEPT = 2


class Torn(ValueError):
    """A file that is not what was written."""


@dataclass(frozen=True)
class Part:
    """One of the pytrees in a checkpoint: its structure, and its leaves as `to_host` made them."""

    tree: Any
    leaves: list[tuple[str, Any]]

    def decoded(self, on_device: bool = False) -> PyTree:
        """As a tree of NumPy arrays, or of JAX's."""
        return structure.decode(self.tree, self.arrays(on_device))

    def arrays(self, on_device: bool = False) -> list[Any]:
        """Its leaves in order."""
        return [structure.from_host(*leaf) if on_device else leaf[1] for leaf in self.leaves]


@dataclass(frozen=True)
class Content:
    """What one file holds."""

    small: dict[str, Any]
    parts: dict[str, Part]


def names(folder: Path) -> list[Path]:
    """The checkpoints there are, oldest first."""
    return sorted(folder.glob("*.checkpoint"))


def write(folder: Path, small: dict[str, Any], parts: dict[str, PyTree]) -> None:
    """One more, and the oldest away when it is on the disk."""
    before = names(folder)
    number = int(before[-1].stem) + 1 if before else 1
    write_one(folder / f"{number:09d}.checkpoint", small, parts)
    for old in names(folder)[:-_KEPT]:
        old.unlink()


def write_one(path: Path, small: dict[str, Any], parts: dict[str, PyTree]) -> None:
    """The file."""
    described, arrays = {}, []
    for name, tree in parts.items():
        shape, leaves = structure.encode(tree)
        hosts = [structure.to_host(leaf) for leaf in leaves]
        described[name] = {"tree": shape, "arrays": [_described(*host) for host in hosts]}
        arrays += [np.ascontiguousarray(numbers).reshape(-1).view(np.uint8) for _, numbers in hosts]
    header = json.dumps({**small, "parts": described}).encode()
    content = [_MAGIC, len(header).to_bytes(_LENGTH, "little"), header, *arrays]
    files.write(path, *content, files.checksum(*content))


def _described(kind: str, numbers: Any) -> dict[str, Any]:
    return {"kind": kind, "dtype": numbers.dtype.name, "shape": list(numbers.shape)}


def read(path: Path) -> Content:
    """What was written, or `Torn`."""
    content = memoryview(path.read_bytes())
    start = len(_MAGIC) + _LENGTH
    if len(content) < start + _CHECKSUM or files.checksum(content[:-_CHECKSUM]) != content[-_CHECKSUM:]:
        raise Torn(f"{path} is torn: its checksum is not that of its {len(content)} bytes.")
    if content[: len(_MAGIC)] != _MAGIC:
        raise ValueError(f"{path} is a checkpoint of another format, and nothing was read from it.")
    end = start + int.from_bytes(content[len(_MAGIC) : start], "little")
    small = json.loads(bytes(content[start:end]))
    parts = {}
    for name, part in small.pop("parts").items():
        leaves = []
        for array in part["arrays"]:
            dtype = _dtype(array["dtype"], path)
            size = int(np.prod(array["shape"], dtype=np.int64)) * dtype.itemsize
            numbers = np.frombuffer(content[end : end + size], dtype).reshape(array["shape"])
            leaves.append((array["kind"], numbers))
            end += size
        parts[name] = Part(part["tree"], leaves)
    return Content(small, parts)


def _dtype(name: str, path: Path) -> Any:
    dtype = jnp.dtype(name)
    if dtype.hasobject:
        raise ValueError(f"{path} has an array of Python objects in it, which is a pickle, and none is ever read.")
    return dtype
