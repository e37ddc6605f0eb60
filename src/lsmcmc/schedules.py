"""Step sizes and temperatures: a number, or a function of the step such as an optax schedule."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import Partial
from jaxtyping import Array, Float, Int
from numpy.typing import NDArray

from lsmcmc import _checks

NEEDS_NUMBERS = (
    jax.errors.ConcretizationTypeError,
    jax.errors.TracerArrayConversionError,
    jax.errors.TracerIntegerConversionError,
)
Schedule = Float[Array, ""] | Callable[[Any], Any]


def schedule(name: str, value: Any) -> Schedule:
    """A number becomes a scalar array (data, so a new value is no new compile); a function stays one."""
    return Partial(value) if callable(value) else _checks.hyper(name, value)


def at(value: Any, step: Int[Array, ""]) -> Float[Array, ""]:
    """The value at one step, inside or outside a compiled function."""
    with jax.numpy_dtype_promotion("standard"):  # a schedule mixes the whole-number step with floats
        return jnp.asarray(value(step) if callable(value) else value, dtype=float)


def over(name: str, value: Schedule, steps: NDArray[np.int64]) -> NDArray[np.float64]:
    """The values at `steps`, evaluated outside the compiled loop, and checked."""
    if not callable(value):
        return np.full(len(steps), float(value))
    with jax.numpy_dtype_promotion("standard"):
        try:
            values = jax.vmap(value)(jnp.asarray(steps, jnp.int32))
        except NEEDS_NUMBERS:  # Python `if step < …`, NumPy, a table: one step at a time, same numbers
            values = [value(int(step)) for step in steps]
    if np.shape(values) not in ((), (len(steps),)):
        shape = np.shape(values)[1:]
        raise ValueError(f"{name} must be one number at every step; the schedule gives an array of shape {shape}.")
    out = np.broadcast_to(np.asarray(values, dtype=np.float64), len(steps))
    bad = np.flatnonzero(~(np.isfinite(out) & (out >= 0)))
    if bad.size:
        raise ValueError(
            f"{name} must be finite and zero or above at every step; "
            f"the schedule gives {out[bad[0]]:g} at step {int(steps[bad[0]])}."
        )
    return out
