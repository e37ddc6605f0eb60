"""What is sampled: a posterior over data, or any log density, under one scaling contract."""

from collections.abc import Callable, Iterator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import keystr
from jaxtyping import Array, Bool, Float, PyTree
from numpy.typing import NDArray

from lsmcmc import _checks, _trees, streams
from lsmcmc.freezing import Completed, partition
from lsmcmc.streams import Handed, Stream

_CHUNK = 2048  # rows of data in memory at once when all of them are read


class Posterior(eqx.Module):
    """The posterior of a model whose data are independent given the position.

        U(x) = −log p(x) − Σᵢ log p(dᵢ | x),   Û(x) = −log p(x) − (N/B) Σ_{i in batch} log p(dᵢ | x)

    `log_likelihood(position, batch)` returns ONE VALUE PER EXAMPLE, shape (B,), and
    `log_prior(position)` one number. `data` is a pytree of arrays with a common leading axis, whose
    length is N; a batch is the same pytree with B rows. Data that do not fit in memory are an `ls.data.stream`.
    Sums and the factor N/B are formed here, so they cannot be got wrong outside. Constants may be dropped from
    both functions.

    >>> import jax.numpy as jnp
    >>> posterior = Posterior(
    ...     log_likelihood=lambda x, batch: -0.5 * (batch - x) ** 2,
    ...     log_prior=lambda x: -0.5 * x**2,
    ...     data=jnp.array([1.0, 2.0, 3.0]),
    ... )
    >>> posterior.num_examples
    3
    >>> float(posterior.log_density(jnp.array(0.0)))
    -7.0
    """

    log_likelihood: Callable[[PyTree, PyTree], Float[Array, " B"]]
    log_prior: Callable[[PyTree], Float[Array, ""]]
    data: Any  # PyTree[Shaped[Array, " N ..."]], a Stream, or of a stream the batches Handed to compiled code
    chunk_size: int = eqx.field(static=True)
    fixed: PyTree  # the leaves of a position that `freeze` holds, None without

    def __init__(self, log_likelihood: Any, log_prior: Any, data: Any, *, chunk_size: int = _CHUNK):
        self.log_likelihood = _checks.function("log_likelihood", log_likelihood, "(position, batch)")
        self.log_prior = _checks.function("log_prior", log_prior, "(position)")
        self.data = data if isinstance(data, Stream) else _with_common_length(data)
        self.chunk_size = min(_checks.count("chunk_size", chunk_size), self.num_examples)
        self.fixed = None

    def freeze(self, position: PyTree, mask: PyTree) -> "Posterior":
        """The posterior of the leaves of `position` where `mask` is True, given the others as they are there.

        `mask` is a pytree prefix of the position. Positions of the new posterior have None at fixed leaves,
        which may be of any dtype. `ls.sample(…, trainable=mask)` is the short form.

        >>> whole = Posterior(lambda x, d: -0.5 * (d - x["a"] * x["b"]) ** 2, lambda x: -0.5 * x["a"] ** 2, jnp.ones(3))
        >>> part = whole.freeze({"a": jnp.array(1.0), "b": jnp.array(2.0)}, {"a": True, "b": False})
        >>> float(part.log_density({"a": jnp.array(0.5), "b": None}))
        -0.125
        """
        return _frozen(self, lambda p: (p.log_likelihood, p.log_prior), position, mask)

    @property
    def num_examples(self) -> int:
        """N, the number of examples in the data."""
        if isinstance(self.data, Stream | Handed):
            return self.data.num_examples
        return int(jax.tree.leaves(self.data)[0].shape[0])

    def take(self, rows: PyTree) -> PyTree:
        """The batch of those rows: a gather. Of streamed data it is read, outside compiled code."""
        if isinstance(self.data, Stream | Handed):
            return self.data.take(rows)
        return jax.tree.map(lambda leaf: leaf[rows], self.data)

    def log_density(self, position: PyTree) -> Float[Array, ""]:
        """Log p(x) + Σᵢ log p(dᵢ | x) over all data, `chunk_size` rows in memory at a time.

        Its gradient recomputes each chunk, so it holds no more than that either. Streamed data are read through,
        outside compiled code alone, and have no gradient of all.
        """
        if isinstance(self.data, Stream):
            return self._log_prior(position) + self._sum_over_data(position)
        return self._log_density(position)

    @eqx.filter_jit
    def _log_density(self, position: PyTree) -> Float[Array, ""]:
        return self._log_prior(position) + self._sum_over_data(position)

    def potential(self, position: PyTree, batch: PyTree) -> Float[Array, ""]:
        """Û(x), the unbiased estimate of U(x) from a batch."""
        of_data = self.data_potential(position, batch)  # the likelihood is asked first, and named first where it fails
        return self.prior_potential(position) + of_data

    def prior_potential(self, position: PyTree) -> Float[Array, ""]:
        """−log p(x), the part of U(x) that no estimate touches."""
        return -self._log_prior(position)

    def data_potential(self, position: PyTree, batch: PyTree = None) -> Float[Array, ""]:
        """−(N/B) Σ log p(dᵢ | x) over a batch; without one −Σᵢ log p(dᵢ | x) over all data, in chunks."""
        if batch is None:
            return -self._sum_over_data(position)
        values = self.per_example(position, batch)
        return -(self.num_examples / values.shape[0]) * values.sum()

    def pointwise_log_likelihood(self, position: PyTree) -> Float[Array, " N"]:
        """Log p(dᵢ | x) for every example, for LOO and WAIC."""
        if isinstance(self.data, Stream):
            return jnp.asarray(np.concatenate(list(self._over_chunks(position))))
        values = jax.lax.map(lambda k: self._chunk(position, k)[0], jnp.arange(self.num_chunks - 1))
        last, _ = self._chunk(position, self.num_chunks - 1)
        seen = (self.num_chunks - 1) * self.chunk_size
        return jnp.concatenate([values.reshape(-1), last[self.chunk_size - (self.num_examples - seen) :]])

    def _over_chunks(self, position: PyTree) -> Iterator[NDArray[Any]]:
        return streams.over_chunks(Posterior.per_example, self, position)

    def _sum_over_data(self, position: PyTree) -> Float[Array, ""]:
        if isinstance(self.data, Handed):
            raise streams.refusal("this method")
        if isinstance(self.data, Stream):
            sums = [chunk.sum(dtype=float).astype(chunk.dtype) for chunk in self._over_chunks(position)]
            return jnp.asarray(np.sum(sums, dtype=float).astype(sums[0].dtype))
        if self.chunk_size == self.num_examples:
            return self.per_example(position, self.data).sum()

        @jax.checkpoint
        def add(total: Array, k: Array) -> tuple[Array, None]:
            values, fresh = self._chunk(position, k)
            return total + jnp.where(fresh, values, 0).sum(), None

        zero = jnp.zeros((), jax.eval_shape(lambda: self._chunk(position, 0)[0]).dtype)
        return jax.lax.scan(add, zero, jnp.arange(self.num_chunks))[0]

    def _chunk(self, position: PyTree, k: Any) -> tuple[Float[Array, " rows"], Array]:
        """Values on the k-th chunk, and which rows no chunk before had."""
        rows, fresh = self.chunk(self.data, k)
        return self.per_example(position, rows), fresh

    def chunk(self, tree: PyTree, k: Any) -> tuple[PyTree, Bool[Array, " rows"]]:
        """The k-th chunk of arrays with a row per example, and which rows no chunk before had.

        The last one is moved back to fit.
        """
        start = jnp.minimum(k * self.chunk_size, self.num_examples - self.chunk_size)
        rows = jax.tree.map(lambda leaf: jax.lax.dynamic_slice_in_dim(leaf, start, self.chunk_size), tree)
        return rows, start + jnp.arange(self.chunk_size) >= k * self.chunk_size

    @property
    def num_chunks(self) -> int:
        """How many chunks have all rows."""
        return -(-self.num_examples // self.chunk_size)

    def per_example(self, position: PyTree, batch: PyTree) -> Float[Array, " B"]:
        """Log p(dᵢ | x) for every example of a batch."""
        size = jax.tree.leaves(batch)[0].shape[0]
        values = _call("log_likelihood", self.log_likelihood, position=position, batch=batch)
        shape = jnp.shape(values)
        if shape != (size,):
            raise _checks.ContractError(
                f"log_likelihood must return one value per example, shape ({size},) for this batch of {size}, "
                f"got {_what_shape(shape)}. {_advice(shape, size)}"
            )
        return _real("log_likelihood", values)

    def log_likelihood_gradients(self, position: PyTree, batch: PyTree) -> PyTree:
        """∇log p(dᵢ | x) for each row of a batch: the position's pytree with a leading axis of B."""

        def of_row(row: PyTree) -> PyTree:
            alone = jax.tree.map(lambda leaf: leaf[None], row)
            return jax.grad(lambda x: self.per_example(x, alone)[0])(position)

        return jax.vmap(of_row)(batch)

    def _log_prior(self, position: PyTree) -> Float[Array, ""]:
        return _scalar("log_prior", self.log_prior, position)


class Target(eqx.Module):
    """A target without data, U(x) = −log_density(x).

    With `noise_scale` s, every estimate of ∇U gets a fresh N(0, s²I) added to it, as in the
    Gaussian experiment of the paper (§4.1.1): the same error at every point asked for within a step.

    >>> import jax.numpy as jnp
    >>> target = Target(lambda x: -0.5 * jnp.sum(x**2))
    >>> float(target.log_density(jnp.ones(4)))
    -2.0
    """

    log_density_function: Callable[[PyTree], Float[Array, ""]]
    noise_scale: Float[Array, ""] | None
    fixed: PyTree

    def __init__(self, log_density: Any, noise_scale: Any = None):
        self.log_density_function = _checks.function("log_density", log_density, "(position)")
        self.noise_scale = None if noise_scale is None else _checks.hyper("noise_scale", noise_scale)
        self.fixed = None

    def freeze(self, position: PyTree, mask: PyTree) -> "Target":
        """The target of the leaves of `position` where `mask` is True, as `Posterior.freeze`."""
        return _frozen(self, lambda t: (t.log_density_function,), position, mask)

    @property
    def num_examples(self) -> int:
        """1: there is no data, and gradients are used as they are."""
        return 1

    def log_density(self, position: PyTree) -> Float[Array, ""]:
        """The log density, up to a constant."""
        return _scalar("log_density", self.log_density_function, position)

    def gradient_noise(self, key: Array, like: PyTree) -> PyTree:
        """S ξ of one step; nothing without a `noise_scale`."""
        return () if self.noise_scale is None else _trees.scale(self.noise_scale, _trees.normal_like(key, like))


def _frozen(target: Any, functions: Callable[[Any], tuple[Any, ...]], position: PyTree, mask: PyTree) -> Any:
    """`target` with its functions completed by the fixed leaves."""
    _, fixed = partition(position, mask)
    fixed = jax.tree.map(lambda leaf: jnp.array(leaf) if isinstance(leaf, np.ndarray) else leaf, fixed)
    held = fixed if target.fixed is None else eqx.combine(fixed, target.fixed)
    completed = tuple(Completed(fn, fixed) for fn in functions(target))
    return eqx.tree_at(lambda t: (*functions(t), t.fixed), target, (*completed, held), is_leaf=lambda x: x is None)


def _with_common_length(data: PyTree) -> PyTree[Array]:
    paths, structure = jax.tree_util.tree_flatten_with_path(data)
    if not paths:
        raise ValueError("data has no arrays in it; write data=(X, y), or any pytree of arrays.")
    leaves = {f"data{keystr(path)}": _data_leaf(f"data{keystr(path)}", leaf) for path, leaf in paths}
    lengths = {name: leaf.shape[0] for name, leaf in leaves.items()}
    if len(set(lengths.values())) > 1:
        listing = ", ".join(f"{name} has {length}" for name, length in lengths.items())
        raise ValueError(f"all arrays in data need the same number of rows (their leading axis): {listing}.")
    if 0 in lengths.values():
        raise ValueError("data has no rows: its leading axis has length 0.")
    return jax.tree.unflatten(structure, list(leaves.values()))


def _data_leaf(name: str, leaf: Any) -> Array:
    array = _checks.array(name, leaf)
    if array.ndim == 0:
        raise ValueError(
            f"{name} is a single number; every leaf of data needs a leading axis of examples. "
            f"Lists are read as pytrees: write numpy.asarray(rows)."
        )
    return array


def _call(name: str, fn: Callable[..., Any], **arguments: PyTree) -> Any:
    """What the user's function returns: one array, or an error that shows what it was called with."""
    try:
        value = fn(*arguments.values())
    except (TypeError, ValueError, IndexError, KeyError, AttributeError) as error:
        called = " and ".join(f"{argument} {_checks.describe(tree)}" for argument, tree in arguments.items())
        raise _checks.ContractError(
            f"{name}({', '.join(arguments)}) failed with {type(error).__name__}: {error}\n"
            f"It was called with {called}. A position is one pytree for all chains, without a chain axis."
        ) from error
    if not isinstance(value, jax.Array | np.ndarray | np.generic | float | int):
        raise _checks.ContractError(f"{name} must return an array, got {type(value).__name__}.")
    return value


def _scalar(name: str, fn: Callable[[PyTree], Any], position: PyTree) -> Float[Array, ""]:
    value = _call(name, fn, position=position)
    if jnp.shape(value) != ():
        raise _checks.ContractError(
            f"{name} must return one number, shape (), got shape {jnp.shape(value)}. Sum over the coordinates."
        )
    return _real(name, value)


def _real(name: str, value: Any) -> Array:
    array = jnp.asarray(value)
    if not jnp.issubdtype(array.dtype, jnp.floating):
        raise _checks.ContractError(f"{name} must return real floating-point numbers, got dtype {array.dtype}.")
    return array


def _what_shape(shape: tuple[int, ...]) -> str:
    return "a single number, shape ()" if shape == () else f"shape {shape}"


def _advice(shape: tuple[int, ...], size: int) -> str:
    if shape == ():
        return "Do not sum or average over the batch: the library does, with the right factor N/B."
    if shape == (size, 1):
        return "Write .squeeze(-1), or index [:, 0]."
    if shape and shape[0] == size:
        return "Sum over the axes after the first."
    return "The first axis of every batch leaf is the examples."
