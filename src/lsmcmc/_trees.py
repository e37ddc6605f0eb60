"""Pytree arithmetic: positions are pytrees, and every leaf keeps its dtype."""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree

from lsmcmc import _random


def normal_like(key: Array, like: PyTree) -> PyTree:
    """One standard normal for each coordinate of `like`, in its dtypes."""
    leaves, structure = jax.tree.flatten(like)
    keys = jax.random.split(_random.fast(key), len(leaves)) if len(leaves) > 1 else [key]
    drawn = [_random.normal(k, leaf.shape, leaf.dtype) for k, leaf in zip(keys, leaves, strict=True)]
    return jax.tree.unflatten(structure, drawn)


def add(x: PyTree, y: PyTree) -> PyTree:
    """X + y."""
    return jax.tree.map(jnp.add, x, y)


def times(x: PyTree, y: PyTree) -> PyTree:
    """Coordinate by coordinate."""
    return jax.tree.map(jnp.multiply, x, y)


def scale(a: Array, x: PyTree) -> PyTree:
    """a·x, the number cast to each leaf's dtype."""
    return jax.tree.map(lambda leaf: a.astype(leaf.dtype) * leaf, x)


def linear(*terms: tuple[Any, PyTree]) -> PyTree:
    """Σ aₖxₖ of numbers aₖ, cast to each leaf's dtype, and pytrees xₖ."""

    def leafwise(*leaves: Array) -> Array:
        parts = [leaf * jnp.asarray(a, leaf.dtype) for (a, _), leaf in zip(terms, leaves, strict=True)]
        total = parts[0]
        for part in parts[1:]:
            total = total + part
        return total

    return jax.tree.map(leafwise, *(tree for _, tree in terms))


def dot(x: PyTree, y: PyTree) -> Array:
    """⟨x, y⟩ over all leaves, in the widest of their dtypes and at least in float32."""
    pairs = list(zip(jax.tree.leaves(x), jax.tree.leaves(y), strict=True))
    dtype = max((wide(leaf.dtype) for leaf, _ in pairs), key=lambda dtype: dtype.itemsize)
    return jnp.stack([jnp.sum(a.astype(dtype) * b.astype(dtype)) for a, b in pairs]).sum()


def alike(x: PyTree, y: PyTree) -> bool:
    """Whether both have the same structure."""
    return str(jax.tree.structure(x)) == str(jax.tree.structure(y))


def same(x: PyTree, y: PyTree) -> bool:
    """Whether both hold the very same arrays."""
    leaves, others = jax.tree.leaves(x), jax.tree.leaves(y)
    return len(leaves) == len(others) and all(a is b for a, b in zip(leaves, others, strict=True))


def sqrt(v: Array) -> Array:
    """√v of an array, with derivative 0 where v is 0."""
    positive = v > 0
    return jnp.where(positive, jnp.sqrt(jnp.where(positive, v, 1)), 0)


def num_bytes(tree: PyTree) -> int:
    """Memory of the arrays (or shapes) in a pytree."""
    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree))


def all_finite(tree: PyTree) -> Array:
    """Whether no floating-point number in it is NaN or infinite."""
    floats = [leaf for leaf in jax.tree.leaves(tree) if jnp.issubdtype(leaf.dtype, jnp.inexact)]
    return jnp.stack([jnp.isfinite(leaf).all() for leaf in floats]).all() if floats else jnp.asarray(True)


def cast_like(x: PyTree, like: PyTree) -> PyTree:
    """`x` in the dtypes of `like`."""
    return jax.tree.map(lambda leaf, to: leaf.astype(to.dtype), x, like)


def up_to(structure: Any, tree: PyTree) -> list[Any]:
    """The subtrees of `tree` at the leaves of a prefix's `structure`."""
    return list(structure.flatten_up_to(tree))


def wide(dtype: Any) -> Any:
    """The dtype to accumulate in: float32 for half precision and for whole numbers, others as they are."""
    return dtype if jnp.issubdtype(dtype, jnp.inexact) and dtype.itemsize >= 4 else jnp.dtype(jnp.float32)
