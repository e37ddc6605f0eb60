"""What Figure 4 and Table 3 share: the paper's Bayesian logistic regression on a3a, and its samplers' settings."""

from collections.abc import Callable
from functools import cache
from typing import Any

import jax
import numpy as np
from jaxtyping import Array, Float

import lsmcmc as ls
from lsmcmc.data import Dataset

DIM = 122
SIGMAS = (0.5, 1.0, 2.0)  # those of Table 3; the paper does not say which Figure 4 has
STEPS = {"SGLD": 1e-3, "pSGLD": 2e-3}
PRIORS: dict[str, Callable[[Any], Any]] = {  # the paper's first
    "Γ": ls.models.gamma_prior(rate=1.0, scale=1e-2),
    "N(0, I)": ls.models.normal_prior(),
}
MODEL = ls.models.logistic(DIM, prior=PRIORS["Γ"])


@cache
def data() -> Dataset:
    """Of a3a, read once."""
    return ls.data.a3a()


@cache
def posterior(prior: str = "Γ") -> ls.Posterior:
    """Of the training part: U(x) = Σᵢ log(1 + exp(−yᵢ⟨dᵢ, x⟩)) + λ log‖x‖ + θ‖x‖, λ = 1, θ = 0.01, or ‖x‖²/2."""
    model = ls.models.logistic(DIM, prior=PRIORS[prior])
    return ls.Posterior(model.log_likelihood, model.log_prior, data=data().train)


def starts(key: Array, num: int) -> Float[Array, "num d"]:
    """From N(0, 1e-2 I): at the paper's x₀ = 0 its prior is singular."""
    return jax.vmap(MODEL.init)(jax.random.split(key, num))


def curvatures(positions: Any, X: Any) -> Any:
    """wᵢ(x) = pᵢ(1 − pᵢ) for each position: the Hessian of −Σᵢ log p(yᵢ|dᵢ, x) is Σᵢ wᵢdᵢdᵢᵀ. In float64."""
    from scipy.special import expit

    score = np.asarray(positions, np.float64) @ np.asarray(X, np.float64).T
    return expit(score) * expit(-score)


def larger(sigma: float) -> float:
    """What the paper multiplies the step size of a smoothed sampler by."""
    return float((1 + 4 * sigma) ** 0.25)


def residuals(positions: Any, X: Any, y: Any) -> Any:
    """Rᵢ(x) = −yᵢ/(1 + exp(yᵢ⟨dᵢ, x⟩)) for each position: the gradient of −log p(yᵢ|dᵢ, x) is Rᵢdᵢ. In float64."""
    from scipy.special import expit

    X, y = np.asarray(X, np.float64), np.asarray(y, np.float64)
    return -y * expit(-y * (np.asarray(positions, np.float64) @ X.T))
