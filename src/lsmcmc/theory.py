"""Constants of the theorems and exact laws on Gaussians, in float64 NumPy."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from lsmcmc import _checks

Matrix = NDArray[np.float64]


def laplacian_matrix(d: int, sigma: float, order: int = 1) -> Matrix:
    """A_σ = I + σ(−L)ⁿ as a dense matrix, L the Laplacian of a cycle whose double edge counts once.

    >>> laplacian_matrix(2, 0.5).tolist()
    [[1.5, -0.5], [-0.5, 1.5]]
    """
    d, order = _checks.count("d", d), _checks.count("order", order)
    adjacency = np.zeros((d, d))
    for i in range(d):
        if d > 1:
            adjacency[i, (i + 1) % d] = adjacency[(i + 1) % d, i] = 1
    minus_laplacian = np.diag(adjacency.sum(1)) - adjacency
    return np.asarray(np.eye(d) + sigma * np.linalg.matrix_power(minus_laplacian, order))


def gamma2(d: int | None, sigma: Any) -> Any:
    """γ₂ = (1/d) Σⱼ 1/λⱼ(A_σ) of Theorem 1; d = None is its limit 1/√(1 + 4σ).

    Closed form for d ≥ 3: coth(dθ/2)/√(1 + 4σ), θ = 2 asinh(1/(2√σ)). The values printed in the paper's
    Table 1 are not this but mean(1/λ²) = (1 + 2σ)/(1 + 4σ)^{3/2}.

    >>> round(gamma2(1000, 1.0), 3), round(gamma2(None, 1.0), 3), round(gamma2(2, 1.0), 3)
    (0.447, 0.447, 0.667)
    """
    s = np.asarray(sigma, np.float64)
    if not (np.isfinite(s) & (s >= 0)).all():
        raise ValueError(f"sigma must be finite numbers, zero or above, got {sigma!r}.")
    if d is None:
        value = 1 / np.sqrt(1 + 4 * s)
    elif _checks.count("d", d) == 1:
        value = np.ones_like(s)
    elif d == 2:
        value = (1 + 1 / (1 + 2 * s)) / 2
    else:
        with np.errstate(divide="ignore"):
            theta = 2 * np.arcsinh(0.5 / np.sqrt(s))
        value = 1 / np.sqrt(1 + 4 * s) / np.tanh(d * theta / 2)
    return float(value) if value.ndim == 0 else value


def stationary_covariance(
    precision: Any,
    step_size: float,
    *,
    sigma: float = 0.0,
    preconditioner: Any = None,
    temperature: float = 1.0,
    gradient_noise: Any = 0.0,
) -> Matrix:
    """The exact covariance C of SGLD and LS-SGLD at rest on U(x) = ½xᵀPx with gradient noise of covariance S.

        x' = (I − hGP)x − hGξ + √(2hT) G^{1/2}ε   ⇒   C = (I − hGP) C (I − hGP)ᵀ + h²GSG + 2hT·G

    a discrete Lyapunov equation. G = A_σ⁻¹, or the symmetric matrix `preconditioner`.
    `gradient_noise` is S, or a number s² for S = s²I. Raises where the chain is unstable.

    >>> stationary_covariance([[1.0]], 0.1).round(4).tolist()  # 1/(1 − h/2)
    [[1.0526]]
    """
    from scipy.linalg import solve_discrete_lyapunov

    P = np.atleast_2d(np.asarray(precision, np.float64))
    d = P.shape[0]
    if P.shape != (d, d):
        raise ValueError(f"precision must be a square matrix, got shape {P.shape}.")
    if preconditioner is not None and sigma != 0.0:
        raise ValueError("write sigma= or preconditioner=, not both.")
    G = np.linalg.inv(laplacian_matrix(d, sigma)) if preconditioner is None else np.asarray(preconditioner, np.float64)
    S = np.asarray(gradient_noise, np.float64)
    S = S * np.eye(d) if S.ndim == 0 else S
    transition = np.eye(d) - step_size * G @ P
    radius = float(np.abs(np.linalg.eigvals(transition)).max())
    if radius >= 1:
        raise ValueError(
            f"the chain has no law at rest: step_size {step_size:g} is at or above the stability limit "
            f"{2 / float(np.abs(np.linalg.eigvals(G @ P)).max()):g}."
        )
    return np.asarray(solve_discrete_lyapunov(transition, step_size**2 * G @ S @ G.T + 2 * step_size * temperature * G))
