"""What a run keeps of its draws: themselves, a function of them, the last one, or running moments."""

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
    """Running mean and variance without storing draws: of the position, or of `of(position, *args)`.

    With draws x₁ … x_D (or values of `of`, a predictive function say) and weights wₜ, all 1 or with `weighted=True`
    the step sizes hₜ, mean = Σ wₜxₜ / Σ wₜ (the paper's φ̂) and variance = Σ wₜ(xₜ − mean)² / Σ wₜ. They are summed
    stably (West 1979) in blocks, in three copies of x in float32 at least, and blocks in float64, so a run may
    have any number of draws, and a mean that is large for its spread. keep="moments" is short for `Moments()`.

    With a `rank` K the run also holds between K and 2K draws of each chain, evenly spread over it, in the memory
    of the host, and `run.covariance()` is the covariance that they and the variance make (`ls.LowRank`).

    >>> import jax.numpy as jnp, lsmcmc as ls
    >>> target = ls.Target(lambda x: -0.5 * jnp.sum(x**2))
    >>> keep = Moments(lambda x, inputs: inputs @ x, jnp.eye(3))
    >>> ls.sample(ls.lmc(0.1), target, jnp.zeros(3), num_draws=10, keep=keep).mean().shape
    (3,)
    """

    of: Callable[..., PyTree] | None
    args: tuple[PyTree, ...]  # data
    weighted: bool = eqx.field(static=True)
    rank: int = eqx.field(static=True)

    def __init__(self, of: Any = None, *args: PyTree, weighted: bool = False, rank: int = 0):
        self.of = None if of is None else _checks.function("of", of, "(position, *args)")
        self.args = jax.tree.map(lambda leaf: _checks.array("args of Moments", leaf), args)
        self.weighted = bool(weighted)
        self.rank = _checks.count("rank", rank, least=0)
        if self.rank and (self.weighted or of is not None):
            raise ValueError(
                "rank= is for the covariance of the position, each draw counting alike: "
                "leave out weighted=True and the function, or run again with rank alone."
            )

    def value(self, position: PyTree) -> PyTree:
        """What is averaged."""
        return position if self.of is None else jax.tree.map(jnp.asarray, self.of(position, *self.args))


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


@jax.tree_util.register_dataclass
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
    """What the loop does with a draw: `fn` of it is stored, or `moments` of it are kept, or nothing: the last stays."""

    fn: Callable[[PyTree], PyTree] | None
    moments: Moments | None

    @property
    def kind(self) -> str:
        """In a word; a function's values are draws too."""
        return "draws" if self.fn is not None else "last" if self.moments is None else "moments"

    @property
    def is_position(self) -> bool:
        """Whether positions are stored as they are."""
        return self.fn is _ITSELF

    @property
    def rank(self) -> int:
        """How many draws are held for the covariance, at least."""
        return 0 if self.moments is None else self.moments.rank

    def no_sums(self, positions: PyTree) -> "Sums | None":
        """The moments of every chain before the first draw."""
        if self.moments is None:
            return None
        value = self.moments.value
        return jax.vmap(lambda x: Sums.zero(jax.eval_shape(value, x)))(positions)

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
    if isinstance(value, str) and value == "last":
        return Keep(None, None)
    if value is Moments or (isinstance(value, str) and value == "moments"):
        return Keep(None, Moments())
    if isinstance(value, Moments):
        of = None if value.of is None else _checks.function("of", completed(value.of, target), "(position, *args)")
        return Keep(None, eqx.tree_at(lambda m: m.of, value, of, is_leaf=lambda leaf: leaf is None))
    if callable(value):
        return Keep(_checks.function("keep", completed(value, target), "(position)"), None)
    raise ValueError(
        "keep must be 'draws' (the default), 'last', 'moments', ls.Moments(…) or a function of the position, "
        f"got {value!r}."
    )


def shape_kept(keep: Keep, position: PyTree) -> PyTree:
    """Shapes of what is stored of one draw; raises where `fn` fails or returns nothing."""
    if keep.moments is not None:
        _floating(jax.eval_shape(keep.moments.value, position))
    if keep.fn is None:
        return ()
    if keep.is_position:
        return position
    like = jax.eval_shape(keep.fn, position)
    if not jax.tree.leaves(like):
        raise ValueError("keep(position) returned nothing to store; return an array or a pytree of arrays.")
    return like


def _floating(like: PyTree) -> None:
    """Moments are of numbers."""
    if not jax.tree.leaves(like):
        raise ValueError(
            "the function given to Moments returned nothing to average; return an array or a pytree of them."
        )
    for leaf in jax.tree.leaves(like):
        if not any(jnp.issubdtype(leaf.dtype, kind) for kind in (jnp.floating, jnp.integer, jnp.bool_)):
            raise ValueError(f"the function given to Moments must return real numbers, got {leaf.dtype}; cast it.")
