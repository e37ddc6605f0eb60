"""Numbers about draws: mixing, tables, distances from a known law, scores of predictions."""

from lsmcmc.diagnostics._arrays import weighted_mean, weighted_variance
from lsmcmc.diagnostics._convergence import autocorrelation_time, ess, rhat
from lsmcmc.diagnostics._distances import covariance_mse, wasserstein2
from lsmcmc.diagnostics._scores import accuracy, brier_score, calibration_error, log_loss
from lsmcmc.diagnostics._tables import summarize, summarize_moments, to_arviz

__all__ = [
    "accuracy",
    "autocorrelation_time",
    "brier_score",
    "calibration_error",
    "covariance_mse",
    "ess",
    "log_loss",
    "rhat",
    "summarize",
    "summarize_moments",
    "to_arviz",
    "wasserstein2",
    "weighted_mean",
    "weighted_variance",
]
