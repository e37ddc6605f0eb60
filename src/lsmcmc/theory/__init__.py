"""Constants and bounds of the theorems, and exact laws on Gaussians, in float64 NumPy."""

from lsmcmc.theory.bounds import Bound, gamma2, w2_bound_convex, w2_bound_nonconvex
from lsmcmc.theory.gaussians import (
    LinearChain,
    diffusion_law,
    gaussian_w2,
    laplacian_matrix,
    linear_chain,
    stability_limit,
    stationary_covariance,
)

__all__ = [
    "Bound",
    "LinearChain",
    "diffusion_law",
    "gamma2",
    "gaussian_w2",
    "laplacian_matrix",
    "linear_chain",
    "stability_limit",
    "stationary_covariance",
    "w2_bound_convex",
    "w2_bound_nonconvex",
]
