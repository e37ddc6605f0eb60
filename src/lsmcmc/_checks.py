"""Checks at the edge: each message says what came, what is needed and what to write instead."""

import operator
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import Partial, keystr
from jaxtyping import Array, Float, PyTree


class ContractError(ValueError):
    """A function of the user's does not keep its contract. Raised again at the edge as a plain ValueError."""


_TO_VARY = {
    "sigma": "ls.Laplacian takes one number for each branch of the position, such as {'w': 1.0, 'b': 0.0}.",
    "step_size": "To vary it by step write a function of the step; by branch of the position, a preconditioner.",
    "temperature": "To vary it by step write a function of the step.",
    "decay": "To vary it by branch of the position write preconditioner={'w': ls.RMSprop(0.99), 'b': ls.RMSprop(0.9)}.",
}


def is_traced(value: object) -> bool:
    """Whether `value` is a tracer, whose number cannot be seen yet."""
    return isinstance(value, jax.core.Tracer)


def hyper(name: str, value: Any, *, below: float | None = None) -> Float[Array, ""]:
    """A hyper-parameter as a scalar array in the default float dtype, checked where it is concrete."""
    try:
        with nullcontext() if is_traced(value) else jax.ensure_compile_time_eval():  # a number stays one inside jit
            array = jnp.array(value, dtype=float)
    except (TypeError, ValueError) as error:
        raise TypeError(f"{name} must be a number, got {value!r} ({type(value).__name__}).") from error
    if array.ndim:
        raise ValueError(
            f"{name} must be one number, got an array of shape {array.shape}. {_TO_VARY.get(name, '')}".rstrip()
        )
    if not is_traced(array):
        number = float(array)
        if not (number >= 0 and np.isfinite(number)) or (below is not None and number >= below):
            bound = "" if below is None else f" and below {below:g}"
            raise ValueError(f"{name} must be a finite number, zero or above{bound}, got {number:g}.")
    return array


def count(name: str, value: Any, *, least: int = 1) -> int:
    """A whole number of at least `least`."""
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(
            f"{name} must be a whole number, got {value!r} ({type(value).__name__}). Write {name}=int(...)."
        ) from None
    if number < least:
        raise ValueError(f"{name} must be at least {least}, got {number}.")
    return number


def choice(name: str, value: Any, options: tuple[str, ...]) -> str:
    """One of a few words."""
    if value not in options:
        known = ", ".join(repr(option) for option in options)
        raise ValueError(f"{name} must be one of {known}, got {value!r}.")
    return str(value)


def function(name: str, value: Any, arguments: str) -> Callable[..., Any]:
    """Something to call, as a pytree: a plain function has no leaves, a module keeps its arrays as data."""
    if not callable(value):
        raise TypeError(f"{name} must be a function of {arguments}, got {value!r} ({type(value).__name__}).")
    wrapped: Any = value if isinstance(value, eqx.Module | Partial) else Partial(value)
    return wrapped


def describe(tree: PyTree) -> str:
    """Shapes and dtypes of a pytree, for messages."""
    return str(jax.tree.map(lambda leaf: f"{jnp.result_type(leaf)}{list(jnp.shape(leaf))}", tree))


def position(tree: PyTree) -> PyTree[Array]:
    """A position: a pytree of finite floating-point arrays."""
    leaves, structure = jax.tree_util.tree_flatten_with_path(tree)
    if not leaves:
        raise ValueError("position has no arrays in it; write the point where the chains start.")
    return jax.tree.unflatten(structure, [_position_leaf(keystr(path), leaf) for path, leaf in leaves])


def _position_leaf(path: str, leaf: Any) -> Array:
    try:
        start = array(f"position{path}", leaf)
    except TypeError as error:
        raise TypeError(
            f"{error} Of a module, sample the arrays: eqx.partition(model, eqx.is_inexact_array)[0]."
        ) from error.__cause__
    if jnp.issubdtype(start.dtype, jax.dtypes.prng_key):
        raise TypeError(
            f"position{path} is a random key ({start.dtype}), which cannot be sampled. "
            f"Leave it out of the position, and have the likelihood make or hold its own."
        )
    if not jnp.issubdtype(start.dtype, jnp.floating):
        raise TypeError(
            f"position{path} has dtype {start.dtype}; sampling needs real floating-point numbers. "
            f"Write position.astype(float)."
        )
    if not is_traced(start) and not np.isfinite(np.asarray(start)).all():
        raise ValueError(f"position{path} has NaN or infinite entries; start the chains at a finite point.")
    return jnp.asarray(start, start.dtype)  # a Python float would stay weakly typed


def array(name: str, leaf: Any) -> Array:
    """An array of our own: a copy of the caller's memory, refused where its numbers would not survive."""
    if isinstance(leaf, jax.Array):
        return leaf  # cannot be changed
    try:
        source = np.asarray(leaf)
        if source.dtype.kind not in "OUS" and not np.ma.isMaskedArray(leaf):
            _survives(name, source)
            return jnp.array(leaf)
    except (TypeError, OverflowError) as error:
        raise TypeError(f"{name} must be an array of numbers, got {_what(leaf)}.") from error
    raise TypeError(f"{name} must be an array of numbers, got {_what(leaf)}.")


def _survives(name: str, source: Any) -> None:
    """64-bit numbers become 32-bit ones unless JAX is told otherwise; whole numbers would wrap around in silence."""
    narrow = jnp.dtype(jax.dtypes.canonicalize_dtype(source.dtype)) if source.dtype.kind in "iuf" else source.dtype
    numbers = source[np.isfinite(source)] if source.dtype.kind == "f" and source.dtype != narrow else source
    if narrow == source.dtype or not numbers.size:
        return
    limits = jnp.iinfo(narrow) if source.dtype.kind in "iu" else jnp.finfo(narrow)
    if numbers.max() > limits.max or numbers.min() < limits.min:
        raise ValueError(
            f"{name} is {source.dtype}, which JAX stores as {narrow}, and has numbers beyond it (from "
            f"{numbers.min():g} to {numbers.max():g}). Subtract an offset or rescale, or write "
            f"jax.config.update('jax_enable_x64', True) first."
        )


def _what(leaf: Any) -> str:
    """What came instead of numbers, and what to write."""
    if hasattr(leaf, "toarray"):
        return f"a sparse {type(leaf).__name__}; write .toarray()"
    if isinstance(leaf, np.ma.MaskedArray):
        return "a masked array; write .filled(value), and give the mask as another array of data"
    if isinstance(leaf, np.ndarray):
        return f"dtype {leaf.dtype}; write .astype(float)"
    return f"{leaf!r} ({type(leaf).__name__}); write numpy.asarray(...)"


def floating(name: str, array: Any) -> Array:
    """A real floating-point array of at least one axis."""
    out = jnp.asarray(array)
    if not jnp.issubdtype(out.dtype, jnp.floating):
        raise TypeError(f"{name} must be a real floating-point array, got dtype {out.dtype}; write .astype(float).")
    if out.ndim == 0:
        raise ValueError(f"{name} must have at least one axis, got a scalar.")
    return out


def map_prefix(
    name: str, fn: Callable[..., Any], prefix: PyTree, tree: PyTree, is_leaf: Any = None, what: str = "the position"
) -> PyTree:
    """`fn(piece, subtree)` for each leaf of `prefix` and the part of `tree` below it."""
    try:
        pairs = jax.tree.map(lambda piece, part: (piece, part), prefix, tree, is_leaf=is_leaf)
    except (ValueError, TypeError) as error:
        raise ValueError(
            f"{name} is no prefix of {what}. {name}: "
            f"{jax.tree.structure(prefix, is_leaf=is_leaf)}, {what.removeprefix('the ')}: {jax.tree.structure(tree)}. "
            f"Write one value, or one for each branch of {what}."
        ) from error
    del pairs
    return jax.tree.map(fn, prefix, tree, is_leaf=is_leaf)
