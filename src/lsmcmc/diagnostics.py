"""Numbers about draws: effective sample size, R-hat, summaries, the way to ArviZ."""

import warnings
from typing import Any

import jax
import numpy as np
from jax.tree_util import keystr
from jaxtyping import PyTree

_QUANTILES = (0.05, 0.5, 0.95)
_FEW_LAGS = 512  # enough for τ up to about 100


def ess(draws: Any) -> Any:
    """Bulk effective sample size of each component, from an array with leading axes (chain, draw).

    Rank-normalised, split chains (Vehtari et al. 2021), as ArviZ computes it.

    >>> float(ess(np.random.default_rng(0).normal(size=(4, 1000)))) > 3000
    True
    """
    return _per_component("ess", draws, method="bulk")


def rhat(draws: Any) -> Any:
    """Rank-normalised split R-hat of each component, from an array with leading axes (chain, draw).

    >>> round(float(rhat(np.random.default_rng(0).normal(size=(4, 1000)))), 2)
    1.0
    """
    return _per_component("rhat", draws)


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
    values = _leading(draws, "autocorrelation_time").astype(np.float64)
    centre = weighted_mean(values, step_sizes) if mean is None else np.asarray(mean, np.float64)
    covariances, pairs, positive = _until_negative(values - centre)
    covariances, pairs = (x if per_chain else x.mean(0, keepdims=True) for x in (covariances, pairs))
    total = np.where(positive, pairs, 0).sum(1)
    tau = total / np.where(covariances[:, 0] > 0, covariances[:, 0], np.nan) - 0.5
    return tau if per_chain else tau[0]


def covariance_mse(draws: Any, target: Any, *, mean: Any = None) -> Any:
    """Mean squared error over the entries of each chain's covariance matrix, against the true one.

    `draws` has axes (chain, draw, d); the covariance is about the true `mean`, 0 by default.

    >>> covariance_mse(np.array([[[1.0], [-1.0]]]), [[2.0]]).tolist()
    [1.0]
    """
    values = _leading(draws, "covariance_mse").astype(np.float64) - (0.0 if mean is None else np.asarray(mean))
    found = np.einsum("cti,ctj->cij", values, values) / values.shape[1]
    return ((found - np.asarray(target, np.float64)) ** 2).mean((1, 2))


def to_arviz(draws: PyTree, log_likelihood: Any = None) -> Any:
    """Draws with leading axes (chain, draw) as ArviZ data: InferenceData (0.x) or DataTree (1.x)."""
    arviz = _arviz()

    groups: dict[str, Any] = {"posterior": _named(draws)}
    if log_likelihood is not None:
        groups["log_likelihood"] = {"y": log_likelihood}
    is_old = arviz.__version__.startswith("0.")
    return arviz.from_dict(**groups) if is_old else arviz.from_dict(groups)


def summarize(draws: PyTree, weights: Any = None) -> Any:
    """A pandas table of mean, sd, quantiles, ESS and R-hat with a row per component."""
    import pandas

    rows: dict[str, dict[str, float]] = {}
    for name, values in _named(draws).items():
        flat = values.reshape(*values.shape[:2], int(np.prod(values.shape[2:]))).astype(np.float64)
        columns = {
            "mean": weighted_mean(flat, weights),
            "sd": np.sqrt(weighted_variance(flat, weights)),
            **{f"{q:.0%}": _quantile(flat, q, weights) for q in _QUANTILES},
            "ess_bulk": ess(flat),
            "ess_tail": _per_component("ess", flat, method="tail", prob=(_QUANTILES[0], _QUANTILES[-1])),
            "r_hat": rhat(flat),
        }
        for i, label in enumerate(_labels(name, values.shape[2:])):
            rows[label] = {column: float(entries[i]) for column, entries in columns.items()}
    return pandas.DataFrame.from_dict(rows, orient="index")


def summarize_moments(mean: PyTree, variance: PyTree, totals: Any) -> Any:
    """A pandas table of mean, sd and R-hat (Gelman and Rubin 1992) from the moments of all chains."""
    import pandas

    rows: dict[str, dict[str, float]] = {}
    per_chain, squares, count = _named(totals.mean), _named(totals.squares), int(totals.count.min())
    for (name, average), spread in zip(_named(mean).items(), _named(variance).values(), strict=True):
        means = per_chain[name].astype(np.float64)
        inside = (squares[name] / totals.weight.reshape(-1, *[1] * average.ndim)).mean(0)
        between = means.var(0, ddof=1) if len(means) > 1 else np.full(average.shape, np.nan)
        ratio = np.sqrt((count - 1) / count + between / np.where(inside > 0, inside, np.nan))
        for label, m, v, r in zip(
            _labels(name, average.shape), average.ravel(), spread.ravel(), ratio.ravel(), strict=True
        ):
            rows[label] = {"mean": float(m), "sd": float(np.sqrt(v)), "r_hat": float(r)}
    return pandas.DataFrame.from_dict(rows, orient="index")


def weighted_mean(x: Any, weights: Any = None) -> Any:
    """Mean over the axes (chain, draw), draws weighted; NaN where nothing has weight."""
    w = np.ones(x.shape[1]) if weights is None else np.asarray(weights, np.float64)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.tensordot(w, x.mean(0, dtype=np.float64), 1) / w.sum()


def weighted_variance(x: Any, weights: Any = None) -> Any:
    """Variance over the axes (chain, draw), draws weighted; NaN where nothing has weight."""
    return weighted_mean(np.square(x.astype(np.float64) - weighted_mean(x, weights)), weights)


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


def _leading(draws: Any, name: str) -> Any:
    values = np.asarray(draws)
    if values.ndim < 2:
        raise ValueError(f"{name} needs leading axes (chain, draw), got shape {values.shape}.")
    return values


def _quantile(x: Any, q: float, weights: Any) -> Any:
    if not x.size or (weights is not None and not np.sum(weights) > 0):
        return np.full(x.shape[-1], np.nan)
    flat = x.reshape(-1, x.shape[-1])
    if weights is None:
        return np.quantile(flat, q, axis=0)
    each = np.tile(weights, x.shape[0])
    return np.quantile(flat, q, axis=0, weights=each, method="inverted_cdf")


def _per_component(statistic: str, draws: Any, **options: Any) -> Any:
    """NaN where the statistic is not defined: fewer than four draws, or one chain for R-hat."""
    values = _leading(draws, statistic).astype(np.float64)
    if values.shape[1] < 4 or not values.size or (statistic == "rhat" and values.shape[0] < 2):
        return np.full(values.shape[2:], np.nan)
    arviz = _arviz()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of chains that do not move, or more chains than draws: the numbers say it
        dataset = arviz.convert_to_dataset({"x": values})
        return np.asarray(getattr(arviz, statistic)(dataset, **options)["x"])


def _named(draws: PyTree) -> dict[str, Any]:
    """Leaves by name: x for a bare array, otherwise their path, as in w or layers.0.bias."""
    leaves = jax.tree_util.tree_leaves_with_path(draws)
    named = {keystr(path, simple=True, separator=".") or "x": np.asarray(leaf) for path, leaf in leaves}
    if len(named) < len(leaves) or {"chain", "draw"} & set(named):
        raise ValueError(
            f"leaves of the position need names of their own, and not chain or draw; got "
            f"{[keystr(path, simple=True, separator='.') for path, _ in leaves]}. Rename the keys of the position."
        )
    return named


def _labels(name: str, shape: tuple[int, ...]) -> list[str]:
    return [name + (f"[{', '.join(map(str, index))}]" if index else "") for index in np.ndindex(*shape)]


def _arviz() -> Any:
    """ArviZ, loaded when used; its 0.x series announces its 1.x series at every import."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        import arviz
    return arviz
