"""How far draws are from a known law."""

from typing import Any

import numpy as np

from lsmcmc.diagnostics._arrays import leading


def covariance_mse(draws: Any, target: Any, *, mean: Any = None) -> Any:
    """Mean squared error over the entries of each chain's covariance matrix, against the true one.

    `draws` has axes (chain, draw, d); the covariance is about the true `mean`, 0 by default.

    >>> covariance_mse(np.array([[[1.0], [-1.0]]]), [[2.0]]).tolist()
    [1.0]
    """
    values = leading(draws, "covariance_mse").astype(np.float64) - (0.0 if mean is None else np.asarray(mean))
    found = np.einsum("cti,ctj->cij", values, values) / values.shape[1]
    return ((found - np.asarray(target, np.float64)) ** 2).mean((1, 2))
