"""SAGA: every row's last gradient is remembered, so a new one has only its change as noise."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PyTree

from lsmcmc import _memory, _trees
from lsmcmc.anchored import as_minibatch
from lsmcmc.glm import combined, is_glm, scores
from lsmcmc.gradients import Minibatch, OnRows
from lsmcmc.posterior import Posterior

_COPIES = 2  # of the table during a run: before and after a compiled call


class Table(eqx.Module):
    """The score of every row when it was last read, and the sum of their gradients, in float32 at least.

    The sum is kept by its changes, whose rounding would pile up. So another one is formed meanwhile, of the first
    `num_summed` rows, a batch more at every step, and takes its place when it has all.
    """

    scores: PyTree
    total: PyTree
    partial: PyTree
    num_summed: Int[Array, ""]


class SAGA(OnRows):
    """A table of every row's last gradient αᵢ (Dubey et al. 2016, Alg. 1; Defazio, Bach and Lacoste-Julien 2014).

        ∇Û(x) = −∇log p(x) − (N/B) Σ_{i in batch} (∇log p(dᵢ|x) − αᵢ) − Σⱼ αⱼ,    then αᵢ ← ∇log p(dᵢ|x) in the batch

    Unbiased given the table, which all data fill before the first step. A row that is twice in a batch counts twice
    in the estimate and once in the table. The sum is formed anew each ⌈N/B⌉ steps, so rounding does not pile up.

    Cost: the gradients of B rows, one by one, and sums of them: O(Bd) a step. State: a table of N × d numbers for each
    chain, refused where two of them do not fit in memory. For an `ls.GLM`, and `ls.models.logistic`, it has N numbers
    (N × K for K predictors). `batch_size` may be an `ls.Minibatch`, for another scheme or shared batches.

    >>> SAGA(32).rows.batch_size
    32
    """

    rows: Minibatch

    def __init__(self, batch_size: Any):
        self.rows = as_minibatch(batch_size)

    def init(self, target: Any, position: PyTree) -> Table:
        """The table at a position, from all data."""
        return _filled(target, position)

    def start(self, target: Any, positions: PyTree, progress: bool | None = None) -> PyTree:
        """The tables of all chains, if they fit."""
        _refuse_beyond_memory(target, positions)
        return super().start(target, positions, progress)

    def fetch(self, target: Any, rows: Int[Array, " B"], like: PyTree) -> PyTree:
        """The batch, with the places of its rows in the table."""
        return rows, self.rows.fetch(target, rows, like)

    def estimate(self, target: Any, state: Table, batch: PyTree, position: PyTree) -> tuple[PyTree, Table]:
        """The estimate, and the table with the batch's rows renewed."""
        places, rows = batch[0].astype(jnp.int32), batch[1]
        new = scores(target, position, rows)
        old = jax.tree.map(lambda all_rows: all_rows[places], state.scores)
        new = jax.tree.map(lambda a, b: jnp.where(jnp.isfinite(b), a, b), new, old)  # after the reading: no copy
        change = _trees.linear((1, _wide(new)), (-1, _wide(old)))
        news = _wide(combined(target, position, rows, change))
        weight = target.num_examples / places.shape[0]
        data = _trees.linear((-weight, news), (-1, state.total))
        gradient = _trees.add(jax.grad(target.prior_potential)(position), _trees.cast_like(data, position))
        table = jax.tree.map(lambda all_rows, leaf: all_rows.at[places].set(leaf), state.scores, new)
        first = first_of_each(places)
        total = _trees.add(state.total, _sum(target, position, rows, change, first))
        partial = _sum(target, position, rows, change, first & (places < state.num_summed))
        after = Table(table, total, _trees.add(state.partial, partial), state.num_summed)
        return gradient, _summed_further(target, position, after, places.shape[0])

    def potential(self, target: Any, state: Table, batch: PyTree, position: PyTree) -> Float[Array, ""]:
        """Û_B(x) + ⟨(N/B) Σ_{i in batch} αᵢ − Σⱼ αⱼ, x⟩: unbiased, its differences as free of noise as the estimate."""
        places, rows = batch
        held = jax.tree.map(lambda leaf: leaf[places], state.scores)
        weight = target.num_examples / places.shape[0]
        data = _wide(combined(target, jax.lax.stop_gradient(position), rows, held))
        slope = _trees.linear((weight, data), (-1, state.total))
        potential = target.potential(position, rows)
        return potential + _trees.dot(slope, position).astype(potential.dtype)


def first_of_each(rows: Int[Array, " B"]) -> Bool[Array, " B"]:
    """Whether a row of the batch has not come before in it."""
    order = jnp.argsort(rows)
    ordered = rows[order]
    is_first = jnp.concatenate([jnp.ones(1, bool), ordered[1:] != ordered[:-1]])
    return jnp.zeros(rows.shape, bool).at[order].set(is_first)


@eqx.filter_jit
def _filled(target: Posterior, position: PyTree) -> Table:
    """Every row's score, `chunk_size` rows at a time."""

    def of_row(row: PyTree) -> PyTree:
        alone = jax.tree.map(lambda leaf: leaf[None], row)
        return jax.tree.map(lambda leaf: leaf[0], scores(target, position, alone))

    table = jax.lax.map(of_row, target.data, batch_size=target.chunk_size)
    nothing = _wide(jax.tree.map(jnp.zeros_like, position))

    def add(total: PyTree, k: Array) -> tuple[PyTree, None]:
        (rows, values), is_new = target.chunk((target.data, table), k)
        return _trees.add(total, _sum(target, position, rows, values, is_new)), None

    total = jax.lax.scan(add, nothing, jnp.arange(target.num_chunks))[0]
    return Table(table, total, nothing, jnp.zeros((), jnp.int32))


def _summed_further(target: Posterior, position: PyTree, held: Table, size: int) -> Table:
    """The partial sum with the next `size` rows, in the place of the sum once it has all rows."""
    num, before = target.num_examples, held.num_summed
    places = jnp.minimum(before, num - size) + jnp.arange(size, dtype=jnp.int32)
    rows, values = jax.tree.map(lambda leaf: leaf[places], (target.data, held.scores))  # a slice would copy the table
    is_new = places >= before
    partial = _trees.add(held.partial, _sum(target, position, rows, values, is_new))
    has_all = before + size >= num
    total = jax.tree.map(lambda new, old: jnp.where(has_all, new, old), partial, held.total)
    partial = jax.tree.map(lambda leaf: jnp.where(has_all, 0, leaf), partial)
    return Table(held.scores, total, partial, jnp.where(has_all, 0, before + size))


def _sum(target: Posterior, position: PyTree, rows: PyTree, values: PyTree, mask: Bool[Array, " B"]) -> PyTree:
    """Σ over some of the rows of the gradients that have these scores."""
    some = jax.tree.map(lambda leaf: jnp.where(mask.reshape(-1, *[1] * (leaf.ndim - 1)), leaf, 0), values)
    return _wide(combined(target, position, rows, some))


def _wide(tree: PyTree) -> PyTree:
    return jax.tree.map(lambda leaf: leaf.astype(_trees.wide(leaf.dtype)), tree)


def _refuse_beyond_memory(target: Posterior, positions: PyTree) -> None:
    """Before the machine runs out of it. A GLM's table is about as long as its data."""
    leaves = jax.tree.leaves(positions)
    chains = leaves[0].shape[0]
    of_all_chains = target.num_examples * _trees.num_bytes(positions)
    needed, available = _COPIES * of_all_chains, _memory.available()
    if not is_glm(target) and available and needed > available:
        size = sum(leaf.size for leaf in leaves) // chains
        raise ValueError(
            f"SAGA's table of {target.num_examples} × {size} numbers for each of {chains} chains needs "
            f"{needed / 1e9:.1f} GB with its copy, and there are {available / 1e9:.1f} GB. Write "
            f"ls.SVRG(batch_size), which remembers two copies of the position; or ls.GLM, if the model is "
            f"a generalised linear one, whose table has one number per row."
        )
