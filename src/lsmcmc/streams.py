"""Data beyond memory: rows read on the host when they are needed, checked, and handed to compiled code as data."""

import hashlib
import math
import os
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, PyTree
from numpy.typing import NDArray

from lsmcmc import _checks, _trees

_MEMORY = 2**28  # bytes
_PIECE_BYTES = 2**21  # read by one thread at a time
NOT_READ = -1
_ALIGNED = 64  # bytes
_SAMPLED = 64  # rows in a fingerprint


class Source:
    """Rows that lie somewhere, numbered from 0. `read` is called from several threads."""

    name: str  # in messages
    num_rows: int
    like: PyTree  # shapes and dtypes of one row, as they lie there

    def read(self, rows: NDArray[np.int64]) -> PyTree:
        """Those rows, along a leading axis. They come sorted, and may come repeatedly."""
        raise NotImplementedError

    def where(self, leaf: int, row: int, entry: tuple[int, ...]) -> str:
        """The file and the row, for a message about a number of the `leaf`-th array."""
        raise NotImplementedError

    def identity(self) -> dict[str, str | int]:
        """What tells this source from another without reading it: sizes and times of files."""
        raise NotImplementedError

    def check_plan(self, estimator: Any) -> None:
        """Refuse an order of rows in which this source would be read over and over."""

    def limit(self, num_rows: int, memory: int) -> None:
        """That many rows are used, and so many bytes may be held."""
        del memory
        self.num_rows = num_rows


class Stream:
    """Data that stay where they are: give it to `ls.Posterior(data=)`. Made by `ls.data.stream`.

    `like` has the shapes and dtypes of one row, `num_examples` is N. A row is checked when it is read: NaN, and
    numbers that its dtype cannot hold, are errors that name the file and the row.
    """

    def __init__(self, source: Source, num_examples: int, dtype: Any = None, memory: int = _MEMORY, threads: int = 0):
        self.source, self.num_examples, self.memory = source, num_examples, memory
        self.threads = threads or min(4, os.cpu_count() or 1)
        source.limit(num_examples, memory // 2)
        self.like = _rows_like(source.like, dtype)

    def read(self, rows: Any) -> PyTree:
        """Those rows in NumPy, of any shape and order."""
        numbers = np.asarray(rows, np.int64)
        if numbers.size and not (numbers.min() >= 0 and numbers.max() < self.num_examples):
            raise IndexError(f"rows are 0 … {self.num_examples - 1}, got {numbers.min()} … {numbers.max()}.")
        return self.gather(numbers)

    def gather(self, rows: NDArray[np.int64], pool: Executor | None = None) -> PyTree:
        """Those rows, by the threads of a pool, in the order in which they lie; zeros for those `NOT_READ`."""
        flat = rows.ravel()
        out = jax.tree.map(lambda leaf: _zeros((len(flat), *leaf.shape), leaf.dtype), self.like)
        most = max(1, _PIECE_BYTES // max(1, _trees.num_bytes(self.like)))
        order = np.argsort(flat, kind="stable")[np.count_nonzero(flat == NOT_READ) :]
        pieces = [order[start : start + most] for start in range(0, len(order), most)]
        for _ in (map if pool is None else pool.map)(lambda places: self._fill(out, flat, places), pieces):
            pass  # an error is raised here
        return jax.tree.map(lambda leaf: leaf.reshape(*rows.shape, *leaf.shape[1:]), out)

    def take(self, rows: Any) -> PyTree:
        """The batch of those rows, outside compiled code."""
        if any(_checks.is_traced(leaf) for leaf in jax.tree.leaves(rows)):
            raise _checks.ContractError(
                "streamed data are read on the host, so rows of them cannot be taken inside jit, vmap or grad. Call "
                "estimator.oracle(posterior, key, position) outside, and step with that."
            )
        return jax.device_put(self.read(rows))

    def chunks(self, size: int) -> Iterator[PyTree]:
        """All rows in order, `size` at a time, the next ones read while these are used."""

        def rows(start: int) -> NDArray[np.int64]:
            return np.arange(start, min(start + size, self.num_examples), dtype=np.int64)

        with ThreadPoolExecutor(1) as pool:
            ahead = pool.submit(self.read, rows(0))
            for start in range(size, self.num_examples + size, size):
                ready, ahead = ahead.result(), pool.submit(self.read, rows(start))  # none after the last
                yield ready

    def fingerprint(self) -> dict[str, str | int]:
        """What tells these data from others without reading all: sizes, times, and a hash of rows spread over them."""
        rows = np.unique(np.linspace(0, self.num_examples - 1, _SAMPLED).astype(np.int64))
        digest = hashlib.sha256()
        for leaf in jax.tree.leaves(self.read(rows)):
            digest.update(np.ascontiguousarray(leaf).tobytes())
        return {
            **self.source.identity(),
            "rows": self.num_examples,
            "a row": str(jax.tree.map(lambda leaf: f"{leaf.dtype}{list(leaf.shape)}", self.like)),
            f"sha256 of {len(rows)} rows": digest.hexdigest(),
        }

    def _fill(self, out: PyTree, rows: NDArray[np.int64], places: NDArray[np.int64]) -> None:
        found = self.source.read(rows[places])
        for i, (into, values) in enumerate(zip(jax.tree.leaves(out), jax.tree.leaves(found), strict=True)):
            into[places] = self._cast(i, values, into.dtype, rows[places])

    def _cast(self, leaf: int, values: NDArray[Any], dtype: Any, rows: NDArray[np.int64]) -> NDArray[Any]:
        """In the dtype that was promised, if every number is one and survives."""
        if values.dtype.kind == "f" and np.isnan(values.min(initial=0)):  # min keeps a NaN, and needs no memory
            self._refuse(
                leaf, rows, values, np.isnan(values), "is not a number. Fill it, and mask it in log_likelihood"
            )
        if values.dtype == dtype:
            return values
        with np.errstate(over="ignore", invalid="ignore"):
            cast = values.astype(dtype)
            lost = cast != values if dtype.kind in "iub" else np.isinf(cast) & ~np.isinf(values)
        if lost.any():
            self._refuse(leaf, rows, values, lost, f"cannot be held in {dtype}. Write another dtype=")
        return cast

    def _refuse(self, leaf: int, rows: NDArray[np.int64], values: Any, bad: Any, why: str) -> None:
        at = tuple(int(i) for i in np.argwhere(bad)[0])
        raise ValueError(f"{self.source.where(leaf, int(rows[at[0]]), at[1:])}: {values[at]!s} {why}.")

    def __repr__(self) -> str:
        return f"Stream({self.num_examples} rows of {jax.tree.map(lambda x: f'{x.dtype}{list(x.shape)}', self.like)})"


def _zeros(shape: tuple[int, ...], dtype: Any) -> NDArray[Any]:
    """Where JAX wants arrays to begin, so that on a CPU it takes them as they are."""
    num_bytes = math.prod(shape) * dtype.itemsize
    room = np.zeros(num_bytes + _ALIGNED, np.uint8)
    start = -room.ctypes.data % _ALIGNED
    return room[start : start + num_bytes].view(dtype).reshape(shape)


def _rows_like(found: PyTree, dtype: Any) -> PyTree:
    """Shapes and dtypes of a row as it will be given out: JAX's own dtypes, or those of the prefix `dtype`."""

    def one(wanted: Any, leaf: Any) -> Any:
        made = np.dtype(jax.dtypes.canonicalize_dtype(leaf.dtype if wanted is None else wanted))
        if made.kind not in "fiub" and not jnp.issubdtype(made, jnp.floating):
            raise TypeError(f"dtype must be of real numbers, got {made}.")
        return jax.ShapeDtypeStruct(leaf.shape, made)

    def below(wanted: Any, part: PyTree) -> PyTree:
        return jax.tree.map(lambda leaf: one(wanted, leaf), part)

    return _checks.map_prefix("dtype", below, dtype, found, is_leaf=lambda x: x is None, what="data")


class Handed(eqx.Module):
    """Rows of a stream that were read for compiled code: the batches of some steps, or one of them.

    As a posterior's `data` it answers for whichever rows are asked for, since it was made for them.
    """

    batches: PyTree
    first: Int[Array, ""]
    num_examples: int = eqx.field(static=True)

    def at(self, step: Int[Array, ""]) -> PyTree:
        """The batches of one step: of every chain, or the one that they share."""
        return jax.tree.map(lambda leaf: leaf[step - self.first], self.batches)

    def of(self, target: Any, batch: PyTree) -> Any:
        """The target with one batch in place of its data."""
        return eqx.tree_at(lambda t: t.data, target, Handed(batch, self.first, self.num_examples))

    def take(self, rows: Any) -> PyTree:
        """The batch."""
        del rows  # it has them
        return self.batches


def without_data(target: Any) -> Any:
    """The target's functions alone, so that what is compiled for them does not hold on to a stream."""
    return eqx.tree_at(lambda t: t.data, target, None)


def over_chunks(fn: Callable[..., Array], target: Any, arguments: PyTree) -> Iterator[NDArray[Any]]:
    """`fn(target, arguments, chunk)` for each chunk of a streamed target, compiled."""
    if any(_checks.is_traced(leaf) for leaf in jax.tree.leaves(arguments)):
        raise refusal("the traced log density")
    functions = without_data(target)
    for chunk in target.data.chunks(target.chunk_size):
        yield np.asarray(_apply(fn, functions, arguments, jax.device_put(chunk)))


@eqx.filter_jit
def _apply(fn: Any, target: Any, arguments: PyTree, chunk: PyTree) -> Array:
    return fn(target, arguments, chunk)


def refusal(what: str) -> _checks.ContractError:
    """For whatever needs all rows inside compiled code."""
    return _checks.ContractError(
        f"the data are streamed, read on the host a batch at a time, and {what} needs all of them in compiled code. "
        f"Write a sampler and an estimator that read minibatches alone, such as ls.sgld(1e-4) with "
        f"gradient=ls.Minibatch(100, 'blocks'), or hold the data in memory: data=stream.read(range(N))."
    )
