"""Priors: functions of the whole position that give its log density, up to a constant.

Their numbers are plain and static, so that priors, models and their methods can be hashed and
compared: `jax.jit(model.predict)` works, and two models made alike are one compiled program.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from lsmcmc import _checks, _trees


class NormalPrior(eqx.Module):
    """N(0, s²I), see `normal_prior`.

    >>> float(NormalPrior(1.0)(jnp.array([3.0, 4.0])))
    -12.5
    """

    scale: float = eqx.field(static=True)

    def __init__(self, scale: Any = 1.0):
        self.scale = _number("scale", scale)
        if self.scale == 0:
            raise ValueError("scale must be above zero, got 0: a normal of no width has no density.")

    def __call__(self, position: PyTree) -> Float[Array, ""]:
        """−‖x‖²/(2s²)."""
        return -_squared_norm(position) / (2 * self.scale**2)


class GammaPrior(eqx.Module):
    """‖x‖^{−λ} exp(−θ‖x‖), see `gamma_prior`.

    >>> float(GammaPrior(rate=0.0, scale=2.0)(jnp.array([3.0, 4.0])))
    -10.0
    """

    rate: float = eqx.field(static=True)
    scale: float = eqx.field(static=True)

    def __init__(self, rate: Any = 1.0, scale: Any = 1e-2):
        self.rate = _number("rate", rate)
        self.scale = _number("scale", scale)

    def __call__(self, position: PyTree) -> Float[Array, ""]:
        """−λ log‖x‖ − θ‖x‖."""
        square = _squared_norm(position)
        return -self.rate / 2 * jnp.log(square) - self.scale * jnp.sqrt(square)


def normal_prior(scale: Any = 1.0) -> NormalPrior:
    """Independent normals of standard deviation s = `scale`, over all arrays of the position.

        log p(x) = −‖x‖²/(2s²) + const,   ∇log p(x) = −x/s²

    >>> jax.grad(normal_prior(2.0))(jnp.array([4.0])).tolist()
    [-1.0]
    """
    return NormalPrior(scale)


def gamma_prior(rate: Any = 1.0, scale: Any = 1e-2) -> GammaPrior:
    """The paper's Γ prior, with λ = `rate`, θ = `scale` and ‖x‖ the norm of the whole position, all arrays together.

        p(x) ∝ ‖x‖^{−λ} exp(−θ‖x‖),   ∇log p(x) = −λ x/‖x‖² − θ x/‖x‖

    Singular at 0, where the log density is +∞ and the gradient NaN: do not start there, as the paper
    does, but at `model.init(key)`. It has a finite integral around 0 when the position has more than
    λ coordinates. The defaults are those of the paper's logistic regression; its network has θ = 5e-4.

    >>> jax.grad(gamma_prior(rate=1.0, scale=0.0))(jnp.array([4.0])).tolist()
    [-0.25]
    """
    return GammaPrior(rate, scale)


def _number(name: str, value: Any) -> float:
    """A finite number, zero or above, in full precision."""
    _checks.hyper(name, value)
    return float(value)


def _squared_norm(position: PyTree) -> Float[Array, ""]:
    """‖x‖² of all leaves, in the widest of their dtypes and at least in float32."""
    leaves = [jnp.asarray(leaf) for leaf in jax.tree.leaves(position)]
    dtype = max((_trees.wide(leaf.dtype) for leaf in leaves), key=lambda dtype: dtype.itemsize)
    return jnp.stack([jnp.sum(jnp.square(leaf.astype(dtype))) for leaf in leaves]).sum()
