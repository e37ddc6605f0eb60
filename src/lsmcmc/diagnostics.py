"""Numbers about draws: effective sample size, R-hat, summaries, the way to ArviZ."""

import warnings
from typing import Any

import jax
import numpy as np
from jax.tree_util import keystr
from jaxtyping import PyTree

_QUANTILES = (0.05, 0.5, 0.95)


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
        flat = values.reshape(*values.shape[:2], -1).astype(np.float64)
        columns = {
            "mean": weighted_mean(flat, weights),
            "sd": np.sqrt(weighted_variance(flat, weights)),
            **{f"{q:.0%}": _quantile(flat, q, weights) for q in _QUANTILES},
            "ess_bulk": ess(flat),
            "ess_tail": _per_component("ess", flat, method="tail"),
            "r_hat": rhat(flat),
        }
        for i, label in enumerate(_labels(name, values.shape[2:])):
            rows[label] = {column: float(entries[i]) for column, entries in columns.items()}
    return pandas.DataFrame.from_dict(rows, orient="index")


def summarize_moments(mean: PyTree, variance: PyTree, sums: Any) -> Any:
    """A pandas table of mean, sd and R-hat (Gelman and Rubin 1992) from running moments."""
    import pandas

    rows: dict[str, dict[str, float]] = {}
    per_chain = _named(sums.mean)
    squares = _named(sums.squares)
    weight = np.asarray(sums.weight, np.float64)
    count = int(np.min(np.asarray(sums.count)))
    for (name, average), spread in zip(_named(mean).items(), _named(variance).values(), strict=True):
        means, within = per_chain[name], squares[name]
        inside = (within / weight.reshape(-1, *[1] * (within.ndim - 1))).mean(0)
        between = means.var(0, ddof=1) if len(means) > 1 else np.full(means.shape[1:], np.nan)
        ratio = np.sqrt((count - 1) / count + between / np.where(inside > 0, inside, np.nan))
        for label, m, v, r in zip(
            _labels(name, average.shape), average.ravel(), spread.ravel(), ratio.ravel(), strict=True
        ):
            rows[label] = {"mean": float(m), "sd": float(np.sqrt(v)), "r_hat": float(r)}
    return pandas.DataFrame.from_dict(rows, orient="index")


def pooled_moments(sums: Any) -> tuple[PyTree, PyTree]:
    """Mean and variance over all chains from each chain's running moments; NaN before the first draw."""
    weight = np.asarray(sums.weight, np.float64)

    def over_chains(x: Any) -> Any:
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.tensordot(weight, np.asarray(x, np.float64), 1) / weight.sum()

    def spread(mean: Any, squares: Any) -> Any:
        means = np.asarray(mean, np.float64)
        own = np.asarray(squares, np.float64).sum(0) / weight.sum()
        return own + over_chains((means - over_chains(means)) ** 2)

    return jax.tree.map(over_chains, sums.mean), jax.tree.map(spread, sums.mean, sums.squares)


def weighted_mean(x: Any, weights: Any = None) -> Any:
    """Mean over the axes (chain, draw), draws weighted."""
    return np.average(x.mean(0, dtype=np.float64), axis=0, weights=weights)


def weighted_variance(x: Any, weights: Any = None) -> Any:
    """Variance over the axes (chain, draw), draws weighted."""
    centred = x.astype(np.float64) - weighted_mean(x, weights)
    return np.average((centred**2).mean(0), axis=0, weights=weights)


def _quantile(x: Any, q: float, weights: Any) -> Any:
    flat = x.reshape(-1, x.shape[-1])
    if weights is None:
        return np.quantile(flat, q, axis=0)
    each = np.tile(weights, x.shape[0])
    return np.quantile(flat, q, axis=0, weights=each, method="inverted_cdf")


def _per_component(statistic: str, draws: Any, **options: Any) -> Any:
    arviz = _arviz()

    values = np.asarray(draws, np.float64)
    if values.ndim < 2:
        raise ValueError(f"{statistic} needs leading axes (chain, draw), got shape {values.shape}.")
    if values.shape[1] < 4:
        return np.full(values.shape[2:], np.nan)  # undefined on so few draws
    dataset = arviz.convert_to_dataset({"x": values})
    return np.asarray(getattr(arviz, statistic)(dataset, **options)["x"])


def _named(draws: PyTree) -> dict[str, Any]:
    """Leaves by name: x for a bare array, otherwise their path, as in w or layers.0.bias."""
    leaves = jax.tree_util.tree_leaves_with_path(draws)
    return {keystr(path, simple=True, separator=".") or "x": np.asarray(leaf) for path, leaf in leaves}


def _labels(name: str, shape: tuple[int, ...]) -> list[str]:
    return [name + (f"[{', '.join(map(str, index))}]" if index else "") for index in np.ndindex(*shape)]


def _arviz() -> Any:
    """ArviZ, loaded when used; its 0.x series announces its 1.x series at every import."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        import arviz
    return arviz
