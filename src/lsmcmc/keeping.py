"""What a run keeps of its draws: themselves, a function of them, or running moments."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import Partial
from jaxtyping import Array, Bool, Float, Int, PyTree
from numpy.typing import NDArray

from lsmcmc import _checks, _trees
from lsmcmc.freezing import completed


class Moments(eqx.Module):
    """Running mean and variance of the position, without storing draws: `ls.sample(…, keep=ls.Moments())`.

    With draws x₁ … x_D and weights wₜ, all 1 or with `weighted=True` the step sizes hₜ,
    mean = Σ wₜxₜ / Σ wₜ (the paper's φ̂) and variance = Σ wₜ(xₜ − mean)² / Σ wₜ. Draws are summed stably
    (West 1979) in blocks, in three copies of the position in float32 at least, and blocks in float64, so a
    run may have any number of draws, and a mean that is large for its spread. keep="moments" is the short form.

    >>> Moments(weighted=True)
    Moments(weighted=True)
    """

    weighted: bool = eqx.field(static=True, default=False)


class Sums(eqx.Module):
    """The running moments of one chain over a block of draws, short enough for float32.

    They are of x − `shift`, the block's first draw, so a position far from zero for its spread loses no digits.
    """

    count: Int[Array, ""]
    weight: Float[Array, ""]
    shift: PyTree
    mean: PyTree
    squares: PyTree  # Σ w (x − shift − mean)²

    @staticmethod
    def zero(position: PyTree) -> "Sums":
        """Before the first draw."""

        def zeros() -> PyTree:
            return jax.tree.map(lambda x: jnp.zeros(x.shape, _trees.wide(x.dtype)), position)

        return Sums(jnp.zeros((), jnp.int32), jnp.zeros((), float), zeros(), zeros(), zeros())

    def add(self, position: PyTree, weight: Float[Array, ""], counted: Bool[Array, ""]) -> "Sums":
        """One draw more; nothing where it is not to be `counted`. One of weight 0 leaves the mean as it is."""
        weight, first = jnp.where(counted, weight, 0), counted & (self.count == 0)
        total = self.weight + weight
        share = jnp.where(total > 0, weight / jnp.where(total > 0, total, 1), 0)
        shift = jax.tree.map(lambda x, s: jnp.where(first, x.astype(s.dtype), s), position, self.shift)

        def off(x: Array, s: Array, m: Array) -> Array:
            return jnp.where(counted, x.astype(s.dtype) - s, m)  # x may be NaN, and 0 · NaN is NaN

        x = jax.tree.map(off, position, shift, self.mean)
        mean = jax.tree.map(lambda m, x: m + share.astype(m.dtype) * (x - m), self.mean, x)
        squares = jax.tree.map(
            lambda s, x, old, new: s + weight.astype(s.dtype) * (x - old) * (x - new), self.squares, x, self.mean, mean
        )
        return Sums(self.count + counted.astype(self.count.dtype), total, shift, mean, squares)


@dataclass
class Totals:
    """Moments over blocks in float64, with a leading chain axis, in NumPy."""

    count: NDArray[Any]
    weight: NDArray[Any]
    mean: PyTree
    squares: PyTree

    @staticmethod
    def of(sums: Sums) -> "Totals":
        """One block."""
        host = jax.tree.map(np.asarray, sums)
        return Totals(
            host.count.astype(np.int64),
            host.weight.astype(np.float64),
            jax.tree.map(lambda s, m: s.astype(np.float64) + m, host.shift, host.mean),
            jax.tree.map(lambda s: s.astype(np.float64), host.squares),
        )

    def merge(self, other: "Totals") -> "Totals":
        """Both (Chan, Golub and LeVeque 1979)."""
        weight = self.weight + other.weight
        share = np.divide(other.weight, weight, out=np.zeros_like(weight), where=weight > 0)

        def over(values: Any, like: Any) -> Any:
            return values.reshape(-1, *[1] * (like.ndim - 1))

        def means(a: Any, b: Any) -> Any:
            return a + over(share, a) * (b - a)

        def squares(a: Any, b: Any, mean: Any, new: Any) -> Any:
            return a + b + over(self.weight * share, a) * (new - mean) ** 2

        return Totals(
            self.count + other.count,
            weight,
            jax.tree.map(means, self.mean, other.mean),
            jax.tree.map(squares, self.squares, other.squares, self.mean, other.mean),
        )

    def pooled(self) -> tuple[PyTree, PyTree]:
        """Mean and variance over all chains; NaN where no draw has weight."""
        with np.errstate(invalid="ignore", divide="ignore"):
            shares = self.weight / self.weight.sum()

        def mean(x: Any) -> Any:
            return np.tensordot(shares, x, 1)

        def variance(x: Any, squares: Any) -> Any:
            within = squares.sum(0) / self.weight.sum() if self.weight.any() else np.nan
            return within + mean((x - mean(x)) ** 2)

        return jax.tree.map(mean, self.mean), jax.tree.map(variance, self.mean, self.squares)


class Keep(eqx.Module):
    """What the loop does with a draw: `fn` of it is stored, or `moments` of it are kept."""

    fn: Callable[[PyTree], PyTree] | None
    moments: Moments | None

    def weight(self, step_size: Float[Array, ""]) -> Float[Array, ""]:
        """A draw's weight in the moments."""
        return step_size if self.moments is not None and self.moments.weighted else jnp.ones((), float)


def _itself(position: PyTree) -> PyTree:
    return position


_ITSELF = Partial(_itself)


def as_keep(value: Any, target: Any) -> Keep:
    """What `ls.sample(…, keep=)` asks for."""
    if value is None or (isinstance(value, str) and value == "draws"):
        return Keep(_ITSELF, None)
    if value is Moments or (isinstance(value, str) and value == "moments"):
        return Keep(None, Moments())
    if isinstance(value, Moments):
        return Keep(None, value)
    if callable(value):
        return Keep(_checks.function("keep", completed(value, target), "(position)"), None)
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
