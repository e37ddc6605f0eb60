"""What a run gives back: draws, summaries, predictions, and where to go on from."""

import os
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from lsmcmc import _trees, diagnostics
from lsmcmc.freezing import completed
from lsmcmc.keeping import Keep, Sums, Totals
from lsmcmc.posterior import Posterior


class Run:
    """Draws of all chains and what is known about them.

    `draws` has the structure of the position (or of what `keep` returned) with leading axes
    (chain, draw), as NumPy arrays in host memory; None where only moments were kept. `step_sizes`
    are those of the steps that made the draws, `statistics` what the sampler says about those steps
    (acceptance, say), each an array (chain, draw). `state` continues the run in memory. `seconds` is
    sampling alone, `compile_seconds` what the compiler took (next to nothing when it had been
    compiled before), `num_steps` the steps of each chain in this run.
    """

    def __init__(self, target: Any, keep: Keep, draws: PyTree, num_chains: int, num_draws: int, thin: int):
        self.target, self.keep, self.thin = target, keep, thin
        self._draws, self.num_chains, self.num_draws = draws, num_chains, num_draws
        self.step_sizes = None if keep.fn is None else np.zeros(num_draws)
        self.statistics: dict[str, Any] = {}
        self.num_stored = 0
        self.state: Any = None
        self.totals: Totals | None = None
        self.num_steps = 0
        self.seconds = 0.0
        self.compile_seconds = 0.0

    @staticmethod
    def empty(target: Any, like: PyTree, keep: Keep, num_chains: int, num_draws: int, thin: int) -> "Run":
        """Room for the draws of a run, if the machine has it."""
        needed = num_chains * num_draws * sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(like))
        available = _physical_memory()
        if available and needed > available:
            raise ValueError(
                f"{num_chains} chains of {num_draws} draws need {needed / 1e9:.1f} GB and this machine has "
                f"{available / 1e9:.1f} GB. Write a larger thin, keep=function_of_the_position, or keep='moments'."
            )
        draws = jax.tree.map(lambda leaf: np.empty((num_chains, num_draws, *leaf.shape), leaf.dtype), like)
        return Run(target, keep, draws, num_chains, num_draws, thin)

    @property
    def draws(self) -> PyTree:
        """The kept draws, leading axes (chain, draw)."""
        return None if self.keep.fn is None else self._draws

    def store(self, drawn: PyTree, step_sizes: Any, state: Any, num_steps: int, seconds: float) -> None:
        """Take the filled slots of one compiled call, and where it led."""
        now = slice(self.num_stored, self.num_stored + len(step_sizes))

        def put(held: Any, slots: Array) -> None:
            held[:, now] = np.moveaxis(np.asarray(slots)[: len(step_sizes)], 0, 1)

        if self.step_sizes is not None:
            self.step_sizes[now] = step_sizes
            draws, statistics = drawn
            jax.tree.map(put, self._draws, draws)
            for name, slots in statistics.items():
                held = self.statistics.setdefault(name, np.empty((self.num_chains, self.num_draws), slots.dtype))
                put(held, slots)
        self.num_stored += len(step_sizes)
        self.state = state
        self.num_steps += num_steps
        self.seconds += seconds

    def is_block_end(self, block: int) -> bool:
        """Whether the moments of a whole block are there to be added up."""
        return self.keep.moments is not None and self.num_stored > 0 and self.num_stored % block == 0

    def add(self, sums: Sums | None) -> None:
        """The moments of a block more."""
        if sums is not None and not any(leaf.is_deleted() for leaf in jax.tree.leaves(sums)):
            block = Totals.of(sums)
            self.totals = block if self.totals is None else self.totals.merge(block)

    def cut(self, sums: Sums | None) -> None:
        """The end: the moments of the last block, and no room for draws that were not made."""
        self.add(sums)
        self.num_draws = self.num_stored
        if self.step_sizes is not None:
            self.step_sizes = self.step_sizes[: self.num_draws]
            self._draws, self.statistics = jax.tree.map(
                lambda held: held[:, : self.num_draws], (self._draws, self.statistics)
            )

    def mean(self, weighted: bool = False) -> PyTree:
        """Posterior mean over chains and draws; with `weighted`, φ̂ = Σ hₜ xₜ / Σ hₜ (the paper, §4.1.1)."""
        return self._moments(weighted)[0]

    def variance(self, weighted: bool = False) -> PyTree:
        """Posterior variance over chains and draws."""
        return self._moments(weighted)[1]

    def summary(self, weighted: bool = False) -> Any:
        """A table with a row per component: mean, sd, quantiles, ESS and R-hat (`diagnostics.summarize`).

        With `weighted`, mean, sd and quantiles weight each draw by its step size; ESS and R-hat do
        not. Where draws were not stored: mean, sd, and R-hat from the chains' moments.
        """
        if self.draws is not None:
            return diagnostics.summarize(self.draws, self.step_sizes if weighted else None)
        mean, variance = self._moments(weighted)
        return diagnostics.summarize_moments(mean, variance, self.totals)

    def predict(self, fn: Callable[..., PyTree], *args: Any, weighted: bool = False) -> PyTree:
        """The posterior average of `fn(position, *args)`, draw by draw, so that only the average is in memory.

        `args` (test inputs, say) are passed as data. With `weighted`, draws weigh by their step size.
        """
        if self.draws is None:
            raise ValueError(
                "this run kept moments alone, so there are no draws to average over: "
                "sample with keep=function_of_the_position, and average what it stores."
            )
        if self.num_draws == 0:
            raise ValueError("this run was stopped before its first draw, so there is nothing to average over.")
        assert self.step_sizes is not None  # there are draws
        weights = np.tile(self.step_sizes if weighted else np.ones(self.num_draws), self.num_chains)
        flat = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), self.draws)
        return _average(completed(fn, self.target), flat, jnp.asarray(weights / weights.sum(), float), args)

    def to_arviz(self, log_likelihood: bool = False) -> Any:
        """The draws as ArviZ data, for its plots and statistics.

        With `log_likelihood=True` also log p(dᵢ|x) of every example at every draw, for LOO and
        WAIC: chains × draws × N numbers.
        """
        if self.draws is None:
            raise ValueError("this run kept moments alone; ArviZ needs draws. Leave out keep=, or keep a function.")
        pointwise = None
        if log_likelihood:
            if not isinstance(self.target, Posterior):
                raise ValueError("log_likelihood=True needs an ls.Posterior; this target has no examples.")
            pointwise = np.asarray(_pointwise(self.target, jax.tree.map(jnp.asarray, self.draws)))
        return diagnostics.to_arviz(self.draws, pointwise)

    def _moments(self, weighted: bool) -> tuple[PyTree, PyTree]:
        if self.draws is not None:
            weights = self.step_sizes if weighted else None
            return (
                jax.tree.map(lambda x: diagnostics.weighted_mean(x, weights), self.draws),
                jax.tree.map(lambda x: diagnostics.weighted_variance(x, weights), self.draws),
            )
        if self.keep.moments is None or weighted != self.keep.moments.weighted:
            kept = self.keep.moments is not None and self.keep.moments.weighted
            raise ValueError(
                f"this run kept moments with weighted={kept}; sample with keep=ls.Moments(weighted={weighted})."
            )
        if self.totals is None:
            raise ValueError("this run was stopped before its first draw, so it has no moments.")
        return self.totals.pooled()

    def __repr__(self) -> str:
        kept = "moments" if self.draws is None else f"{self.num_draws} draws"
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


@eqx.filter_jit
def _pointwise(target: Posterior, draws: PyTree) -> Float[Array, "chain draw N"]:
    return jax.lax.map(lambda chain: jax.lax.map(target.pointwise_log_likelihood, chain), draws)


def _physical_memory() -> int:
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError, AttributeError):  # not offered by this system
        return 0
