"""Scores of predicted probabilities on held-out rows, the smaller the better but for accuracy.

`probabilities` are those of the positive class, shape (N,), with labels in {0, 1}, {−1, +1} or booleans; or of K
classes, shape (N, K), with labels 0 … K − 1. Average the predictive over the posterior first (`run.predict`): the
score of the average is what a user of the posterior gets.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray


def log_loss(probabilities: Any, labels: Any) -> float:
    """−(1/N) Σ log p(yᵢ), the negative log-likelihood of a row in nats; infinite where a label had probability 0.

    >>> round(log_loss([0.5, 0.5], [-1, 1]), 4)
    0.6931
    """
    with np.errstate(divide="ignore"):
        return float(-np.log(_of_labels(*_classes(probabilities, labels))).mean())


def accuracy(probabilities: Any, labels: Any) -> float:
    """The share of rows whose most probable class is the label.

    >>> accuracy([[0.9, 0.1], [0.6, 0.4]], [0, 1])
    0.5
    """
    p, y = _classes(probabilities, labels)
    return float((p.argmax(1) == y).mean())


def brier_score(probabilities: Any, labels: Any) -> float:
    """(1/N) Σᵢ Σₖ (pᵢₖ − [yᵢ = k])², between 0 and 2, over both classes also where there are two.

    >>> brier_score([0.5, 1.0], [1, 1])
    0.25
    """
    p, y = _classes(probabilities, labels)
    return float(((p - np.eye(p.shape[1])[y]) ** 2).sum(1).mean())


def calibration_error(probabilities: Any, labels: Any, num_bins: int = 15) -> float:
    """Expected calibration error (Guo et al. 2017): Σ_b (n_b/N) |accuracy_b − confidence_b|.

    Rows go into `num_bins` equal bins by the probability of their most probable class, the confidence. It is
    biased upwards by about √(num_bins/N) times a constant below one, so compare it between methods on the same rows.

    >>> round(calibration_error([0.8, 0.8, 0.8, 0.8, 0.8], [1, 1, 1, 1, 0]), 6)  # right four times of five
    0.0
    """
    if num_bins < 1:
        raise ValueError(f"num_bins must be at least 1, got {num_bins}.")
    p, y = _classes(probabilities, labels)
    confidence, right = p.max(1), p.argmax(1) == y
    bins = np.minimum((confidence * num_bins).astype(int), num_bins - 1)
    gap = np.bincount(bins, right - confidence, num_bins)
    return float(np.abs(gap).sum() / len(y))


def _of_labels(p: NDArray[np.float64], y: NDArray[np.int64]) -> NDArray[np.float64]:
    return np.asarray(np.take_along_axis(p, y[:, np.newaxis], axis=1)[:, 0])


def _classes(probabilities: Any, labels: Any) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Probabilities (N, K) and labels 0 … K − 1, or an error that says what came."""
    p, y = np.asarray(probabilities, np.float64), np.asarray(labels)
    if p.ndim not in (1, 2) or not p.size or y.shape != p.shape[:1]:
        raise ValueError(
            f"probabilities must have shape (N,) or (N, K) and labels (N,), got {p.shape} and {y.shape}. "
            f"Average over chains and draws first: run.predict(model.predict, X)."
        )
    if not ((p >= 0) & (p <= 1 + 1e-5)).all():
        raise ValueError("probabilities must lie between 0 and 1; scores and logits need a sigmoid or softmax first.")
    if p.ndim == 1:
        p = np.stack([1 - p, p], axis=1)
        y = np.where(y == -1, 0, y)
    if not np.isin(y, np.arange(p.shape[1])).all():
        raise ValueError(f"labels must be classes 0 … {p.shape[1] - 1} (or −1 and +1), got {np.unique(y)[:10]}.")
    return p, y.astype(np.int64)
