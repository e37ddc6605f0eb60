"""Which rows make a batch: every scheme is a function of (key, step), in O(B) memory, never O(N)."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, UInt32

_ROUNDS = 12  # of the Feistel network; four are the least for a pseudo-random permutation


def iid(key: Array, step: Int[Array, ""], size: int, num: int) -> Int[Array, " B"]:
    """`size` rows of `num`, with replacement."""
    return jax.random.randint(jax.random.fold_in(key, step), (size,), 0, num)


def subset(key: Array, step: Int[Array, ""], size: int, num: int) -> Int[Array, " B"]:
    """`size` distinct rows of `num`, every subset equally likely (Floyd's algorithm; Bentley and Floyd 1987).

    Row j = num − size + i enters as itself if the draw from 0 … j is in the batch already.
    """
    tops = jnp.arange(num - size, num)
    draws = jax.random.randint(jax.random.fold_in(key, step), (size,), 0, tops + 1)

    def place(i: Array, rows: Array) -> Array:
        return rows.at[i].set(jnp.where((rows == draws[i]).any(), tops[i], draws[i]))

    return jax.lax.fori_loop(0, size, place, jnp.full((size,), -1, draws.dtype))


def epochs(key: Array, step: Int[Array, ""], size: int, num: int) -> Int[Array, " B"]:
    """The next `size` rows of a pass over all `num`, in an order that is new for every pass."""
    epoch, batch = jnp.divmod(step, num // size)
    return permuted(jax.random.fold_in(key, epoch), batch * size + jnp.arange(size), num)


def permuted(key: Array, places: Int[Array, " B"], num: int) -> Int[Array, " B"]:
    """What a pseudo-random permutation of 0 … num − 1 has at `places`, without writing it down.

    A Feistel network permutes the smallest 2ᵇ ≥ num numbers; values of num and above are sent
    through again until they fall inside (cycle walking), which permutes the rest.
    """
    bits = max(2, (num - 1).bit_length())
    low = bits // 2
    round_keys = jax.random.bits(key, (_ROUNDS,), jnp.uint32)

    def once(value: UInt32[Array, ""]) -> UInt32[Array, ""]:
        left_bits, right_bits = bits - low, low
        for r in range(_ROUNDS):
            left, right = value >> right_bits, value & ((1 << right_bits) - 1)
            mixed = (left ^ _mix(right ^ round_keys[r])) & ((1 << left_bits) - 1)
            value = (right << left_bits) | mixed
            left_bits, right_bits = right_bits, left_bits
        return value

    def walk(place: UInt32[Array, ""]) -> UInt32[Array, ""]:
        return jax.lax.while_loop(lambda value: value >= num, once, once(place))

    return jax.vmap(walk)(places.astype(jnp.uint32)).astype(places.dtype)


def _mix(x: UInt32[Array, ""]) -> UInt32[Array, ""]:
    """A 32-bit hash: the finaliser of MurmurHash3 (Appleby 2011)."""
    x = (x ^ (x >> 16)) * jnp.uint32(0x85EBCA6B)
    x = (x ^ (x >> 13)) * jnp.uint32(0xC2B2AE35)
    return x ^ (x >> 16)


SCHEMES: dict[str, Callable[..., Int[Array, " B"]]] = {"iid": iid, "subset": subset, "epochs": epochs}
