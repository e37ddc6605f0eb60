"""How a unit-mass particle moves: D of the one equation, in the coordinates y where x = B y.

    m, a' = D(a, ∇, ε; h, T)

`gradient()` is Bᵀ∇Û at the particle, `gradient(m)` the same at displacement m; ε is whatever
`noise` returned. D is a deterministic function of these, so its law can be tested exactly.
"""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from lsmcmc import _trees


class Dynamics(eqx.Module):
    """The contract."""

    def init(self, position: PyTree, key: Array) -> PyTree:
        """What the particle carries besides its position; nothing by default."""
        del position, key
        return ()

    def noise(self, key: Array, like: PyTree) -> PyTree:
        """ε of one step: one standard normal per coordinate by default."""
        return _trees.normal_like(key, like)

    def move(
        self,
        state: PyTree,
        gradient: Callable[..., PyTree],
        noise: PyTree,
        step_size: Float[Array, ""],
        temperature: Float[Array, ""],
    ) -> tuple[PyTree, PyTree]:
        """The displacement m and the next state."""
        raise NotImplementedError(f"{type(self).__name__} must define move(state, gradient, noise, h, T).")


class Overdamped(Dynamics):
    """m = −h Bᵀg + √(2hT) ε: Euler–Maruyama of the Langevin equation (the paper's Eq. LS-SGLD).

    The paper's η on f = U/N at inverse temperature β is h = η/N, T = N/β; Welling and Teh (2011)
    write ε = 2h.

    >>> h, T = jnp.array(0.5), jnp.array(1.0)
    >>> Overdamped().move((), lambda: jnp.array([2.0]), jnp.array([1.0]), h, T)[0].tolist()
    [0.0]
    """

    def move(
        self,
        state: PyTree,
        gradient: Callable[..., PyTree],
        noise: PyTree,
        step_size: Float[Array, ""],
        temperature: Float[Array, ""],
    ) -> tuple[PyTree, PyTree]:
        """−h Bᵀg + √(2hT) ε."""
        spread = jnp.sqrt(2 * step_size * temperature)
        displacement = jax.tree.map(
            lambda g, e: spread.astype(e.dtype) * e - step_size.astype(g.dtype) * g, gradient(), noise
        )
        return displacement, state
