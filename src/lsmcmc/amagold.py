"""Amortised Metropolis: many steps on minibatches, one test on all data, and the target's law all the same."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PyTree
from numpy.typing import NDArray

from lsmcmc import _checks, _trees
from lsmcmc._trees import linear
from lsmcmc.dynamics import Dynamics
from lsmcmc.exact import above_zero
from lsmcmc.gradients import GradientEstimator


class Flight(eqx.Module):
    """U at the particle, and a proposal on its way: its displacement, its momentum now and at its start, its work."""

    potential: Float[Array, ""]
    displacement: PyTree
    momentum: PyTree
    start: PyTree
    work: Float[Array, ""]
    step_size: Float[Array, ""]
    temperature: Float[Array, ""]
    acceptance_rate: Float[Array, ""]


class AMAGOLD(Dynamics):
    """Symmetric SGHMC, tested every `num_steps` steps (Zhang, Cooper and De Sa 2020, Alg. 1).

        y½ = y + (h/2)r,  r' = ((1 − b)r − h∇(y½) + √(2hγT) ε)/(1 + b),  y' = y½ + (h/2)r',  b = hγ/2
        ρ' = ρ + (h/2)⟨∇(y½), r + r'⟩

    and at the test (y, r) is taken with probability min(1, exp((U(y₀) − U(y) + ρ)/T)), otherwise (y₀, −r₀). Until then
    the position stays at y₀, so that every draw has the target's law. h and T are those of the proposal's first step.
    """

    friction: Float[Array, ""]
    num_steps: Int[Array, ""]
    is_exact = True

    def __init__(self, friction: Any, num_steps: Any):
        self.friction = _checks.hyper("friction", friction)
        if not _checks.is_traced(self.friction) and float(self.friction) == 0:
            raise ValueError("friction must be above zero: nothing else renews the momentum. Write friction=1.0.")
        self.num_steps = jnp.asarray(_checks.count("num_steps", num_steps), jnp.int32)

    def check_schedules(self, step_sizes: NDArray[np.float64], temperatures: NDArray[np.float64]) -> None:
        """Refuse zeros."""
        above_zero("AMAGOLD", step_sizes, temperatures)

    def check_gradient(self, estimator: GradientEstimator) -> None:
        """Refuse batches whose order could not be the other way round."""
        if not estimator.is_independent:
            raise ValueError(
                f"AMAGOLD is exact where the estimates of a proposal's steps come from batches drawn independently of "
                f"each other; {estimator!r} is not of that kind. Write batch_size=32, or "
                f"gradient=ls.Minibatch(32, 'subset')."
            )

    def init(self, position: PyTree, key: Array, temperature: Float[Array, ""]) -> Flight:
        """No displacement, r ~ N(0, T I); U is filled in by the first step."""
        r = _trees.scale(jnp.sqrt(temperature), _trees.normal_like(key, position))
        zero, still = jnp.zeros((), float), jax.tree.map(jnp.zeros_like, position)
        return Flight(zero, still, r, r, zero, zero, zero, zero)

    def is_finite(self, state: Flight) -> Bool[Array, ""]:
        """A proposal may leave the finite numbers, and is then refused."""
        return _trees.all_finite((state.potential, state.start))

    def noise(self, key: Array, like: PyTree) -> PyTree:
        """ε, and the uniform number of the test."""
        first, second = jax.random.split(key)
        return _trees.normal_like(first, like), jax.random.uniform(second, dtype=float)

    def move(
        self, state: Flight, oracle: Any, noise: PyTree, step_size: Float[Array, ""], temperature: Float[Array, ""]
    ) -> tuple[PyTree, Flight]:
        """A step of the proposal, and no displacement but where it is taken."""
        phase = oracle.step % self.num_steps
        h = jnp.where(phase == 0, step_size, state.step_size)
        T = jnp.where(phase == 0, temperature, state.temperature)
        U = jax.lax.cond(oracle.step == 0, lambda: _potential(oracle, None), lambda: state.potential)
        half = linear((1, state.displacement), (h / 2, state.momentum))
        g, b = oracle.gradient(half), h * self.friction / 2
        r = linear(((1 - b) / (1 + b), state.momentum), (-h / (1 + b), g))
        r = _trees.add(r, _trees.scale(jnp.sqrt(2 * h * self.friction * T) / (1 + b), noise[0]))
        work = state.work + h / 2 * _dot(g, _trees.add(state.momentum, r))
        m = linear((1, half), (h / 2, r))
        flight = Flight(U, m, r, state.start, work, h, T, state.acceptance_rate)
        return jax.lax.cond(
            phase == self.num_steps - 1,
            lambda: _tested(flight, _potential(oracle, m), noise[1]),
            lambda: (jax.tree.map(jnp.zeros_like, m), flight),
        )

    def statistics(self, state: Flight) -> dict[str, Array]:
        """Of the last test; lp = −U."""
        return {"lp": -state.potential, "acceptance_rate": state.acceptance_rate}


def _tested(flight: Flight, potential: Float[Array, ""], uniform: Float[Array, ""]) -> tuple[PyTree, Flight]:
    """The displacement that is made, and the beginning of the next proposal."""
    log_ratio = (flight.potential - potential + flight.work) / flight.temperature
    rate = jnp.where(jnp.isnan(log_ratio), 0, jnp.exp(jnp.minimum(log_ratio, 0)))
    is_taken = uniform < rate

    def either(taken: PyTree, refused: PyTree) -> PyTree:
        return jax.tree.map(lambda a, b: jnp.where(is_taken, a, b), taken, refused)

    still = jax.tree.map(jnp.zeros_like, flight.displacement)
    r = either(flight.momentum, jax.tree.map(jnp.negative, flight.start))
    U, zero = jnp.where(is_taken, potential, flight.potential), jnp.zeros_like(flight.work)
    return either(flight.displacement, still), Flight(U, still, r, r, zero, flight.step_size, flight.temperature, rate)


def _potential(oracle: Any, m: PyTree) -> Float[Array, ""]:
    return oracle.full_potential(m).astype(float)


def _dot(x: PyTree, y: PyTree) -> Float[Array, ""]:
    products = jax.tree.map(lambda a, b: jnp.sum(a.astype(float) * b.astype(float)), x, y)
    return jnp.asarray(sum(jax.tree.leaves(products)))
