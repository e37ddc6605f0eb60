"""How well chains have mixed: effective sample size, R-hat, autocorrelation time."""

import warnings
from typing import Any

import numpy as np

from lsmcmc.diagnostics._arrays import leading, load_arviz, weighted_mean

_FEW_LAGS = 512  # enough for τ up to about 100


def ess(draws: Any) -> Any:
    """Bulk effective sample size of each component, from an array with leading axes (chain, draw).

    Rank-normalised, split chains (Vehtari et al. 2021), as ArviZ computes it.

    >>> float(ess(np.random.default_rng(0).normal(size=(4, 1000)))) > 3000
    True
    """
    return per_component("ess", draws, method="bulk")


def rhat(draws: Any) -> Any:
    """Rank-normalised split R-hat of each component, from an array with leading axes (chain, draw).

    >>> round(float(rhat(np.random.default_rng(0).normal(size=(4, 1000)))), 2)
    1.0
    """
    return per_component("rhat", draws)


def autocorrelation_time(draws: Any, *, mean: Any = None, step_sizes: Any = None, per_chain: bool = False) -> Any:
    """τ = ½ + Σ_{t ≥ 1} A(t)/A(0) of each component (the paper's Eq. AutocorrelationTime), in draws.

    A(t) = E[(φ̄ − φ(x₀))(φ̄ − φ(xₜ))], estimated over all chains at once from an array with leading axes
    (chain, draw). φ̄ is the population `mean` where it is known, otherwise φ̂ = Σ hₜφ(xₜ)/Σ hₜ with the
    `step_sizes` as weights. The sum stops before the first pair A(2k) + A(2k + 1) that is not
    positive (Geyer 1992). Effective sample size is the number of draws over 2τ.

    `per_chain` gives every chain's own τ, for intervals over chains. Their sums stop where that over all chains does:
    a stop chosen by each chain alone would follow its noise, and put τ too high on average.

    >>> x = np.random.default_rng(0).normal(size=(10, 2000))
    >>> round(float(autocorrelation_time(x, mean=0.0)), 1)  # independent draws
    0.5
    """
    values = leading(draws, "autocorrelation_time").astype(np.float64)
    centre = weighted_mean(values, step_sizes) if mean is None else np.asarray(mean, np.float64)
    covariances, pairs, positive = _until_negative(values - centre)
    covariances, pairs = (x if per_chain else x.mean(0, keepdims=True) for x in (covariances, pairs))
    total = np.where(positive, pairs, 0).sum(1)
    tau = total / np.where(covariances[:, 0] > 0, covariances[:, 0], np.nan) - 0.5
    return tau if per_chain else tau[0]


def per_component(statistic: str, draws: Any, **options: Any) -> Any:
    """NaN where the statistic is not defined: fewer than four draws, or one chain for R-hat."""
    values = leading(draws, statistic).astype(np.float64)
    if values.shape[1] < 4 or not values.size or (statistic == "rhat" and values.shape[0] < 2):
        return np.full(values.shape[2:], np.nan)
    arviz = load_arviz()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of chains that do not move, or more chains than draws: the numbers say it
        dataset = arviz.convert_to_dataset({"x": values})
        return np.asarray(getattr(arviz, statistic)(dataset, **options)["x"])


def _until_negative(centred: Any) -> tuple[Any, Any, Any]:
    """Each chain's A(t) and A(2k) + A(2k + 1), and where the mean of these has been positive so far.

    Computed for as many lags as Geyer's rule reads: it stops at the first pair that is not positive, a few τ on.
    """
    lags = _FEW_LAGS
    while True:
        covariances = _autocovariance(centred, lags)
        even = covariances.shape[1] // 2 * 2
        pairs = covariances[:, 0:even:2] + covariances[:, 1:even:2]
        positive = np.logical_and.accumulate(pairs.mean(0) > 0, axis=0)
        if lags >= centred.shape[1] or not positive[-1].any():
            return covariances, pairs, positive
        lags *= 8


def _autocovariance(centred: Any, lags: int) -> Any:
    """(1/n) Σₛ xₛ xₛ₊ₜ along axis 1 for the first lags t: exact, by FFT of overlapping blocks.

    A block of 7 lags is correlated with itself and the next lag's worth of draws, so short transforms that fit the
    cache replace one of length 2n.
    """
    from scipy import fft

    n = centred.shape[1]
    lags = min(lags, n)
    length = min(7 * lags, n)
    size = fft.next_fast_len(length + lags, real=True)
    blocks = -(-n // length)
    found = np.empty((len(centred), lags, *centred.shape[2:]))
    for chain, covariances in zip(centred, found, strict=True):
        padded = np.zeros((*chain.shape[1:], (blocks - 1) * length + size))
        padded[..., :n] = np.moveaxis(chain, 0, -1)
        windows = np.lib.stride_tricks.sliding_window_view(padded, size, axis=-1)[..., ::length, :]
        own = fft.rfft(windows[..., :length], n=size)
        waves = (own.conj() * fft.rfft(windows)).sum(-2)
        covariances[:] = np.moveaxis(fft.irfft(waves, n=size)[..., :lags], -1, 0) / n
    return found
