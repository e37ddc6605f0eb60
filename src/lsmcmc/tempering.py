"""Replica exchange: copies of a chain at rising temperatures that swap places, so that the cold one leaves its mode."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PyTree
from numpy.typing import NDArray

from lsmcmc import _checks
from lsmcmc.equation import Info, Sampler, State
from lsmcmc.gradients import as_oracle


def tempering(
    sampler: Sampler, temperatures: Any, swap_every: int, *, energy_variance: Any = None, correction: Any = 1.0
) -> Sampler:
    """Replica exchange SG-MCMC: K replicas of each chain at rising temperatures, which swap (Deng et al. 2020, Alg. 1).

        log a = δ(Û(x) − Û(x')) − c·δ²V/2,   δ = 1/T − 1/T',   V = Var[Û(x) − Û(x')]

    is tried for neighbours x at T and x' at T' > T at every `swap_every`-th step, in turn for pairs (0, 1), (2, 3), …
    and (1, 2), (3, 4), …; the swap is made with probability min(1, a), so surely where the hotter one has less energy.
    The draw is the cold replica's. `temperatures` ascend from the sampler's own. All replicas of a chain see one batch.

    V corrects for energies that come from a batch: with c = `correction` = 1 and Gaussian noise of variance V swaps
    leave the law as it is, whatever V is. It is estimated from the rows of the batch, or given as `energy_variance`;
    with all data it is 0. Their F is 1/c, their σ̃² is V/2. `run.statistics` has the share of swaps made by each pair,
    and how often a particle went from the cold end to the hot one and back. Momenta are scaled by √(T_new/T_old).
    Cost: K gradients a step and K copies of the state; K energies at a swap.

    >>> import lsmcmc as ls
    >>> target = ls.Target(lambda x: jnp.logaddexp(-2 * (x - 4) ** 2, -2 * (x + 4) ** 2))
    >>> sampler = tempering(ls.sgld(0.05), temperatures=(1.0, 4.0, 16.0), swap_every=10)
    >>> run = ls.sample(sampler, target, jnp.array(4.0), num_draws=2_000, thin=10)
    >>> run.draws.shape, bool(0.3 < (run.draws > 0).mean() < 0.7)
    ((1, 2000), True)
    >>> sorted(run.statistics)
    ['round_trips', 'swap_rate_0_1', 'swap_rate_1_2']
    """
    return Tempering(sampler, temperatures, swap_every, energy_variance, correction)


class Swaps(eqx.Module):
    """What has come of the swaps so far."""

    tried: Int[Array, " pairs"]
    made: Int[Array, " pairs"]
    was_hottest: Bool[Array, " replicas"]  # since the particle that is here was last the coldest
    round_trips: Int[Array, ""]


class Ladder(eqx.Module):
    """What a chain of replicas remembers besides the cold position: those of the others, and every momentum."""

    hotter: PyTree
    dynamics: PyTree  # of all replicas
    swaps: Swaps


class Tempering(Sampler):
    """See `tempering`. Replicas lie along a leading axis, coldest first; a state's position is the coldest's."""

    ratios: Float[Array, " replicas"]
    swap_every: Int[Array, ""]
    energy_variance: Float[Array, ""] | None
    correction: Float[Array, ""]

    def __init__(self, sampler: Any, temperatures: Any, swap_every: Any, energy_variance: Any, correction: Any):
        if type(sampler) is not Sampler:
            raise TypeError(f"ls.tempering takes a sampler such as ls.sgld(1e-4), got {sampler!r}.")
        super().__init__(
            sampler.step_size,
            sampler.dynamics,
            sampler.preconditioner,
            sampler.temperature,
            reads_all_data=sampler.reads_all_data,
        )
        self.timetable = sampler.timetable
        self.ratios = _ladder(temperatures, sampler.temperature)
        self.swap_every = jnp.asarray(_checks.count("swap_every", swap_every), jnp.int32)
        given = None if energy_variance is None else _checks.hyper("energy_variance", energy_variance)
        self.energy_variance, self.correction = given, _checks.hyper("correction", correction)

    def check_schedules(self, step_sizes: NDArray[np.float64], temperatures: NDArray[np.float64]) -> None:
        """Refuse a temperature of 0, and what the dynamics cannot take at any of them."""
        if not (temperatures > 0).all():
            raise ValueError(
                "ls.tempering compares energies by 1/temperature, and a temperature is 0 at some step. Write one above "
                "0; in cycles, ls.cyclical(…, exploration_temperature=1.0)."
            )
        for ratio in np.asarray(self.ratios, np.float64):
            super().check_schedules(step_sizes, temperatures * ratio)

    def init(self, position: PyTree, *, key: Array) -> State:
        """All replicas at one position, each with momenta of its own temperature."""
        x, num = _checks.position(position), self.ratios.size
        temperatures, keys = self.start_temperature() * self.ratios, jax.random.split(key, num)
        dynamics = jax.vmap(lambda key, T: self.dynamics.init(x, key, T))(keys, temperatures)
        same = jax.tree.map(lambda leaf: jnp.repeat(leaf[None], num, axis=0), (x, self.preconditioner.init(x)))
        none, zero = jnp.zeros(num - 1, jnp.int32), jnp.zeros((), jnp.int32)
        return self._state(same[0], dynamics, same[1], Swaps(none, none, jnp.zeros(num, bool), zero), zero)

    def noise(self, key: Array, position: PyTree) -> PyTree:
        """ε of every replica, and a uniform number for each pair."""
        first, second = jax.random.split(key)
        each = jax.vmap(lambda key: self.dynamics.noise(key, position))(jax.random.split(first, self.ratios.size))
        return each, jax.random.uniform(second, (self.ratios.size - 1,), float)

    def transition(
        self, state: State, oracle: Any, noise: PyTree, h: Float[Array, ""], temperature: Float[Array, ""]
    ) -> tuple[State, Info]:
        """The swaps that are due, from the batch of this step, then one step of each replica."""
        oracle, temperatures, ladder = as_oracle(oracle), temperature * self.ratios, state.dynamics
        particles = _stacked(state.position, ladder.hotter), ladder.dynamics, state.preconditioner
        step = getattr(oracle, "step", None)
        step = state.step if step is None else step  # the loop's is one for all chains
        particles, swaps = jax.lax.cond(
            step % self.swap_every == self.swap_every - 1,
            lambda: self._swapped(particles, ladder.swaps, oracle, noise[1], temperatures, step // self.swap_every),
            lambda: (particles, ladder.swaps),
        )
        move = super().transition

        def one(particle: tuple[PyTree, PyTree, PyTree], noise: PyTree, T: Array) -> tuple[State, Info]:
            return move(State(*particle, state.step), oracle, noise, h, T)

        new, info = jax.vmap(one)(particles, noise[0], temperatures)
        return (
            self._state(new.position, new.dynamics, new.preconditioner, swaps, state.step + 1),
            jax.tree.map(lambda leaf: leaf[0], info),
        )

    def is_finite(self, state: State) -> Bool[Array, ""]:
        """Whether all replicas are."""
        ladder = state.dynamics
        x = _stacked(state.position, ladder.hotter)
        one = super().is_finite
        each = jax.vmap(lambda x, a, learned: one(State(x, a, learned, state.step)))
        return each(x, ladder.dynamics, state.preconditioner).all()

    def statistics(self, state: State) -> dict[str, Array]:
        """Of each pair the share of swaps made so far, NaN before the first; round trips; what the cold one says."""
        swaps = state.dynamics.swaps
        rates = jnp.where(
            swaps.tried > 0, swaps.made.astype(float) / jnp.maximum(swaps.tried, 1).astype(float), jnp.nan
        )
        cold = self.dynamics.statistics(jax.tree.map(lambda leaf: leaf[0], state.dynamics.dynamics))
        return {
            **cold,
            **{f"swap_rate_{k}_{k + 1}": rates[k] for k in range(rates.size)},
            "round_trips": swaps.round_trips,
        }

    def _swapped(
        self,
        particles: tuple[PyTree, PyTree, PyTree],
        swaps: Swaps,
        oracle: Any,
        uniforms: Float[Array, " pairs"],
        temperatures: Float[Array, " replicas"],
        turn: Int[Array, ""],
    ) -> tuple[tuple[PyTree, PyTree, PyTree], Swaps]:
        """The particles in their new places, and the count of it."""
        energies, variances = self._energies(oracle, particles[0])
        is_tried = jnp.arange(uniforms.size, dtype=jnp.int32) % 2 == (turn % 2 if uniforms.size > 1 else 0)
        log_a = log_acceptance(energies, variances, temperatures, self.correction)
        tried, made = is_tried.astype(jnp.int32), (is_tried & (jnp.log(uniforms) < log_a)).astype(jnp.int32)
        source = jnp.arange(energies.size, dtype=jnp.int32) + jnp.pad(made, (0, 1)) - jnp.pad(made, (1, 0))
        moved: Any = jax.tree.map(lambda leaf: leaf[source], particles)
        dynamics = jax.vmap(self.dynamics.swapped)(particles[1], moved[1], temperatures / temperatures[source])
        was_hottest = swaps.was_hottest[source].at[-1].set(True)
        counted = Swaps(
            swaps.tried + tried,
            swaps.made + made,
            was_hottest.at[0].set(False),
            swaps.round_trips + was_hottest[0].astype(jnp.int32),
        )
        return (moved[0], dynamics, moved[2]), counted

    def _energies(self, oracle: Any, positions: PyTree) -> tuple[Array, Array]:
        """Û of every replica and the variance of each neighbours' difference."""
        if not hasattr(oracle, "potential"):
            raise TypeError(
                "ls.tempering compares energies, and a plain function gives only gradients. By hand, step with an "
                "estimator's oracle, such as ls.Minibatch(32).oracle(posterior, key, state.position)."
            )
        energies = jax.vmap(oracle.potential)(positions).astype(float)
        if self.energy_variance is not None:
            return energies, jnp.broadcast_to(self.energy_variance, (energies.size - 1,))
        variances = oracle.variance_of_differences(positions) if hasattr(oracle, "variance_of_differences") else None
        if variances is None:
            raise _checks.ContractError(
                "ls.tempering cannot tell how noisy the energies of this gradient estimator are. Write "
                "energy_variance=, the variance of Û(x) − Û(x') of neighbours, or gradient=ls.Minibatch(32)."
            )
        return energies, variances.astype(float)

    @staticmethod
    def _state(x: PyTree, dynamics: PyTree, learned: PyTree, swaps: Swaps, step: Array) -> State:
        cold, hotter = jax.tree.map(lambda leaf: leaf[0], x), jax.tree.map(lambda leaf: leaf[1:], x)
        return State(cold, Ladder(hotter, dynamics, swaps), learned, step)


def _stacked(cold: PyTree, hotter: PyTree) -> PyTree:
    """All replicas along one axis."""
    return jax.tree.map(lambda first, rest: jnp.concatenate([first[None], rest]), cold, hotter)


def log_acceptance(
    energies: Float[Array, " replicas"],
    variances: Float[Array, " pairs"],
    temperatures: Float[Array, " replicas"],
    correction: Any = 1.0,
) -> Float[Array, " pairs"]:
    """Log a of each pair of neighbours: δ(U − U') − c·δ²V/2 with δ = 1/T − 1/T'."""
    delta = 1 / temperatures[:-1] - 1 / temperatures[1:]
    return delta * (energies[:-1] - energies[1:]) - correction * delta**2 * variances / 2


def _ladder(temperatures: Any, own: Any) -> Float[Array, " replicas"]:
    """Temperatures over the first of them, which is the sampler's; over 1 where that is a schedule."""
    try:
        rungs = np.asarray(temperatures, np.float64)
    except (TypeError, ValueError) as error:
        raise TypeError(f"temperatures must be numbers such as (1.0, 2.0, 4.0), got {temperatures!r}.") from error
    if rungs.ndim != 1 or rungs.size < 2 or not np.isfinite(rungs).all() or not (np.diff(rungs) > 0).all():
        raise ValueError(
            f"temperatures must be two or more ascending numbers, such as (1.0, 2.0, 4.0), got {temperatures!r}."
        )
    first = 1.0 if callable(own) or _checks.is_traced(own) else float(own)
    if not (rungs[0] > 0 and np.isclose(rungs[0], first, rtol=1e-6)):
        of_what = "1, as multiples of the sampler's schedule" if callable(own) else f"the sampler's own, {first:g}"
        raise ValueError(f"temperatures must begin with {of_what}, and above 0, got {rungs[0]:g}.")
    return jnp.asarray(rungs / rungs[0], float)
