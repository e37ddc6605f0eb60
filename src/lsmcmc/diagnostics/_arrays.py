"""What the diagnostics share: leading axes (chain, draw), weighted averages, ArviZ loaded when used."""

import warnings
from typing import Any

import numpy as np


def leading(draws: Any, name: str) -> Any:
    values = np.asarray(draws)
    if values.ndim < 2:
        raise ValueError(f"{name} needs leading axes (chain, draw), got shape {values.shape}.")
    return values


def weighted_mean(x: Any, weights: Any = None) -> Any:
    """Mean over the axes (chain, draw), draws weighted; NaN where nothing has weight."""
    w = np.ones(x.shape[1]) if weights is None else np.asarray(weights, np.float64)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.tensordot(w, x.mean(0, dtype=np.float64), 1) / w.sum()


def weighted_variance(x: Any, weights: Any = None) -> Any:
    """Variance over the axes (chain, draw), draws weighted; NaN where nothing has weight."""
    return weighted_mean(np.square(x.astype(np.float64) - weighted_mean(x, weights)), weights)


def load_arviz() -> Any:
    """ArviZ, loaded when used; its 0.x series announces its 1.x series at every import."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        import arviz
    return arviz
