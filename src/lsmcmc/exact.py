"""Dynamics that test every step on all data, so that their law is the target's at any step size: blackjax's kernels.

A kernel sees log p = −U/T as a function of the displacement in y from the particle, as one flat vector (which gathers
the position). U and ∇U at the particle are kept from the step before, so that no point is evaluated twice.
"""

from collections.abc import Callable
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Bool, Float, Int, PyTree
from numpy.typing import NDArray

from lsmcmc import _checks, _trees
from lsmcmc.dynamics import Dynamics


class Here(eqx.Module):
    """U and Bᵀ∇U at the particle, what the last step says of itself, and what has been learned."""

    potential: Float[Array, ""]
    gradient: Float[Array, " d"]
    said: dict[str, Array]
    tuning: PyTree = ()


class Corrected(Dynamics):
    """What they share: one kernel of blackjax, around a particle whose U and ∇U are known.

    Energies are all they read of the target, so gradient noise (`Target(noise_scale=)`) is none of theirs. The state
    belongs to its position: to start elsewhere, or on another target, take `init` again. ε is a key.
    """

    is_exact = reads_all_data = True
    says: ClassVar[dict[str, Any]] = {"acceptance_rate": float}  # statistics, by ArviZ's names, and their dtypes

    def check_schedules(self, step_sizes: NDArray[np.float64], temperatures: NDArray[np.float64]) -> None:
        """Refuse zeros."""
        above_zero(type(self).__name__, step_sizes, temperatures)

    def init(self, position: PyTree, key: Array, temperature: Float[Array, ""]) -> PyTree:
        """Placeholders, which the first step fills."""
        zero, _ = flat(position)
        said = {name: jnp.zeros((), dtype) for name, dtype in self.says.items()}
        return Here(jnp.zeros((), float), zero, said, self.untuned(zero))

    def is_finite(self, state: Here) -> Bool[Array, ""]:
        """U and ∇U are; the energy of a refused proposal need not be."""
        return _trees.all_finite((state.potential, state.gradient))

    def noise(self, key: Array, like: PyTree) -> PyTree:
        """The key, of which the kernel makes its numbers."""
        del like  # blackjax has the shapes
        return key

    def move(
        self, state: Here, oracle: Any, noise: PyTree, step_size: Float[Array, ""], temperature: Float[Array, ""]
    ) -> tuple[PyTree, Here]:
        """The kernel's displacement, zero where it refuses."""
        zero, unflatten = flat(oracle.position)

        def potential(m: Array) -> Array:
            return oracle.full_potential(unflatten(m)).astype(m.dtype)

        def log_density(m: Array) -> Array:
            return -potential(m) / temperature.astype(m.dtype)

        with jax.numpy_dtype_promotion("standard"):  # blackjax mixes whole numbers with floats
            value, gradient = jax.lax.cond(
                oracle.step == 0,
                lambda: jax.value_and_grad(potential)(zero),
                lambda: (state.potential, state.gradient),
            )
            here = zero, -value / temperature, -gradient / temperature
            after, info = self.kernel(noise, here, log_density, step_size, temperature, state.tuning)
            said = self.report(info, here, state.tuning, step_size)
            tuning = self.tuned(state.tuning, info, oracle, unflatten(after[0]))
        known = [-temperature * part for part in after[1:]]
        said = {name: jnp.asarray(said[name], dtype) for name, dtype in self.says.items()}
        return unflatten(after[0]), Here(known[0], known[1] if known[1:] else gradient, said, tuning)

    def kernel(
        self,
        key: Array,
        here: tuple[Array, ...],
        log_density: Callable[[Array], Array],
        h: Array,
        T: Array,
        tuning: Any,
    ) -> tuple[Any, Any]:
        """Blackjax's step from `here`: its next state, which begins alike, and what it says."""
        raise NotImplementedError(f"{type(self).__name__} must define kernel(key, here, log_density, h, T, tuning).")

    def report(self, info: Any, here: tuple[Array, ...], tuning: Any, h: Array) -> dict[str, Any]:
        """The statistics that it `says`."""
        del here, tuning, h  # the kernel knows
        return {"acceptance_rate": info.acceptance_rate}

    def untuned(self, zero: Array) -> PyTree:
        """What is known before the first step of what is to be learned; nothing by default."""
        del zero
        return ()

    def tuned(self, tuning: PyTree, info: Any, oracle: Any, m: PyTree) -> PyTree:
        """What a step that ended at `m` adds to it."""
        del info, oracle, m
        return tuning

    def statistics(self, state: Here) -> dict[str, Array]:
        """What it says, and lp = −U."""
        return {"lp": -state.potential, **state.said}


class RWM(Corrected):
    """m = h ε, accepted with probability min(1, exp((U(x) − U(x + Bm))/T)): random-walk Metropolis."""

    def kernel(
        self,
        key: Array,
        here: tuple[Array, ...],
        log_density: Callable[[Array], Array],
        h: Array,
        T: Array,
        tuning: Any,
    ) -> tuple[Any, Any]:
        """`blackjax.additive_step_random_walk`, whose σ is h."""
        from blackjax.mcmc import random_walk

        state = random_walk.RWState(*here[:2])
        return random_walk.build_additive_step()(key, state, log_density, random_walk.normal(h.astype(here[0].dtype)))


class MALA(Corrected):
    """m = −h Bᵀ∇U + √(2hT) ε, accepted by the Metropolis–Hastings ratio (Roberts and Tweedie 1996, §1.4)."""

    def kernel(
        self,
        key: Array,
        here: tuple[Array, ...],
        log_density: Callable[[Array], Array],
        h: Array,
        T: Array,
        tuning: Any,
    ) -> tuple[Any, Any]:
        """`blackjax.mala` on −U/T, whose step is hT."""
        from blackjax.mcmc import mala

        return mala.build_kernel()(key, mala.MALAState(*here), log_density, h * T)


class HMC(Corrected):
    """r ~ N(0, T I), `num_steps` leapfrog steps of length h, accepted by min(1, e^{−ΔH/T}) (Neal 2011, §5.3)."""

    num_steps: Int[Array, ""]
    says: ClassVar[dict[str, Any]] = {"acceptance_rate": float, "diverging": bool, "energy": float}

    def __init__(self, num_steps: Any):
        self.num_steps = jnp.asarray(_checks.count("num_steps", num_steps), jnp.int32)

    def kernel(
        self,
        key: Array,
        here: tuple[Array, ...],
        log_density: Callable[[Array], Array],
        h: Array,
        T: Array,
        tuning: Any,
    ) -> tuple[Any, Any]:
        """`blackjax.hmc` on −U/T with unit masses, whose time is √T ours."""
        from blackjax.mcmc import hmc

        length, masses = h * jnp.sqrt(T), jnp.ones_like(here[0])
        return hmc.build_kernel()(key, hmc.HMCState(*here), log_density, length, masses, self.num_steps)

    def report(self, info: Any, here: tuple[Array, ...], tuning: Any, h: Array) -> dict[str, Any]:
        """The energy is H/T of the point that is kept: blackjax gives that of the proposal."""
        before = 0.5 * jnp.sum(info.momentum**2) - here[1]
        energy = jnp.where(info.is_accepted, info.energy, before)
        return {"acceptance_rate": info.acceptance_rate, "diverging": info.is_divergent, "energy": energy}


def flat(position: PyTree) -> tuple[Float[Array, " d"], Callable[[Array], PyTree]]:
    """No displacement, as one vector in the default float dtype, and the way back to the position's own dtypes."""
    zero, unravel = ravel_pytree(jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, float), position))
    return zero, lambda m: _trees.cast_like(unravel(m), position)


def above_zero(name: str, step_sizes: NDArray[np.float64], temperatures: NDArray[np.float64]) -> None:
    """Refuse a step size that proposes nothing, and the temperature at which there is no density."""
    if step_sizes.min(initial=1.0) <= 0:
        raise ValueError(f"{name} needs a step_size above zero: with 0 it proposes the point where it is.")
    if temperatures.min(initial=1.0) <= 0:
        raise ValueError(
            f"{name} needs a temperature above zero: at 0 there is no density exp(−U/T) to compare points by. "
            f"To descend to a mode write ls.lmc(h, temperature=0.0)."
        )
