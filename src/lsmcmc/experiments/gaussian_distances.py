"""Gaussians on which every distance and every constant of Theorems 1 and 2 is known."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lsmcmc import theory

DIM = 10
SIGMAS = (0.0, 0.5, 1.0, 2.0, 5.0)
JUDGED = 1.0  # σ of the claims that compare with no smoothing
COUNTS = tuple(int(k) for k in np.unique(np.geomspace(1, 300_000, 31).round()))
OMEGA, BATCH = 1.0, 10  # the gradient has noise of covariance ω²/B
ETA = 0.02  # times m/M²
SIMILAR = 1.5  # up to which a time counts as similar, as in Figure 3
WHAT = (
    "total",
    "discretisation",
    "ergodicity",
    "proof",
    "stated",
    "proof_discretisation",
    "proof_ergodicity",
    "nonconvex",
)


@dataclass(frozen=True)
class Gaussian:
    """f(x) = ½(x − μ)ᵀP(x − μ), and the constants that the theorems have for it, at β = 1."""

    precision: NDArray[np.float64]
    mean: NDArray[np.float64]

    @property
    def curvatures(self) -> tuple[float, float]:
        """The least and the largest, m and M."""
        values = np.linalg.eigvalsh(self.precision)
        return float(values[0]), float(values[-1])

    @property
    def step(self) -> float:
        """η, well inside C·m/M²."""
        m, M = self.curvatures
        return ETA * m / M**2

    def constants(self) -> dict[str, Any]:
        """λ = 2/m is the constant of the inequality as the paper writes it; Λ = ∫ exp(−f)."""
        m, M = self.curvatures
        d = len(self.mean)
        return {
            "omega": OMEGA,
            "batch_size": BATCH,
            "smoothness": M,
            "log_sobolev": 2 / m,
            "f0": float(self.mean @ self.precision @ self.mean / 2),
            "log_normalizer": d / 2 * np.log(2 * np.pi) - np.linalg.slogdet(self.precision)[1] / 2,
        }

    def dissipativity(self) -> float:
        """B of ⟨∇f(x), x⟩ ≥ (m/2)|x|² − b."""
        pull = self.precision @ self.mean
        return float(pull @ pull / (2 * self.curvatures[0]))


def round_one(rng: Any) -> Gaussian:
    """N(0, I)."""
    del rng
    return Gaussian(np.eye(DIM), np.zeros(DIM))


def figure_1s(rng: Any) -> Gaussian:
    """That of Figure 1."""
    del rng
    return Gaussian(np.asarray(np.linalg.inv([[1.0, 0.9], [0.9, 1.0]])), np.zeros(2))


def turned(rng: Any) -> Gaussian:
    """Curvatures from 1 to 10 along random directions, and a random mean from N(0, I)."""
    vectors, _ = np.linalg.qr(rng.normal(size=(DIM, DIM)))
    return Gaussian((vectors * np.geomspace(1, 10, DIM)) @ vectors.T, rng.normal(size=DIM))


def narrow(rng: Any) -> Gaussian:
    """N(0, I/5): as round as N(0, I), in another unit of length."""
    del rng
    return Gaussian(5 * np.eye(DIM), np.zeros(DIM))


CASES: dict[str, tuple[Callable[[Any], Gaussian], bool]] = {  # and whether it is random
    "N(0, I)": (round_one, False),
    "the Gaussian of Figure 1": (figure_1s, False),
    "random Gaussians": (turned, True),
    "N(0, I/5)": (narrow, False),
}
RESCALED = "N(0, I/5)"
Found = dict[str, NDArray[np.float64]]  # by case: (replication, σ, K, what)


def of(found: Found, case: str, what: str) -> NDArray[np.float64]:
    """One distance or bound of a case, (replication, σ, K)."""
    return found[case][..., WHAT.index(what)]


def measure(gaussians: list[Gaussian]) -> NDArray[np.float64]:
    """Of each Gaussian at each σ, axes (Gaussian, σ, K, what)."""
    return np.array([[curve(g, sigma) for sigma in SIGMAS] for g in gaussians])


def curve(gaussian: Gaussian, sigma: float) -> NDArray[np.float64]:
    """Every distance and bound of one Gaussian at one σ, axes (K, what)."""
    chain = theory.linear_chain(gaussian.precision, gaussian.step, sigma=sigma, gradient_noise=OMEGA**2 / BATCH)
    return np.array([_distances(gaussian, chain, sigma, K) for K in COUNTS])


def _distances(gaussian: Gaussian, chain: theory.LinearChain, sigma: float, K: int) -> list[float]:
    """About μ, so that the chain starts at −μ."""
    time, target = K * gaussian.step, (np.zeros_like(gaussian.mean), np.linalg.inv(gaussian.precision))
    now = chain.law_after(K, -gaussian.mean)
    then = theory.diffusion_law(gaussian.precision, time, -gaussian.mean, sigma=sigma)
    arguments = (K, gaussian.step, len(gaussian.mean))
    options = gaussian.constants() | {"sigma": sigma}
    proof = theory.w2_bound_convex(*arguments, **options)
    second = theory.w2_bound_nonconvex(*arguments, dissipativity=gaussian.dissipativity(), **options)
    return [
        theory.gaussian_w2(*now, *target),
        theory.gaussian_w2(*now, *then),
        theory.gaussian_w2(*then, *target),
        proof.total,
        theory.w2_bound_convex(*arguments, form="stated", **options).total,
        proof.discretization,
        proof.ergodicity,
        second.total if time > 1 else np.inf,
    ]
