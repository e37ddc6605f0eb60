"""Random numbers: those of JAX's Threefry generator, bit for bit, computed in one pass over memory.

JAX compiles Threefry's twenty rounds as a loop over whole arrays, which on a CPU is a pass over memory
for every four rounds. Here the rounds are written out, so that a compiler fuses them with what is made of
the bits (Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3"; docs/decisions/0012).
"""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.random import define_prng_impl
from jaxtyping import Array, UInt32

from lsmcmc._fusion import alone

_NAME = "threefry2x32"
_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PARITY = 0x1BD11BDA
_MANY, _ROUND = 2**14, 2**10  # a loop whose length is no multiple of the machine's vectors is not vectorised


def fast(key: Array) -> Array:
    """The same key, for all functions of `jax.random`: they return the same numbers, sooner.

    Keys of other generators are left as they are.

    >>> key = jax.random.key(3)
    >>> bool((jax.random.normal(fast(key), (5,)) == jax.random.normal(key, (5,))).all())
    True
    """
    partitionable = jax.config.jax_threefry_partitionable  # type: ignore[attr-defined]
    known = str(jax.random.key_impl(key)) == _NAME and partitionable
    return jax.random.wrap_key_data(jax.random.key_data(key), impl=_THREEFRY) if known else key


def normal(key: Array, shape: tuple[int, ...], dtype: Any) -> Array:
    """`jax.random.normal`; many of them are drawn at a length that suits the machine, and cut."""
    size = math.prod(shape)
    if size < _MANY:
        return jax.random.normal(fast(key), shape, dtype)
    suited = -(-size // _ROUND) * _ROUND
    return alone(lambda key: jax.random.normal(key, (suited,), dtype), fast(key))[:size].reshape(shape)


def _hash(key: UInt32[Array, "2"], high: Any, low: Any) -> tuple[Array, Array]:
    """Threefry-2x32 with 20 rounds, of a counter of two words."""
    keys = (key[0], key[1], key[0] ^ key[1] ^ np.uint32(_PARITY))
    a, b = high + keys[0], low + keys[1]
    for group in range(5):
        for distance in _ROTATIONS[group % 2]:
            a = a + b
            b = a ^ ((b << np.uint32(distance)) | (b >> np.uint32(32 - distance)))
        a, b = a + keys[(group + 1) % 3], b + keys[(group + 2) % 3] + np.uint32(group + 1)
    return a, b


def _counters(shape: tuple[int, ...]) -> tuple[Array, Array]:
    """0, 1, 2, … as two words each, in the shape."""
    size = math.prod(shape)
    if size >= 2**32:
        raise ValueError(f"one array of {size} random numbers is more than 2**32; split the position into leaves.")
    low = jax.lax.iota(np.uint32, size).reshape(shape)
    return jnp.zeros_like(low), low


def _seed(seed: Any) -> Array:
    return jax.random.key_data(jax.random.key(seed, impl=_NAME))


def _fold_in(key: Array, data: Any) -> Array:
    return jnp.stack(_hash(key, np.uint32(0), jnp.asarray(data, np.uint32)))


def _split(key: Array, shape: tuple[int, ...]) -> Array:
    return jnp.stack(_hash(key, *_counters(shape)), axis=-1)


def _random_bits(key: Array, width: int, shape: tuple[int, ...]) -> Array:
    a, b = _hash(key, *_counters(shape))
    if width == 64:
        return (a.astype(np.uint64) << np.uint64(32)) | b.astype(np.uint64)
    return (a ^ b).astype(f"uint{width}")


_THREEFRY = define_prng_impl(
    key_shape=(2,),
    seed=_seed,
    split=_split,
    random_bits=_random_bits,
    fold_in=_fold_in,
    name=f"{_NAME}, unrolled",
    tag="fast",
)
