"""Keeping a piece of a compiled function to itself."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array


def alone(fn: Callable[[Any], Array], x: Any) -> Array:
    """`fn(x)`, which XLA does not fuse with what uses it: made once, in loops of its own length.

    It is a branch on a condition that is always true, behind a barrier so that the compiler does not see that. A
    barrier by itself is taken away before fusion.

    >>> alone(lambda x: x + 1, jnp.zeros(2)).tolist()
    [1.0, 1.0]
    """
    made = jax.eval_shape(fn, x)
    always = jax.lax.optimization_barrier(jnp.asarray(True))
    return jax.lax.cond(always, fn, lambda x: jnp.zeros(made.shape, made.dtype), x)
