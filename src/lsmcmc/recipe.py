"""The complete recipe of Ma, Chen and Fox (2015): a dynamics of your own from a D and a Q, Γ by differentiation."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, PyTree

from lsmcmc import _checks, _trees
from lsmcmc.dynamics import Dynamics


class Recipe(Dynamics):
    """z' = z + h(−(D + Q)∇H + TΓ) + √(2hT) √D ε, see `recipe`; z is the position y alone or with an auxiliary a."""

    D: Callable[..., Array]
    Q: Callable[..., Array] | None
    auxiliary: Callable[[PyTree], PyTree] | None
    energy: Callable[..., Array] | None

    def init(self, position: PyTree, key: Array, temperature: Float[Array, ""]) -> PyTree:
        """The auxiliary at the start."""
        return () if self.auxiliary is None else _checks.position(self.auxiliary(position))

    def swapped(self, own: PyTree, other: PyTree, ratio: Float[Array, ""]) -> PyTree:
        """√(T/T') a, which is right for the energy ½‖a‖²."""
        del own  # the auxiliary goes with its particle
        if self.energy is not None and getattr(self.energy, "func", None) is not half_square:
            raise _checks.ContractError(
                "ls.tempering knows how an auxiliary with the energy ½‖a‖² changes its temperature, and no other: "
                "leave out energy=, or sample without swaps."
            )
        return _trees.scale(jnp.sqrt(ratio), other)

    def noise(self, key: Array, like: PyTree) -> PyTree:
        """One normal for each number of z."""
        z = like if self.auxiliary is None else (like, jax.eval_shape(self.auxiliary, like))
        return _trees.normal_like(key, z)

    def move(
        self, state: PyTree, oracle: Any, noise: PyTree, step_size: Float[Array, ""], temperature: Float[Array, ""]
    ) -> tuple[PyTree, PyTree]:
        """Euler–Maruyama in z, around the particle."""
        gradient = oracle.gradient()
        parts = () if self.auxiliary is None else (state,)
        zero = jax.tree.map(jnp.zeros_like, gradient)
        z, unravel = ravel_pytree((zero, *parts))
        num = sum(leaf.size for leaf in jax.tree.leaves(gradient))

        def at(fn: Callable[..., Any], z: Array) -> Any:
            m, *rest = unravel(z)
            return fn(oracle.there(m), *rest)

        pull = jnp.concatenate([ravel_pytree(gradient)[0], jnp.zeros(z.size - num, z.dtype)])
        if self.energy is not None:
            energy = self.energy
            pull = pull + jax.grad(lambda z: at(energy, z).astype(z.dtype))(z)
        D = _form("D", at(self.D, z), z.size)
        flow = _times(D, pull) - temperature.astype(z.dtype) * _divergence(lambda z: at(self.D, z), z)
        if self.Q is not None:
            Q = self.Q
            flow = flow + _turned(_form("Q", at(Q, z), z.size), pull)
            flow = flow - temperature.astype(z.dtype) * _divergence_of_turn(lambda z: at(Q, z), z)
        eps = ravel_pytree(noise)[0]
        spread = jnp.sqrt(2 * step_size * temperature).astype(z.dtype) * _times(_root(D), eps)
        m, *new = unravel(z - step_size.astype(z.dtype) * flow + spread)
        return m, new[0] if new else state


def half_square(x: PyTree, a: PyTree) -> Float[Array, ""]:
    """½‖a‖², the energy of momenta of unit mass."""
    del x
    return jnp.asarray(sum(jnp.sum(jnp.square(leaf)) for leaf in jax.tree.leaves(a)) / 2)


def as_map(name: str, value: Any) -> Callable[..., Any]:
    """A function of z, or a constant one."""
    if callable(value):
        return _checks.function(name, value, "(position) or (position, auxiliary)")
    array = np.asarray(value, float)
    if name == "Q" and array.ndim == 2 and not np.allclose(array, -array.T):
        raise ValueError("Q must be skew-symmetric, Qᵀ = −Q; write Q − Q.T if you gave one half of it.")
    if name == "D" and (np.linalg.eigvalsh(array) if array.ndim == 2 else array).min() < -1e-9:
        raise ValueError("D must be positive semi-definite: it is the covariance of the noise.")
    return _Constant(jnp.asarray(array, float))


class _Constant(eqx.Module):
    value: Array

    def __call__(self, *z: Any) -> Array:
        return self.value


def _form(name: str, value: Any, size: int) -> Array:
    """A matrix over z, or its short form: the diagonal of D, the coupling q of Q = [[0, −q], [q, 0]]."""
    array = jnp.asarray(value)
    short = (size,) if name == "D" else (size // 2,)
    if array.shape not in ((size, size), short):
        what = "its diagonal" if name == "D" else "q, for Q = [[0, −diag q], [diag q, 0]]"
        raise _checks.ContractError(
            f"{name} must be a matrix of shape {(size, size)} over position and auxiliary, laid out one after the "
            f"other, or {what}, shape {short}; got shape {array.shape}."
        )
    return array


def _times(matrix: Array, v: Array) -> Array:
    return (matrix * v if matrix.ndim == 1 else matrix @ v).astype(v.dtype)


def _turned(Q: Array, v: Array) -> Array:
    """Q v."""
    if Q.ndim == 2:
        return (Q @ v).astype(v.dtype)
    first, second = jnp.split(v, 2)
    return jnp.concatenate([-Q * second, Q * first]).astype(v.dtype)


def _root(D: Array) -> Array:
    """√D, zero where D is."""
    if D.ndim == 1:
        return _trees.sqrt(D)
    values, vectors = jnp.linalg.eigh(D)
    return (vectors * _trees.sqrt(values)) @ vectors.T


def _along(fn: Callable[[Array], Array], z: Array, j: Array) -> Array:
    """∂fn/∂zⱼ, one forward derivative."""
    return jax.jvp(fn, (z,), (jnp.zeros_like(z).at[j].set(1),))[1].astype(z.dtype)


def _divergence(fn: Callable[[Array], Array], z: Array) -> Array:
    """Γᵢ = Σⱼ ∂Mᵢⱼ/∂zⱼ of a matrix, or of the diagonal of one."""
    index = jnp.arange(z.size)
    if jax.eval_shape(fn, z).ndim == 1:
        return jax.lax.map(lambda j: _along(fn, z, j)[j], index)
    return jax.lax.scan(lambda total, j: (total + _along(fn, z, j)[:, j], None), jnp.zeros_like(z), index)[0]


def _divergence_of_turn(fn: Callable[[Array], Array], z: Array) -> Array:
    """Γ of a Q, in either form: of the short one (−∂qᵢ/∂aᵢ, ∂qᵢ/∂yᵢ)."""
    if jax.eval_shape(fn, z).ndim == 2:
        return _divergence(fn, z)
    half = z.size // 2
    by_y, by_a = (jax.lax.map(lambda i, off=off: _along(fn, z, i + off)[i], jnp.arange(half)) for off in (0, half))
    return jnp.concatenate([-by_a, by_y])
