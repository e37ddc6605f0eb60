"""Draws as a table, and the way to ArviZ."""

from typing import Any

import jax
import numpy as np
from jax.tree_util import keystr
from jaxtyping import PyTree

from lsmcmc.diagnostics._arrays import load_arviz, weighted_mean, weighted_variance
from lsmcmc.diagnostics._convergence import ess, per_component, rhat

_QUANTILES = (0.05, 0.5, 0.95)


def to_arviz(draws: PyTree, log_likelihood: Any = None, statistics: dict[str, Any] | None = None) -> Any:
    """Draws with leading axes (chain, draw) as ArviZ data: InferenceData (0.x) or DataTree (1.x)."""
    arviz = load_arviz()

    groups: dict[str, Any] = {"posterior": _named(draws)}
    if log_likelihood is not None:
        groups["log_likelihood"] = {"y": log_likelihood}
    if statistics:
        groups["sample_stats"] = dict(statistics)
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
            "ess_tail": per_component("ess", flat, method="tail", prob=(_QUANTILES[0], _QUANTILES[-1])),
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
        means, weight = per_chain[name], totals.weight.reshape(-1, *[1] * average.ndim)
        inside = (squares[name] / np.where(weight > 0, weight, np.nan)).mean(0)
        between = means.var(0, ddof=1) if len(means) > 1 else np.full(average.shape, np.nan)
        ratio = np.sqrt((count - 1) / count + between / np.where(inside > 0, inside, np.nan))
        for label, m, v, r in zip(
            _labels(name, average.shape), average.ravel(), spread.ravel(), ratio.ravel(), strict=True
        ):
            rows[label] = {"mean": float(m), "sd": float(np.sqrt(v)), "r_hat": float(r)}
    return pandas.DataFrame.from_dict(rows, orient="index")


def _quantile(x: Any, q: float, weights: Any) -> Any:
    if not x.size or (weights is not None and not np.sum(weights) > 0):
        return np.full(x.shape[-1], np.nan)
    flat = x.reshape(-1, x.shape[-1])
    if weights is None:
        return np.quantile(flat, q, axis=0)
    each = np.tile(weights, x.shape[0])
    return np.quantile(flat, q, axis=0, weights=each, method="inverted_cdf")


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
