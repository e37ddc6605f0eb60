"""The covariance of a position too large for a matrix: its variances, and a few draws spread over the run."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from lsmcmc import _trees


def stride(made: int, rank: int) -> int:
    """How many draws lie between those that are held, when `made` are made: a power of two, so fewer than 2·rank are.

    >>> [made // stride(made, 4) for made in (1, 7, 8, 15, 16, 1000)]
    [1, 7, 4, 7, 4, 7]
    """
    return int(2 ** max(0, (made // (2 * rank)).bit_length()))


class Spread:
    """Draws held at every `stride`-th of a run, whatever its length will be: numbered, on the host."""

    def __init__(self, rank: int):
        self.rank = rank
        self.held: dict[int, PyTree] = {}

    def take(self, number: int, positions: PyTree) -> None:
        """Draw `number`, counted from 1, of all chains, if it is one of those; others are let go."""
        every = stride(number, self.rank)
        if number % every == 0:
            self.held[number] = jax.tree.map(np.asarray, positions)
        self.held = {n: held for n, held in self.held.items() if n % every == 0}

    def stacked(self) -> PyTree:
        """All held draws of all chains along one leading axis."""
        return jax.tree.map(lambda *leaves: np.concatenate(leaves), *self.held.values())


class LowRank(eqx.Module):
    """A covariance in a few copies of the position, with the mean it belongs to: `run.covariance()`.

        Σ = ½ diag(v) + ½ DDᵀ/(M − 1)

    v are the variances of all draws, D the deviations of M of them from the mean, so the diagonal of Σ is v up to the
    chance of which M: the form of SWAG (Maddox et al. 2019, §3.3), where they are the last M; here they are spread
    evenly over the run, and v is their exact running variance. `apply` is O(M d); `sample` draws from N(mean, Σ).

    >>> LowRank(jnp.zeros(2), jnp.ones(2), jnp.eye(2)).apply(jnp.array([1.0, 2.0])).tolist()
    [1.0, 2.0]
    """

    mean: PyTree
    variance: PyTree
    deviations: PyTree

    @property
    def rank(self) -> int:
        """M."""
        return int(jax.tree.leaves(self.deviations)[0].shape[0])

    def apply(self, v: PyTree) -> PyTree:
        """Σ v."""
        along = jax.tree.map(lambda D, x: D.reshape(self.rank, -1) @ jnp.ravel(x), self.deviations, v)
        weights = sum(jax.tree.leaves(along))
        return jax.tree.map(lambda a, b: (a + b) / 2, _trees.times(self.variance, v), self._combined(weights, 1.0))

    def sample(self, key: Array) -> PyTree:
        """One position from N(mean, Σ)."""
        first, second = jax.random.split(key)
        alone = _trees.times(jax.tree.map(jnp.sqrt, self.variance), _trees.normal_like(first, self.mean))
        together = self._combined(jax.random.normal(second, (self.rank,)), 0.5)
        return jax.tree.map(lambda m, a, b: m + (a + b) / np.sqrt(2).astype(m.dtype), self.mean, alone, together)

    def _combined(self, weights: Any, power: float) -> PyTree:
        """D w / (M − 1)^power."""
        shares = weights / (self.rank - 1) ** power
        return jax.tree.map(lambda D: jnp.tensordot(shares.astype(D.dtype), D, 1), self.deviations)


def low_rank(mean: PyTree, variance: PyTree, draws: PyTree) -> LowRank:
    """From moments and a few draws with one leading axis, in the dtypes of the draws."""
    mean, variance = (
        jax.tree.map(lambda m, x: jnp.asarray(m, _trees.wide(x.dtype)), moment, draws) for moment in (mean, variance)
    )
    return LowRank(mean, variance, jax.tree.map(lambda x, m: jnp.asarray(x, m.dtype) - m, draws, mean))
