"""The no-U-turn sampler, which finds its step size and its masses while the run burns in: blackjax's, in our loop."""

from collections.abc import Callable
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Bool, Float, Int, PyTree

from lsmcmc import _checks
from lsmcmc.exact import Corrected
from lsmcmc.preconditioners import Identity, Preconditioner

_MOST_WINDOWS = 32  # they double, so there are never more


class Windows(eqx.Module):
    """Stan's warm-up as numbers: the step size is learned in all of it, the masses in windows that double.

    Windows fill [start, stop); at each of `ends` the masses are those of the window's draws, and the next begins.
    """

    burn_in: Int[Array, ""]
    start: Int[Array, ""]
    stop: Int[Array, ""]
    ends: Int[Array, " 32"]

    def __init__(self, burn_in: int):
        from blackjax.adaptation.window_adaptation import build_schedule

        with jax.numpy_dtype_promotion("standard"):  # it mixes labels and truths
            stage = np.asarray(build_schedule(burn_in)) if burn_in else np.zeros((0, 2))
        slow, ends = np.flatnonzero(stage[:, 0]), np.flatnonzero(stage[:, 1])
        self.burn_in = jnp.asarray(burn_in, jnp.int32)
        self.start = jnp.asarray(slow[0] if slow.size else burn_in, jnp.int32)
        self.stop = jnp.asarray(slow[-1] + 1 if slow.size else burn_in, jnp.int32)
        self.ends = jnp.asarray(np.pad(ends, (0, _MOST_WINDOWS - len(ends)), constant_values=-1), jnp.int32)

    def is_slow(self, step: Int[Array, ""]) -> Bool[Array, ""]:
        """Whether the masses learn from this step."""
        return (step >= self.start) & (step < self.stop)

    def is_end(self, step: Int[Array, ""]) -> Bool[Array, ""]:
        """Whether a window ends with it."""
        return (self.ends == step).any()


class Tuning(eqx.Module):
    """What is learned: s, and blackjax's states of dual averaging and of the masses, v among them."""

    s: Any
    averaging: Any
    masses: Any


class NUTS(Corrected):
    """Hamiltonian trajectories that double until they turn, a point drawn of each (Hoffman and Gelman 2014).

    A step has length h·e^s and inverse masses v, for which s is learned by dual averaging (their §3.2) and v is the
    variance of the draws in a window (Stan). `planned` says how long to learn; after that both stay.
    """

    target_acceptance: Float[Array, ""]
    windows: Windows
    max_doublings: int = eqx.field(static=True)
    needs_burn_in: bool = eqx.field(static=True)
    says: ClassVar[dict[str, Any]] = {
        "acceptance_rate": float,
        "diverging": bool,
        "energy": float,
        "n_steps": int,
        "tree_depth": int,
        "step_size": float,
    }

    def __init__(self, target_acceptance: Any = 0.8, max_doublings: int = 10, *, needs_burn_in: bool = True):
        self.target_acceptance = _checks.hyper("target_acceptance", target_acceptance, below=1.0)
        self.max_doublings = _checks.count("max_doublings", max_doublings)
        self.windows = Windows(0)
        self.needs_burn_in = needs_burn_in

    def check(self, preconditioner: Preconditioner) -> None:
        """Refuse all but the identity."""
        if type(preconditioner) is not Identity:
            raise ValueError(
                f"NUTS learns its own masses while the run burns in, and these take the place of a preconditioner; got "
                f"{type(preconditioner).__name__}. Leave it out, or write ls.hmc(…, preconditioner=…)."
            )

    def planned(self, burn_in: int, thin: int, num_draws: int) -> "NUTS":
        """One that learns during `burn_in` steps."""
        return eqx.tree_at(lambda nuts: nuts.windows, self, Windows(burn_in))

    def untuned(self, zero: Array) -> Tuning:
        """S = 0 and v = 1."""
        return _arrays(Tuning(0.0, self._averaging()[0](1.0), _masses()[0](zero.size)))

    def kernel(
        self,
        key: Array,
        here: tuple[Array, ...],
        log_density: Callable[[Array], Array],
        h: Array,
        T: Array,
        tuning: Any,
    ) -> tuple[Any, Any]:
        """`blackjax.nuts` on −U/T, whose time is √T ours."""
        from blackjax.mcmc import hmc, nuts

        step, masses = h * jnp.exp(tuning.s) * jnp.sqrt(T), tuning.masses.inverse_mass_matrix
        return nuts.build_kernel()(key, hmc.HMCState(*here), log_density, step, masses, self.max_doublings)

    def report(self, info: Any, here: tuple[Array, ...], tuning: Any, h: Array) -> dict[str, Any]:
        """By ArviZ's names: `n_steps` leapfrog steps, a gradient each."""
        return {
            "acceptance_rate": jnp.minimum(info.acceptance_rate, 1.0),  # a mean, by logarithms
            "diverging": info.is_divergent,
            "energy": info.energy,
            "n_steps": info.num_integration_steps,
            "tree_depth": info.num_trajectory_expansions,
            "step_size": h * jnp.exp(tuning.s),
        }

    def tuned(self, tuning: PyTree, info: Any, oracle: Any, m: PyTree) -> PyTree:
        """What the step adds, as long as the run burns in."""

        def learned() -> Tuning:
            return _like(self._learned(tuning, info, oracle.step, _flat(oracle.there(m))), tuning)

        return jax.lax.cond(oracle.step < self.windows.burn_in, learned, lambda: tuning)

    def _learned(self, tuning: Any, info: Any, step: Int[Array, ""], position: Array) -> Tuning:
        """Dual averaging, and the moments of the window; s is the one to try next, the average when all is learned."""
        start, average, final = self._averaging()
        _, add, estimate = _masses()
        windows, averaging, masses = self.windows, average(tuning.averaging, info.acceptance_rate), tuning.masses
        masses = _where(windows.is_slow(step), add(masses, position), masses)
        ended = start(final(averaging)), estimate(masses)
        averaging, masses = _where(windows.is_end(step), ended, (averaging, masses))
        is_last = step + 1 == windows.burn_in
        return Tuning(jnp.where(is_last, averaging.log_step_size_avg, averaging.log_step_size), averaging, masses)

    def _averaging(self) -> tuple[Callable[..., Any], ...]:
        """Blackjax's start, update and result."""
        from blackjax.adaptation.step_size import dual_averaging_adaptation

        return dual_averaging_adaptation(self.target_acceptance)


def _masses() -> tuple[Callable[..., Any], ...]:
    """Blackjax's start, update and result, of a diagonal."""
    from blackjax.adaptation.mass_matrix import mass_matrix_adaptation

    return mass_matrix_adaptation(is_diagonal_matrix=True)


def _flat(position: PyTree) -> Float[Array, " d"]:
    """The numbers of a position as one vector."""
    vector: Array = ravel_pytree(jax.tree.map(lambda leaf: leaf.astype(float), position))[0]
    return vector


def _arrays(tree: PyTree) -> PyTree:
    """Python's numbers as arrays."""
    return jax.tree.map(
        lambda x: jnp.asarray(x, float if jnp.issubdtype(jnp.result_type(x), jnp.floating) else int), tree
    )


def _like(tree: PyTree, model: PyTree) -> PyTree:
    """In the dtypes of `model`."""
    return jax.tree.map(lambda x, like: jnp.asarray(x, like.dtype), tree, model)


def _where(condition: Bool[Array, ""], tree: PyTree, other: PyTree) -> PyTree:
    return jax.tree.map(lambda a, b: jnp.where(condition, a, b), tree, other)
