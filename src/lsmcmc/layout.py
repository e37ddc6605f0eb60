"""How arrays are laid out as the vectors that smoothing acts on: which axes, in which order, alone or chained."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree

from lsmcmc import _checks, _trees


class Axes:
    """A hashable pytree prefix of axis orders."""

    def __init__(self, axes: Any):
        leaves, structure = jax.tree.flatten(axes, is_leaf=_is_axes)
        for leaf in leaves:
            if not _is_axes(leaf):
                raise TypeError(f"axes must be a tuple of whole numbers such as (3, 2, 0, 1), got {leaf!r}.")
        orders = tuple(None if leaf is None else tuple(leaf) for leaf in leaves)
        self.prefix = jax.tree.unflatten(structure, orders)
        self._identity = orders, structure

    def broadcast(self, tree: PyTree) -> list[tuple[int, ...] | None]:
        """The axes of each leaf of `tree`."""
        found: list[tuple[int, ...] | None] = []

        def extend(axes: tuple[int, ...] | None, part: PyTree) -> None:
            found.extend([axes] * len(jax.tree.leaves(part)))

        _checks.map_prefix("axes", extend, self.prefix, tree, is_leaf=_is_axes)
        return found

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Axes) and self._identity == other._identity

    def __hash__(self) -> int:
        return hash(self._identity)

    def __repr__(self) -> str:
        return repr(self.prefix)


def _is_axes(node: Any) -> bool:
    return node is None or (isinstance(node, (tuple, list)) and all(isinstance(axis, int) for axis in node))


def _to_front(leaf: Array, axes: tuple[int, ...] | None) -> tuple[Array, Callable[[Array], Array]]:
    """`leaf` as (batch…, d) with `axes` flattened into the last axis, and the way back."""
    if axes is None:
        return leaf.reshape(-1), lambda flat: flat.reshape(leaf.shape)
    chosen = [axis % leaf.ndim if -leaf.ndim <= axis < leaf.ndim else -1 for axis in axes]
    if -1 in chosen or len(set(chosen)) < len(chosen):
        raise ValueError(f"axes {tuple(axes)} are not distinct axes of an array of shape {leaf.shape}.")
    order = [axis for axis in range(leaf.ndim) if axis not in chosen] + chosen
    back = [order.index(axis) for axis in range(leaf.ndim)]
    turned = leaf.transpose(order)
    batch = turned.shape[: leaf.ndim - len(chosen)]
    return turned.reshape(*batch, -1), lambda flat: flat.reshape(turned.shape).transpose(back)


def along(leaf: Array, axes: tuple[int, ...] | None, smooth: Callable[[Array], Array]) -> Array:
    """`smooth` on the vectors that `axes` make of a leaf."""
    rows, restore = _to_front(leaf, axes)
    return restore(smooth(rows))


def as_one_vector(v: PyTree, axes: list[tuple[int, ...] | None], smooth: Callable[[Array], Array]) -> PyTree:
    """`smooth` on all leaves chained into one vector, in the widest of their dtypes."""
    leaves, structure = jax.tree.flatten(v)
    dtype = _trees.wide(max((leaf.dtype for leaf in leaves), key=lambda dtype: dtype.itemsize))
    rows, back = zip(*(_to_front(leaf, axis) for leaf, axis in zip(leaves, axes, strict=True)), strict=True)
    if any(row.ndim != 1 for row in rows):
        raise ValueError("scope='global' lays out whole leaves: axes must name every axis of a leaf, or be None.")
    long = smooth(jnp.concatenate([row.astype(dtype) for row in rows]))
    ends = [sum(row.size for row in rows[: i + 1]) for i in range(len(rows))]
    pieces = jnp.split(long, ends[:-1])
    return jax.tree.unflatten(
        structure,
        [restore(piece.astype(leaf.dtype)) for restore, piece, leaf in zip(back, pieces, leaves, strict=True)],
    )
