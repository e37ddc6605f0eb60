"""The variance of a smoothed minibatch gradient of logistic regression: its closed form, and by draws."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from numpy.typing import NDArray

import lsmcmc as ls


def of_a_mean(batch: int, num_examples: int) -> float:
    """Variance of the mean of `batch` distinct examples over that of one: (1/B)(N − B)/(N − 1).

    >>> of_a_mean(1, 10), of_a_mean(10, 10)
    (1.0, 0.0)
    """
    return (num_examples - batch) / (num_examples - 1) / batch


def variance_of_one(residuals: Any, X: Any, sigma: float) -> NDArray[np.float64]:
    """Variance over i of each coordinate of A_σ⁻¹Rᵢdᵢ, the smoothed gradient of one example, at each position.

        v_j(x) = (1/N) Σᵢ Rᵢ²(A_σ⁻¹dᵢ)_j² − ((1/N) Σᵢ Rᵢ(A_σ⁻¹dᵢ)_j)²

    `residuals` has shape (position, N), X (N, d). The prior's gradient is the same in every batch, and
    smoothing is linear, so that the mean gradient of a batch drawn without replacement has the
    variance v_j(x)·(1/B)(N − B)/(N − 1), exactly.

    >>> variance_of_one([[1.0, -1.0]], [[1.0, 0.0], [1.0, 0.0]], 0.0).tolist()
    [[1.0, 0.0]]
    """
    R, rows = np.asarray(residuals, np.float64), np.asarray(X, np.float64)
    smoothed = np.linalg.solve(ls.theory.laplacian_matrix(rows.shape[1], sigma), rows.T).T
    return np.asarray((R**2 @ smoothed**2 - (R @ smoothed) ** 2 / len(rows)) / len(rows))


@eqx.filter_jit
def variance_by_draws(
    posterior: ls.Posterior, path: Float[Array, "point d"], key: Array, batch: int, sigmas: tuple[float, ...], num: int
) -> Float[Array, "sigma point d"]:
    """Mean square of `num` smoothed mean minibatch gradients about the smoothed full one, at every point."""
    estimator = ls.Minibatch(batch, "subset")

    def at(point: tuple[Array, Array]) -> Array:
        x, key = point
        full = -jax.grad(posterior.log_density)(x)

        def deviation(key: Array) -> Array:
            return (estimator.oracle(posterior, key, x).gradient(x) - full) / posterior.num_examples

        deviations = jax.vmap(deviation)(jax.random.split(key, num))
        return jnp.stack([jnp.mean(ls.smoothing.solve(deviations, sigma) ** 2, axis=0) for sigma in sigmas])

    return jnp.moveaxis(jax.lax.map(at, (path, jax.random.split(key, len(path)))), 1, 0)
