"""What a run keeps of its draws: themselves, a function of them, or running moments."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.tree_util import Partial
from jaxtyping import Array, Float, Int, PyTree

from lsmcmc import _checks, _trees


class Moments(eqx.Module):
    """Running mean and variance of the position, without storing draws: `ls.sample(…, keep=ls.Moments())`.

    With draws x₁ … x_D and weights wₜ, all 1 or with `weighted=True` the step sizes hₜ,
    mean = Σ wₜxₜ / Σ wₜ (the paper's φ̂) and variance = Σ wₜ(xₜ − mean)² / Σ wₜ, updated stably
    (West 1979). Two copies of the position, in float32 at least. keep="moments" is the short form.

    >>> Moments(weighted=True)
    Moments(weighted=True)
    """

    weighted: bool = eqx.field(static=True, default=False)


class Sums(eqx.Module):
    """The running moments of one chain."""

    count: Int[Array, ""]
    weight: Float[Array, ""]
    mean: PyTree
    squares: PyTree  # Σ w (x − mean)²

    @staticmethod
    def zero(position: PyTree) -> "Sums":
        """Before the first draw."""

        def zeros() -> PyTree:
            return jax.tree.map(lambda x: jnp.zeros(x.shape, _trees.wide(x.dtype)), position)

        return Sums(jnp.zeros((), jnp.int32), jnp.zeros((), float), zeros(), zeros())

    def add(self, position: PyTree, weight: Float[Array, ""]) -> "Sums":
        """One draw more; a draw of weight 0 changes nothing."""
        total = self.weight + weight
        share = jnp.where(total > 0, weight / jnp.where(total > 0, total, 1), 0)

        def off(x: Array, mean: Array) -> Array:
            return x.astype(mean.dtype) - mean

        mean = jax.tree.map(lambda m, x: m + share.astype(m.dtype) * off(x, m), self.mean, position)
        squares = jax.tree.map(
            lambda s, x, old, new: s + weight.astype(s.dtype) * off(x, old) * off(x, new),
            self.squares,
            position,
            self.mean,
            mean,
        )
        return Sums(self.count + 1, total, mean, squares)


class Keep(eqx.Module):
    """What the loop does with a draw: `fn` of it is stored, or `moments` of it are kept."""

    fn: Callable[[PyTree], PyTree] | None
    moments: Moments | None

    def weight(self, step_size: Float[Array, ""]) -> Float[Array, ""]:
        """A draw's weight in the moments."""
        return step_size if self.moments is not None and self.moments.weighted else jnp.ones((), float)


_ITSELF = Partial(lambda position: position)


def as_keep(value: Any) -> Keep:
    """What `ls.sample(…, keep=)` asks for."""
    if value is None or (isinstance(value, str) and value == "draws"):
        return Keep(_ITSELF, None)
    if isinstance(value, str) and value == "moments":
        return Keep(None, Moments())
    if isinstance(value, Moments):
        return Keep(None, value)
    if callable(value):
        return Keep(_checks.function("keep", value, "(position)"), None)
    raise ValueError(
        f"keep must be 'draws' (the default), 'moments', ls.Moments(weighted=True) or a function of the position, "
        f"got {value!r}."
    )


def shape_kept(keep: Keep, position: PyTree) -> PyTree:
    """Shapes of what is stored of one draw; raises where `fn` fails or returns nothing."""
    if keep.fn is None:
        return ()
    if keep.fn is _ITSELF:
        return position
    like = jax.eval_shape(keep.fn, position)
    if not jax.tree.leaves(like):
        raise ValueError("keep(position) returned nothing to store; return an array or a pytree of arrays.")
    return like
