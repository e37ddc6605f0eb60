"""How a unit-mass particle moves: D of the one equation, in the coordinates y where x = B y.

    m, a' = D(a, ∇, ε; h, T)

`oracle.gradient()` is Bᵀ∇Û at the particle, `oracle.gradient(m)` the same at displacement m, and
`oracle.potential`, `oracle.full_potential` the energies; ε is whatever `noise` returned. D is a
deterministic function of these, so its law can be tested exactly.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, PyTree
from numpy.typing import NDArray

from lsmcmc import _trees
from lsmcmc.preconditioners import Preconditioner


class Dynamics(eqx.Module):
    """The contract: `move`, and what it needs. A constant of the dynamics is a field.

    >>> class Drift(Dynamics):
    ...     def move(self, state, oracle, noise, step_size, temperature):
    ...         return jax.tree.map(lambda g: -step_size * g, oracle.gradient()), state
    """

    is_exact = False  # whether it leaves the target's law unchanged at any step size, which takes a constant B
    reads_all_data = False  # at every step, so that there is no gradient estimator to choose
    needs_burn_in = False  # whether a run from the start must have one

    def check(self, preconditioner: Preconditioner) -> None:
        """Refuse a preconditioner that this dynamics cannot be seen through."""
        if self.is_exact and not preconditioner.is_constant:
            raise ValueError(
                f"{type(self).__name__} compares a step with the way back, which needs the same coordinates at both "
                f"ends, and {type(preconditioner).__name__} learns from every gradient. Write a constant "
                f"preconditioner, such as ls.Laplacian(1.0)."
            )
        if preconditioner.has_divergence:
            raise ValueError(
                f"{type(self).__name__} has momenta, and the correction for a preconditioner that changes with the "
                "position is then another one than the Γ of RMSprop(gamma=True). Write gamma=False, or take ls.recipe."
            )

    def check_gradient(self, estimator: Any) -> None:
        """Refuse a gradient estimator that this dynamics is not right with."""

    def check_schedules(self, step_sizes: NDArray[np.float64], temperatures: NDArray[np.float64]) -> None:
        """Refuse step sizes and temperatures that this dynamics cannot take."""

    def planned(self, burn_in: int, thin: int, num_draws: int) -> "Dynamics":
        """The dynamics for a run of that length; itself, unless it has a warm-up or cycles."""
        del burn_in, thin, num_draws
        return self

    def init(self, position: PyTree, key: Array, temperature: Float[Array, ""]) -> PyTree:
        """What the particle carries besides its position; nothing by default."""
        del position, key, temperature
        return ()

    def is_finite(self, state: PyTree) -> Bool[Array, ""]:
        """Whether what the particle carries is finite; without it the run stops. For placeholders that are not."""
        return _trees.all_finite(state)

    def noise(self, key: Array, like: PyTree) -> PyTree:
        """ε of one step: one standard normal per coordinate by default."""
        return _trees.normal_like(key, like)

    def move(
        self,
        state: PyTree,
        oracle: Any,
        noise: PyTree,
        step_size: Float[Array, ""],
        temperature: Float[Array, ""],
    ) -> tuple[PyTree, PyTree]:
        """The displacement m and the next state."""
        raise NotImplementedError(f"{type(self).__name__} must define move(state, oracle, noise, h, T).")

    def swapped(self, own: PyTree, other: PyTree, ratio: Float[Array, ""]) -> PyTree:
        """The state here after a swap of `ls.tempering`, with the particle whose state is `other`.

        `own` is the state that was here, and `ratio` the temperature here over that where the particle was. What is
        returned must have the law of this temperature if `other` had that of its own.
        """
        if jax.tree.leaves(other):
            raise TypeError(
                f"{type(self).__name__} has no rule for swaps of particles between temperatures, which ls.tempering "
                "makes. Give it swapped(own, other, ratio), which returns the state of a particle that changes place."
            )
        del own, ratio  # a particle without momentum is its position
        return other

    def statistics(self, state: PyTree) -> dict[str, Array]:
        """Numbers about the last step, kept beside each draw; none by default."""
        del state
        return {}


class Overdamped(Dynamics):
    """m = −h Bᵀg + √(2hT) ε: Euler–Maruyama of the Langevin equation (the paper's Eq. LS-SGLD).

    The paper's η on f = U/N at inverse temperature β is h = η/N, T = N/β; Welling and Teh (2011)
    write ε = 2h.

    >>> from types import SimpleNamespace
    >>> h, T, oracle = jnp.array(0.5), jnp.array(1.0), SimpleNamespace(gradient=lambda: jnp.array([2.0]))
    >>> Overdamped().move((), oracle, jnp.array([1.0]), h, T)[0].tolist()
    [0.0]
    """

    def check(self, preconditioner: Preconditioner) -> None:
        """Any will do: Γ is the loop's, `Sampler.transition`."""

    def move(
        self,
        state: PyTree,
        oracle: Any,
        noise: PyTree,
        step_size: Float[Array, ""],
        temperature: Float[Array, ""],
    ) -> tuple[PyTree, PyTree]:
        """−h Bᵀg + √(2hT) ε."""
        spread = jnp.sqrt(2 * step_size * temperature)
        displacement = jax.tree.map(
            lambda g, e: spread.astype(e.dtype) * e - step_size.astype(g.dtype) * g, oracle.gradient(), noise
        )
        return displacement, state
