"""Generalised linear models say what they are, so that a gradient is remembered as one number per row."""

import functools
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from lsmcmc import _checks
from lsmcmc.freezing import Completed
from lsmcmc.posterior import _CHUNK, Posterior
from lsmcmc.streams import Stream


class OfPredictor(eqx.Module):
    """A log likelihood that is a function of z = Xx and y.

    >>> squares = OfPredictor(lambda z, y: -0.5 * (y - z) ** 2)
    >>> squares(jnp.array([1.0, 2.0]), (jnp.array([[1.0, 0.0], [1.0, 1.0]]), jnp.array([1.0, 5.0]))).tolist()
    [-0.0, -2.0]
    """

    fn: Callable[[Array, PyTree], Float[Array, " B"]]

    def __init__(self, fn: Any):
        self.fn = _checks.function("log_likelihood", fn, "(predictor, y)")

    def __call__(self, position: PyTree, batch: PyTree) -> Any:
        """One value per row of (X, y)."""
        return self.fn(self.predictor(position, batch), batch[1])

    def predictor(self, position: PyTree, batch: PyTree) -> Array:
        """Xx, one number per row, or one for each column of the position; the sum of them where X and x are pytrees."""
        if not isinstance(batch, tuple | list) or len(batch) != 2:
            raise TypeError(f"a generalised linear model has data=(X, y), got {_checks.describe(batch)}.")
        parts = jax.tree.map(lambda X, x: jnp.asarray(X, x.dtype) @ x, batch[0], position)
        return functools.reduce(jnp.add, jax.tree.leaves(parts))


class GLM(Posterior):
    """A `Posterior` whose likelihood is that of a generalised linear model, a function of z = Xx and y.

        U(x) = −log p(x) − Σᵢ ℓ(zᵢ, yᵢ),   zᵢ = ⟨dᵢ, x⟩,   ∇ log p(dᵢ, yᵢ | x) = ℓ'(zᵢ, yᵢ) dᵢ

    `log_likelihood(predictor, y)` gets z, shape (B,), or (B, K) for a position of shape (d, K), and returns one value
    per row. `data` is (X, y), where y may be a pytree; X has the position's structure, an array each unless the
    position is a pytree, and then z is the sum over its leaves. There is no intercept: append a column of ones.
    It serves everything that a `Posterior` does; `ls.SAGA` remembers ℓ' alone, N numbers for N × d.

    >>> X, y = jnp.array([[1.0, 0.0], [1.0, 1.0]]), jnp.array([2.0, 4.0])
    >>> poisson = GLM(lambda z, y: y * z - jnp.exp(z), lambda x: -0.5 * jnp.sum(x**2), data=(X, y))
    >>> float(poisson.log_density(jnp.zeros(2)))
    -2.0
    """

    def __init__(self, log_likelihood: Any, log_prior: Any, data: Any, *, chunk_size: int = _CHUNK):
        if not isinstance(data, Stream) and (not isinstance(data, tuple | list) or len(data) != 2):
            raise TypeError(f"ls.GLM needs data=(X, y), X with one row per example, got {type(data).__name__}.")
        super().__init__(OfPredictor(log_likelihood), log_prior, data, chunk_size=chunk_size)


def is_glm(target: Posterior) -> bool:
    """Whether its likelihood says that it is one, all leaves sampled or some."""
    return isinstance(_whole(target.log_likelihood, None)[0], OfPredictor)


def scores(target: Posterior, position: PyTree, batch: PyTree) -> PyTree:
    """What each row adds to ∇Σ log p(dᵢ | x), in short: ℓ' for a GLM, the gradient itself otherwise."""
    return _slopes(target, position, batch) if is_glm(target) else target.log_likelihood_gradients(position, batch)


def combined(target: Posterior, position: PyTree, batch: PyTree, values: PyTree) -> PyTree:
    """What rows of these scores add to ∇Σ log p(dᵢ | x) together, linear in the scores."""
    if not is_glm(target):
        return jax.tree.map(lambda leaf: leaf.sum(0), values)
    z, pull = jax.vjp(lambda x: _predictor(target, x, batch), position)
    return pull(values.astype(z.dtype))[0]


def _slopes(target: Posterior, position: PyTree, batch: PyTree) -> Array:
    target.per_example(position, batch)  # checks the contract, and is not computed
    fn, _ = _whole(target.log_likelihood, position)
    return jax.grad(lambda z: fn.fn(z, batch[1]).sum())(_predictor(target, position, batch))


def _predictor(target: Posterior, position: PyTree, batch: PyTree) -> Array:
    fn, whole = _whole(target.log_likelihood, position)
    return fn.predictor(whole, batch)


def _whole(fn: Any, position: PyTree) -> tuple[Any, PyTree]:
    """A likelihood without the fixed leaves it was completed with, and the whole position."""
    while isinstance(fn, Completed):
        fn, position = fn.fn, eqx.combine(position, fn.fixed)
    return fn, position
