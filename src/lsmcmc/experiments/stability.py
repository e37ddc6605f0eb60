"""How large a step may be before a linearised chain explodes: with all data, and with batches."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

import lsmcmc as ls
from lsmcmc.experiments.gradient_variance import of_a_mean

_FLAT = 1e-9  # of the largest eigenvalue: directions without curvature, along which no step is unstable
_MOST_ITERATIONS, _TOLERANCE = 1_000, 1e-5


def weighted_gram(X: Any, weights: Any) -> NDArray[np.float64]:
    """Σᵢ wᵢ dᵢdᵢᵀ, the Hessian of a likelihood whose i-th factor sees the score ⟨dᵢ, x⟩ alone.

    >>> weighted_gram([[1.0, 0.0], [1.0, 1.0]], [2.0, 3.0]).tolist()
    [[5.0, 3.0], [3.0, 3.0]]
    """
    rows = np.asarray(X, np.float64)
    return np.asarray(rows.T @ (np.asarray(weights)[:, np.newaxis] * rows))


def smoothed_rows(X: Any, sigma: float) -> NDArray[np.float64]:
    """The rows A_σ^{-1/2}dᵢ: a chain smoothed by A_σ⁻¹ is a plain one on these."""
    rows = np.asarray(X, np.float64)
    if sigma == 0:
        return rows
    values, vectors = np.linalg.eigh(ls.theory.laplacian_matrix(rows.shape[1], sigma))
    return np.asarray(rows @ (vectors / np.sqrt(values)) @ vectors.T)


def batch_limit(rows: Any, weights: Any, batch: int) -> float:
    """The step from which on E|x|² explodes, for x' = x − hĤx with Ĥ from a new batch at every step.

    Ĥ = (N/B) Σ_{i in batch} wᵢdᵢdᵢᵀ, the batch a subset drawn without replacement, has mean H and

        E[ĤCĤ] = HCH + (N/B)(N − B)/(N − 1) (Σᵢ wᵢ²⟨dᵢ, Cdᵢ⟩dᵢdᵢᵀ − HCH/N)

    The covariance C is kept by the largest h at which HC + CH = h E[ĤCĤ] has a solution C ≥ 0. So 1/h is the largest
    eigenvalue of the positive operator C ↦ L⁻¹E[ĤCĤ], L(C) = HC + CH, found by power iteration. For B = N it
    is 2/λmax(H).

    >>> rows, weights = [[1.0, 0.0], [0.0, 1.0]], [1.0, 4.0]
    >>> round(batch_limit(rows, weights, 2), 6), round(batch_limit(rows, weights, 1), 6)  # Ĥ is 8 half of the time
    (0.5, 0.25)
    """
    D, w = np.asarray(rows, np.float64), np.asarray(weights, np.float64)
    N = len(D)
    values, vectors = np.linalg.eigh(weighted_gram(D, w))
    kept = values > _FLAT * values[-1]
    values, Z = values[kept], D @ vectors[:, kept]  # H is diagonal here
    spread = N**2 * of_a_mean(batch, N) / N
    C, found = np.eye(len(values)), np.inf
    for _ in range(_MOST_ITERATIONS):
        HCH = values[:, np.newaxis] * C * values
        alone = weighted_gram(Z, w**2 * np.einsum("ij,ij->i", Z @ C, Z))
        image = (HCH + spread * (alone - HCH / N)) / (values[:, np.newaxis] + values)
        before, found = found, float(np.linalg.norm(image))
        C = image / found
        if abs(found - before) < _TOLERANCE * found:
            return 1 / found
    raise RuntimeError(f"no largest step found in {_MOST_ITERATIONS} iterations.")
