"""Exact laws of SGLD and LS-SGLD on Gaussians, where the chain is linear, in float64 NumPy."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lsmcmc import _checks

Matrix = NDArray[np.float64]
Vector = NDArray[np.float64]


def laplacian_matrix(d: int, sigma: float, order: int = 1) -> Matrix:
    """A_σ = I + σ(−L)ⁿ as a dense matrix, L the Laplacian of a cycle whose double edge counts once.

    >>> laplacian_matrix(2, 0.5).tolist()
    [[1.5, -0.5], [-0.5, 1.5]]
    """
    d, order = _checks.count("d", d), _checks.count("order", order)
    _checks.hyper("sigma", sigma)
    adjacency = np.zeros((d, d))
    for i in range(d):
        if d > 1:
            adjacency[i, (i + 1) % d] = adjacency[(i + 1) % d, i] = 1
    minus_laplacian = np.diag(adjacency.sum(1)) - adjacency
    return np.asarray(np.eye(d) + sigma * np.linalg.matrix_power(minus_laplacian, order))


class LinearChain(NamedTuple):
    """x' = M x + ξ with ξ ~ N(0, Q): what SGLD and LS-SGLD are on U(x) = ½xᵀPx. See `linear_chain`."""

    transition: Matrix
    noise: Matrix

    def covariance(self) -> Matrix:
        """C at rest: C = M C Mᵀ + Q, the discrete Lyapunov equation."""
        from scipy.linalg import solve_discrete_lyapunov

        return np.asarray(solve_discrete_lyapunov(self.transition, self.noise))

    def autocorrelation_time(self) -> Vector:
        """τ = ½ + Σ_{t ≥ 1} A(t)/A(0) of each coordinate at rest (the paper's Eq. AutocorrelationTime).

        A(t) = (MᵗC)ᵢᵢ, so τ = ½ + (M(I − M)⁻¹C)ᵢᵢ/Cᵢᵢ.

        >>> linear_chain([[1.0]], 0.1).autocorrelation_time().round(2).tolist()  # ½ + 0.9/0.1
        [9.5]
        """
        M, C = self.transition, self.covariance()
        later = M @ np.linalg.solve(np.eye(len(M)) - M, C)
        return np.asarray(0.5 + np.diag(later) / np.diag(C))

    def covariance_mse(self, num_draws: int, target: Any) -> float:
        """E mean_{ij} (Ĉᵢⱼ − Σᵢⱼ)² of Ĉ = Σₜ xₜxₜᵀ/n against the `target` Σ, n consecutive draws at rest.

        The bias (C − Σ)² and the variance (1/n) Σₜ (1 − |t|/n)(Rᵢᵢ(t)Rⱼⱼ(t) + Rᵢⱼ(t)Rⱼᵢ(t)), R(t) = MᵗC.

        >>> round(linear_chain([[1.0]], 0.1).covariance_mse(10**9, [[1.0]]), 6)  # the bias, (1/(1 − h/2) − 1)²
        0.00277
        """
        n = _checks.count("num_draws", num_draws)
        C = R = self.covariance()
        variance = np.zeros_like(C)
        for t in range(n):
            product = np.outer(np.diag(R), np.diag(R)) + R * R.T
            variance += (1 if t == 0 else 2 * (1 - t / n)) * product / n
            R = self.transition @ R
            if np.abs(R).max() < 1e-12 * np.abs(C).max():
                break
        return float(np.mean((C - np.asarray(target, np.float64)) ** 2 + variance))

    def mean_mse(self, num_draws: int, start: Any = None) -> float:
        """E mean_i x̄ᵢ² of x̄ = Σₜ xₜ/n over the first n steps from a `start`, or of a chain at rest without one.

        Both relative to the target's mean, which is the chain's own. With Sₙ = M + … + Mⁿ the part of the start is
        Sₙx₀/n, or of covariance SₙCSₙᵀ/n². The noise of a step enters as (I + … + Mᵏ⁻¹)ξ, once for every k ≤ n:

            (I−M)⁻¹ (nQ − SₙQ − QSₙᵀ + Σ_{k ≤ n} MᵏQMᵏᵀ) (I−M)⁻ᵀ / n²

        >>> chain = linear_chain([[1.0]], 0.1)
        >>> round(chain.mean_mse(10**6) * 10**6, 1)  # 2τ times the variance, 19 · 1.0526
        20.0
        >>> round(chain.mean_mse(10, [5.0]), 2)
        8.99
        """
        M, Q, n = self.transition, self.noise, _checks.count("num_draws", num_draws)
        identity = np.eye(len(M))
        rest = np.linalg.inv(identity - M)
        S = rest @ (M - M @ np.linalg.matrix_power(M, n))
        later = M @ self.law_after(n, np.zeros(len(M)))[1] @ M.T
        covariance = rest @ (n * Q - S @ Q - Q @ S.T + later) @ rest.T
        begun = S @ self.covariance() @ S.T if start is None else np.outer(*[S @ np.asarray(start, np.float64)] * 2)
        return float(np.mean(np.diag(covariance + begun)) / n**2)

    def law_after(self, num_steps: int, start: Any) -> tuple[Vector, Matrix]:
        """Mean Mᴷx₀ and covariance Σ_{j<K} MʲQMʲᵀ of x_K from a point, in O(log K) products.

        >>> mean, covariance = linear_chain([[1.0]], 0.5).law_after(2, [1.0])
        >>> mean.tolist(), covariance.tolist()
        ([0.25], [[1.25]])
        """
        M, Q = np.eye(len(self.transition)), np.zeros_like(self.noise)  # of no steps
        for bit in f"{_checks.count('num_steps', num_steps, least=0):b}":
            M, Q = M @ M, Q + M @ Q @ M.T
            if bit == "1":
                M, Q = self.transition @ M, self.noise + self.transition @ Q @ self.transition.T
        return np.asarray(M @ np.asarray(start, np.float64)), np.asarray(Q)


def linear_chain(
    precision: Any,
    step_size: float,
    *,
    sigma: float = 0.0,
    preconditioner: Any = None,
    temperature: float = 1.0,
    gradient_noise: Any = 0.0,
) -> LinearChain:
    """SGLD or LS-SGLD on U(x) = ½xᵀPx: M = I − hGP and Q = h²GSG + 2hT·G.

    G is A_σ⁻¹ or the symmetric matrix `preconditioner`, S the covariance of the gradient noise:
    `gradient_noise` is that matrix, or a number s² for S = s²I. Raises where the chain is unstable.

    >>> linear_chain([[2.0]], 0.1).transition.tolist()
    [[0.8]]
    """
    for name, value in (("step_size", step_size), ("temperature", temperature)):
        _checks.hyper(name, value)
    P, G = _pair(precision, sigma, preconditioner)
    d = len(P)
    S = np.asarray(gradient_noise, np.float64)
    S = S * np.eye(d) if S.ndim == 0 else S
    M = np.eye(d) - step_size * G @ P
    if np.abs(np.linalg.eigvals(M)).max() >= 1:
        limit = 2 / _largest(G @ P)
        raise ValueError(
            f"the chain has no law at rest: step_size {step_size:g} is at or above the stability limit {limit:g}."
        )
    return LinearChain(M, step_size**2 * G @ S @ G.T + 2 * step_size * temperature * G)


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

    a discrete Lyapunov equation. The options are those of `linear_chain`.

    >>> stationary_covariance([[1.0]], 0.1).round(4).tolist()  # 1/(1 − h/2)
    [[1.0526]]
    """
    return linear_chain(
        precision,
        step_size,
        sigma=sigma,
        preconditioner=preconditioner,
        temperature=temperature,
        gradient_noise=gradient_noise,
    ).covariance()


def diffusion_law(
    precision: Any,
    time: float,
    start: Any,
    *,
    sigma: float = 0.0,
    preconditioner: Any = None,
    temperature: float = 1.0,
) -> tuple[Vector, Matrix]:
    """Mean and covariance at a time of LD and LS-LD on U(x) = ½xᵀPx, from a point (the paper's Eq. langevin_cont).

        dX = −GPX dt + √(2T) G^{1/2}dW:   E X_t = e^{−GPt}x₀,   Cov X_t = T(P⁻¹ − e^{−GPt}P⁻¹e^{−PGt})

    The diffusion whose Euler–Maruyama chain `linear_chain` is: `law_after` tends to it as h → 0 at hK = t. So
    W₂(P(x_K), P(X_t)) is the discretisation error and W₂(P(X_t), π) the ergodicity, exactly. P must be positive.

    >>> mean, covariance = diffusion_law([[1.0]], 1.0, [2.0])
    >>> mean.round(4).tolist(), covariance.round(4).tolist()  # 2/e and 1 − 1/e²
    ([0.7358], [[0.8647]])
    """
    from scipy.linalg import expm

    P, G = _pair(precision, sigma, preconditioner)
    for name, value in (("time", time), ("temperature", temperature)):
        _checks.hyper(name, value)
    least = float(np.linalg.eigvalsh(P)[0])
    if least <= 0:
        raise ValueError(f"precision must be positive definite, its smallest eigenvalue is {least:g}.")
    flow, rest = expm(-time * G @ P), temperature * np.linalg.inv(P)
    return np.asarray(flow @ np.asarray(start, np.float64)), np.asarray(rest - flow @ rest @ flow.T)


def stability_limit(hessian: Any, *, sigma: float = 0.0, preconditioner: Any = None) -> float:
    """The step size 2/λmax(GH) from which on the chain explodes on a quadratic with this Hessian.

    >>> stability_limit([[2.0, 0.0], [0.0, 1.0]])
    1.0
    """
    H, G = _pair(hessian, sigma, preconditioner)
    return 2 / _largest(G @ H)


def gaussian_w2(mean: Any, covariance: Any, other_mean: Any, other_covariance: Any) -> float:
    """The 2-Wasserstein distance of two Gaussians, W₂² = |m − m'|² + tr(C + C' − 2(C^{1/2}C'C^{1/2})^{1/2}).

    >>> gaussian_w2([0.0], [[1.0]], [3.0], [[25.0]])
    5.0
    """
    C, D = np.asarray(covariance, np.float64), np.asarray(other_covariance, np.float64)
    values, vectors = np.linalg.eigh(C)
    half = (vectors * np.sqrt(np.maximum(values, 0))) @ vectors.T
    cross = np.sqrt(np.maximum(np.linalg.eigvalsh(half @ D @ half), 0)).sum()
    shift = np.asarray(mean, np.float64) - np.asarray(other_mean, np.float64)
    return float(np.sqrt(max(0.0, shift @ shift + np.trace(C) + np.trace(D) - 2 * cross)))


def _pair(matrix: Any, sigma: float, preconditioner: Any) -> tuple[Matrix, Matrix]:
    """P and G."""
    P = np.atleast_2d(np.asarray(matrix, np.float64))
    if P.shape != (len(P), len(P)):
        raise ValueError(f"precision must be a square matrix, got shape {P.shape}.")
    if preconditioner is None:
        return P, np.asarray(np.linalg.inv(laplacian_matrix(len(P), sigma)))
    if sigma != 0.0:
        raise ValueError("write sigma= or preconditioner=, not both.")
    G: Matrix = np.asarray(preconditioner, np.float64)
    return P, G


def _largest(matrix: Matrix) -> float:
    return float(np.abs(np.linalg.eigvals(matrix)).max())
