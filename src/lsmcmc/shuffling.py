"""Which rows make a batch: every scheme is a function of (key, step), in O(B) memory, never O(N)."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, UInt32

_ROUNDS = 6  # double rounds of the Feistel network; two are the least for a pseudo-random permutation


def iid(key: Array, step: Int[Array, ""], size: int, num: int) -> Int[Array, " B"]:
    """`size` rows of `num`, with replacement."""
    return jax.random.randint(jax.random.fold_in(key, step), (size,), 0, num, jnp.int32)


def subset(key: Array, step: Int[Array, ""], size: int, num: int) -> Int[Array, " B"]:
    """`size` distinct rows of `num`, every subset equally likely (Floyd's algorithm; Bentley and Floyd 1987).

    Row j = num − size + i enters as itself if the draw from 0 … j is in the batch already.
    """
    tops = jnp.arange(num - size, num, dtype=jnp.int32)
    draws = jax.random.randint(jax.random.fold_in(key, step), (size,), 0, tops + 1, jnp.int32)

    def place(i: Array, rows: Array) -> Array:
        return rows.at[i].set(jnp.where((rows == draws[i]).any(), tops[i], draws[i]))

    return jax.lax.fori_loop(0, size, place, jnp.full((size,), -1, draws.dtype))


def epochs(key: Array, step: Int[Array, ""], size: int, num: int) -> Int[Array, " B"]:
    """The next `size` rows of a pass over all `num`, in an order that is new for every pass."""
    epoch, batch = jnp.divmod(step, num // size)
    return permuted(jax.random.fold_in(key, epoch), batch * size + jnp.arange(size, dtype=jnp.int32), num)


def permuted(key: Array, places: Int[Array, " B"], num: int) -> Int[Array, " B"]:
    """What a pseudo-random permutation of 0 … num − 1 has at `places`, without writing it down.

    A Feistel network permutes the smallest 2ᵇ ≥ num numbers; values of num and above are sent
    through again until they fall inside (cycle walking), which permutes the rest.
    """
    bits = max(2, (num - 1).bit_length())
    low = bits // 2
    high = bits - low
    round_keys = jax.random.bits(key, (_ROUNDS, 2), jnp.uint32)

    def two_rounds(r: Array, halves: tuple[Array, Array]) -> tuple[Array, Array]:
        left, right = halves
        left = left ^ (_mix(right ^ round_keys[r, 0]) & ((1 << high) - 1))
        right = right ^ (_mix(left ^ round_keys[r, 1]) & ((1 << low) - 1))
        return left, right

    def once(carry: tuple[Array, Array]) -> tuple[Array, Array]:
        value, _ = carry
        halves = (value >> low, value & ((1 << low) - 1))
        left, right = jax.lax.fori_loop(0, _ROUNDS, two_rounds, halves)
        value = (left << low) | right
        return value, value < num

    def walk(place: UInt32[Array, ""]) -> UInt32[Array, ""]:
        return jax.lax.while_loop(lambda carry: ~carry[1], once, (place, jnp.asarray(False)))[0]

    return jax.vmap(walk)(places.astype(jnp.uint32)).astype(places.dtype)


def _mix(x: UInt32[Array, ""]) -> UInt32[Array, ""]:
    """A 32-bit hash: the finaliser of MurmurHash3 (Appleby 2011)."""
    x = (x ^ (x >> 16)) * jnp.uint32(0x85EBCA6B)
    x = (x ^ (x >> 13)) * jnp.uint32(0xC2B2AE35)
    return x ^ (x >> 16)


SCHEMES: dict[str, Callable[..., Int[Array, " B"]]] = {"iid": iid, "subset": subset, "epochs": epochs}
