"""Bayesian logistic regression."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree, Shaped

from lsmcmc import _checks
from lsmcmc.glm import OfPredictor
from lsmcmc.models._priors import normal_prior

_START_SD = 0.1

AnyArray = Array | np.ndarray


class LogSigmoid(eqx.Module):
    """Log σ(yz), NaN where a label is neither −1 nor +1.

    >>> [round(float(v), 4) for v in LogSigmoid()(jnp.array([0.0, 2.0]), jnp.array([1, -1]))]
    [-0.6931, -2.1269]
    """

    def __call__(self, z: Float[Array, " B"], y: Shaped[AnyArray, " B"]) -> Float[Array, " B"]:
        """One value per row."""
        signs = jnp.asarray(y, z.dtype)
        return jax.nn.log_sigmoid(jnp.where(jnp.abs(signs) == 1, signs, jnp.nan) * z)


class Logistic(eqx.Module):
    """Logistic regression without intercept, see `logistic`.

    >>> Logistic(3).init(jax.random.key(0)).shape
    (3,)
    """

    dim: int = eqx.field(static=True)
    prior: Callable[[PyTree], Float[Array, ""]]

    def __init__(self, dim: int, prior: Any = None):
        self.dim = _checks.count("dim", dim)
        self.prior = _checks.function("prior", normal_prior() if prior is None else prior, "(position)")

    def init(self, key: Array) -> Float[Array, " d"]:
        """A start from N(0, 1e-2 I): not 0, where the paper's Γ prior is singular."""
        return _START_SD * jax.random.normal(key, (self.dim,), float)

    @property
    def log_likelihood(self) -> OfPredictor:
        """Log σ(yᵢ⟨dᵢ, x⟩), one value per row: a function of (position, batch) that says that it is a GLM's."""
        return OfPredictor(LogSigmoid())

    def log_prior(self, position: Float[Array, " d"]) -> Float[Array, ""]:
        """The prior's log density."""
        return self.prior(position)

    def predict(self, position: Float[Array, " d"], X: Shaped[AnyArray, "B d"]) -> Float[Array, " B"]:
        """P(y = +1) = σ(⟨d, x⟩) for each row of X."""
        return jax.nn.sigmoid(self._scores(position, X))

    def _scores(self, position: Array, X: Any) -> Array:
        return jnp.asarray(X, position.dtype) @ position


def logistic(dim: int, prior: Any = None) -> Logistic:
    """Bayesian logistic regression on `dim` features and labels y in {−1, +1} (the paper's §4.2).

        log p(yᵢ | dᵢ, x) = log σ(yᵢ⟨dᵢ, x⟩) = −log(1 + exp(−yᵢ⟨dᵢ, x⟩))

    stable for scores of any size. A batch is (X, y). There is no intercept: append a column of ones for
    one. Another label, such as 0, makes the likelihood NaN, which stops a run at its first step.
    `prior` is a function of the position: `normal_prior()` unless given; the paper has
    `gamma_prior(rate=1.0, scale=1e-2)`.

    >>> import lsmcmc as ls
    >>> model = logistic(2, prior=ls.models.normal_prior(3.0))
    >>> X, y = jnp.array([[1.0, 0.0], [1.0, 2.0], [0.0, 1.0], [2.0, 1.0]]), jnp.array([-1, 1, 1, -1])
    >>> posterior = ls.Posterior(model.log_likelihood, model.log_prior, data=(X, y))
    >>> run = ls.sample(ls.sgld(1e-2), posterior, model.init(jax.random.key(0)), num_draws=500, batch_size=2, thin=5)
    >>> run.predict(model.predict, X).shape
    (4,)
    """
    return Logistic(dim, prior)
