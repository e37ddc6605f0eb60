"""The posterior mode, by full gradients: where control variates have their centre and chains a good start."""

import warnings
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from lsmcmc import _checks, _trees
from lsmcmc.posterior import Posterior, Target
from lsmcmc.progress import Progress

_PATIENCE = 3  # steps that are looked back on
_NEAR = 1e-4  # in units of U, a fall in them that counts as none: far inside the posterior, where U varies by d/2
_ROUNDING = 8  # units in the last place of U


def find_mode(
    target: Posterior | Target, position: PyTree, *, most_steps: int = 1_000, progress: bool | None = None
) -> PyTree:
    """A point where U is least, near `position`: L-BFGS on the full gradient (Liu and Nocedal 1989), from optax.

    Stops where U has fallen by less than 1e-4 in three steps: U varies by d/2 over a posterior of d coordinates.
    Deterministic. Reads all data, a chunk in memory at a time, about once a step and again for the line search. Of
    several modes it finds one. Shows a bar on a terminal when it takes more than a second.

    >>> import lsmcmc as ls
    >>> target = ls.Target(lambda x: -0.5 * jnp.sum((x - 3) ** 2))
    >>> [round(float(c), 3) for c in ls.find_mode(target, jnp.zeros(2))]
    [3.0, 3.0]
    """
    like = _checks.position(position)
    most_steps = _checks.count("most_steps", most_steps)
    x = jax.tree.map(lambda leaf: leaf.astype(_trees.wide(leaf.dtype)), like)
    x, state, value = _begin(target, like, x)
    falls, last = [np.inf] * _PATIENCE, _finite(value, 0)
    with Progress(most_steps, progress, "finding the mode") as bar:
        for step in range(1, most_steps + 1):
            x, state, value = _descend(target, like, x, state)
            now = _finite(value, step)
            falls, last = [*falls[1:], last - now], now
            bar.advance(1)
            if sum(falls) < _NEAR + _PATIENCE * _rounding(value):
                return _trees.cast_like(x, like)
    warnings.warn(
        f"after most_steps={most_steps} U still falls, by {falls[-1]:.2g} in the last step; the point is not the mode. "
        f"Write find_mode(…, most_steps={10 * most_steps}), or start it elsewhere.",
        stacklevel=2,
    )
    return _trees.cast_like(x, like)


def _solver() -> Any:
    import optax

    return optax.lbfgs()


def _potential(target: Any, like: PyTree) -> Any:
    """U as a function of positions in float32 at least, in which L-BFGS works."""
    return lambda x: -target.log_density(_trees.cast_like(x, like))


@eqx.filter_jit
def _begin(target: Any, like: PyTree, x: PyTree) -> tuple[PyTree, PyTree, Float[Array, ""]]:
    """Where the search begins."""
    return x, _solver().init(x), _potential(target, like)(x)


@eqx.filter_jit
def _descend(target: Any, like: PyTree, x: PyTree, state: PyTree) -> tuple[PyTree, PyTree, Float[Array, ""]]:
    """One step of L-BFGS, with U where it led."""
    import optax

    potential = _potential(target, like)
    with jax.numpy_dtype_promotion("standard"):
        value, gradient = optax.value_and_grad_from_state(potential)(x, state=state)
        updates, state = _solver().update(gradient, state, x, value=value, grad=gradient, value_fn=potential)
        x = optax.apply_updates(x, updates)
    return x, state, optax.tree.get(state, "value")


def _finite(value: Float[Array, ""], step: int) -> float:
    """U as a number, where it is one."""
    number = float(value)
    if not np.isfinite(number):
        raise ValueError(
            f"U is {number:g} after {step} steps of the search for the mode: the log density is not finite there, or "
            "has no greatest value. Start elsewhere, or give the centre: ls.ControlVariate(batch_size, center=x)."
        )
    return number


def _rounding(value: Float[Array, ""]) -> float:
    return _ROUNDING * float(jnp.finfo(value.dtype).eps) * abs(float(value))
