"""What a run gives back: draws, summaries, predictions, and where to go on from."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree
from numpy.typing import NDArray

from lsmcmc import _trees, diagnostics
from lsmcmc.freezing import completed
from lsmcmc.keeping import Keep, Totals
from lsmcmc.lowrank import LowRank, Spread, low_rank
from lsmcmc.posterior import Posterior
from lsmcmc.streams import Stream, over_chunks


@dataclass(frozen=True, eq=False)
class Kept:
    """What is stored of a run in memory."""

    draws: PyTree
    statistics: dict[str, Any]
    step_sizes: NDArray[np.float64] | None


NOTHING = Kept(None, {}, None)


@dataclass(kw_only=True, eq=False, repr=False)
class Run:
    """Draws of all chains and what is known about them.

    `draws` has the structure of the position (or of what `keep` returned) with leading axes
    (chain, draw), as NumPy arrays in host memory; None where only moments were kept. `step_sizes`
    are those of the steps that made the draws, `statistics` what the sampler says about those steps
    (acceptance, say), each an array (chain, draw). `state` continues the run in memory. `seconds` is
    sampling alone, `compile_seconds` what the compiler took (next to nothing when it had been
    compiled before), `num_steps` the steps of each chain in this run. Draws of a run on disk are read when first
    asked for; `store` is the Zarr group that has them, for `xarray.open_zarr`.
    """

    target: Any
    state: Any
    num_chains: int
    num_draws: int
    thin: int
    num_steps: int
    seconds: float
    compile_seconds: float
    _keep: Keep
    _kept: Any
    _totals: Totals | None
    _spread: Spread | None

    @property
    def draws(self) -> PyTree:
        """The draws, None where only moments were kept."""
        return self._kept.draws

    @property
    def statistics(self) -> dict[str, Any]:
        """What the sampler says about the steps that made the draws."""
        return self._kept.statistics

    @property
    def step_sizes(self) -> NDArray[np.float64] | None:
        """Of the steps that made the draws."""
        return self._kept.step_sizes

    @property
    def store(self) -> str | None:
        """The Zarr group on disk that has the draws, None for a run in memory."""
        return getattr(self._kept, "path", None)

    def mean(self, weighted: bool = False) -> PyTree:
        """Posterior mean over chains and draws; with `weighted`, φ̂ = Σ hₜ xₜ / Σ hₜ (the paper, §4.1.1)."""
        return self._moments(weighted)[0]

    def variance(self, weighted: bool = False) -> PyTree:
        """Posterior variance over chains and draws."""
        return self._moments(weighted)[1]

    def covariance(self) -> LowRank:
        """The posterior covariance as a low-rank matrix and a diagonal, of a run with keep=ls.Moments(rank=…)."""
        if self._spread is None:
            raise ValueError("covariance() needs keep=ls.Moments(rank=K); of stored draws write numpy.cov.")
        if self.num_chains * len(self._spread.held) < 2:
            raise ValueError("this run held fewer than two draws, and a covariance needs two.")
        return low_rank(self.mean(), self.variance(), self._spread.stacked())

    def summary(self, weighted: bool = False) -> Any:
        """A table with a row per component: mean, sd, quantiles, ESS and R-hat (`diagnostics.summarize`).

        With `weighted`, mean, sd and quantiles weight each draw by its step size; ESS and R-hat do
        not. Where draws were not stored: mean, sd, and R-hat from the chains' moments.
        """
        if self._kept is not NOTHING:
            return diagnostics.summarize(self.draws, self.step_sizes if weighted else None)
        mean, variance = self._moments(weighted)
        return diagnostics.summarize_moments(mean, variance, self._totals)

    def predict(self, fn: Callable[..., PyTree], *args: Any, weighted: bool = False) -> PyTree:
        """The posterior average of `fn(position, *args)`, draw by draw, so that only the average is in memory.

        `args` (test inputs, say) are passed as data. With `weighted`, draws weigh by their step size.
        """
        if self._kept is NOTHING:
            raise ValueError(
                "this run kept moments alone, so there are no draws to average over: "
                "sample with keep=function_of_the_position, and average what it stores."
            )
        if self.num_draws == 0:
            raise ValueError("this run was stopped before its first draw, so there is nothing to average over.")
        assert self.step_sizes is not None  # there are draws
        weights = np.tile(self.step_sizes if weighted else np.ones(self.num_draws), self.num_chains)
        shares = weights / (weights.sum() or np.nan)  # as `mean`, NaN where nothing has weight
        flat = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), self.draws)
        return _average(completed(fn, self.target), flat, jnp.asarray(shares, float), args)

    def to_arviz(self, log_likelihood: bool = False) -> Any:
        """The draws as ArviZ data, for its plots and statistics; the sampler's statistics are its `sample_stats`.

        With `log_likelihood=True` also log p(dᵢ|x) of every example at every draw, for LOO and
        WAIC: chains × draws × N numbers.
        """
        if self._kept is NOTHING:
            raise ValueError("this run kept moments alone; ArviZ needs draws. Leave out keep=, or keep a function.")
        pointwise = None
        if log_likelihood:
            if not isinstance(self.target, Posterior):
                path = getattr(self.target, "path", None)
                raise ValueError(
                    "log_likelihood=True needs an ls.Posterior; this target has no examples."
                    if path is None
                    else f"log_likelihood=True needs the model, and this run was loaded without it. The ls.sample(…, "
                    f"path={str(path)!r}) that made it gives it back at once, with the model."
                )
            pointwise = _pointwise(self.target, jax.tree.map(jnp.asarray, self.draws))
        return diagnostics.to_arviz(self.draws, pointwise, self.statistics)

    def _moments(self, weighted: bool) -> tuple[PyTree, PyTree]:
        if self._kept is not NOTHING:
            weights = self.step_sizes if weighted else None
            return (
                jax.tree.map(lambda x: diagnostics.weighted_mean(x, weights), self.draws),
                jax.tree.map(lambda x: diagnostics.weighted_variance(x, weights), self.draws),
            )
        if self._keep.moments is None or weighted != self._keep.moments.weighted:
            kept = self._keep.moments is not None and self._keep.moments.weighted
            raise ValueError(
                f"this run kept moments with weighted={kept}; sample with keep=ls.Moments(weighted={weighted})."
            )
        if self._totals is None:
            raise ValueError("this run was stopped before its first draw, so it has no moments.")
        return self._totals.pooled()

    def __repr__(self) -> str:
        kept = "moments" if self._kept is NOTHING else f"{self.num_draws} draws"
        return (
            f"Run({self.num_chains} chains, {kept} each, {self.num_steps} steps, "
            f"{self.seconds:.2f} s sampling, {self.compile_seconds:.2f} s compiling)"
        )


class DivergenceError(RuntimeError):
    """A chain left the finite numbers. `run` holds the draws of all chains before that step, and the state."""

    def __init__(self, run: Run, chain: int, step: int, step_size: float):
        self.run, self.chain, self.step, self.step_size = run, chain, step, step_size
        super().__init__(
            f"chain {chain} left the finite numbers at step {step}, at step size {step_size:g}. "
            f"Write a smaller step_size, or start closer to the mode; at the first step, look for NaN in the data "
            f"and in log_likelihood. The {run.num_draws} draws before are in this error's .run."
        )

    def __reduce__(self) -> Any:
        return DivergenceError, (self.run, self.chain, self.step, self.step_size)


@eqx.filter_jit
def _average(fn: Any, positions: PyTree, weights: Float[Array, " D"], args: Any) -> PyTree:
    def add(total: PyTree, item: Any) -> tuple[PyTree, None]:
        position, weight = item
        values = jax.tree.map(jnp.asarray, fn(position, *args))
        return jax.tree.map(lambda t, v: t + weight.astype(t.dtype) * v.astype(t.dtype), total, values), None

    like = jax.eval_shape(lambda: jax.tree.map(jnp.asarray, fn(jax.tree.map(lambda leaf: leaf[0], positions), *args)))
    zero = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, _trees.wide(leaf.dtype)), like)
    return jax.lax.scan(add, zero, (positions, weights))[0]


def _pointwise(target: Posterior, draws: PyTree) -> Float[np.ndarray, "chain draw N"]:
    """Streamed data are read through once, for all draws."""
    if isinstance(target.data, Stream):
        return np.concatenate(list(over_chunks(_at_draws, target, draws)), axis=-1)
    return np.asarray(_pointwise_in_memory(target, draws))


@eqx.filter_jit
def _pointwise_in_memory(target: Posterior, draws: PyTree) -> Float[Array, "chain draw N"]:
    return jax.lax.map(lambda chain: jax.lax.map(target.pointwise_log_likelihood, chain), draws)


def _at_draws(target: Posterior, draws: PyTree, rows: PyTree) -> Float[Array, "chain draw rows"]:
    return jax.lax.map(lambda chain: jax.lax.map(lambda x: target.per_example(x, rows), chain), draws)
