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


def blocks(key: Array, step: Int[Array, ""], size: int, num: int, *, block: int, window: int) -> Int[Array, " B"]:
    """The next `size` rows of a pass that reads nearly in order of the file, for data on disk.

    Three permutations, new for every pass: blocks of `block` neighbours change places, then places change within
    windows of at most `window`, and where the first block starts is uniform over all rows, which makes every row
    equally likely at every place whatever is left over by the blocks.
    """
    epoch, batch = jnp.divmod(step, num // size)
    within, between, start = jax.random.split(jax.random.fold_in(key, epoch), 3)
    places = batch * size + jnp.arange(size, dtype=jnp.int32)
    return rotated(start, block_of(between, windowed(within, places, num, window), num, block), num)


def windowed(key: Array, places: Int[Array, " B"], num: int, window: int) -> Int[Array, " B"]:
    """Each place permuted within its window: as few windows as have at most `window` places, of nearly equal length."""
    num_windows = -(-num // window)
    length, longer = divmod(num, num_windows)  # the first `longer` windows have one place more
    before = longer * (length + 1)
    which = jnp.where(places < before, places // (length + 1), longer + (places - before) // length)
    first = which * length + jnp.minimum(which, longer)
    lengths = length + (which < longer).astype(jnp.int32)
    round_keys = _round_keys(key) ^ _mix(which.astype(jnp.uint32))[:, None, None]  # each window has its own
    permute = jax.vmap(_permute, in_axes=(0, 0, 0, None))
    return first + permute(round_keys, places - first, lengths, _bits(length + (longer > 0)))


def block_of(key: Array, places: Int[Array, " B"], num: int, block: int) -> Int[Array, " B"]:
    """The places after whole blocks of `block` were permuted; what is shorter than a block stays at the end."""
    whole = num // block
    if whole < 2:
        return places
    slot, offset = jnp.divmod(places, block)
    moved = permuted(key, jnp.minimum(slot, whole - 1), whole)
    return jnp.where(slot < whole, moved, slot) * block + offset


def rotated(key: Array, rows: Int[Array, " B"], num: int) -> Int[Array, " B"]:
    """All rows moved on by the same number, round the end; any number is equally likely."""
    shift = jax.random.randint(key, (), 0, num, jnp.int32)
    return ((rows.astype(jnp.uint32) + shift.astype(jnp.uint32)) % num).astype(rows.dtype)


def permuted(key: Array, places: Int[Array, " B"], num: int) -> Int[Array, " B"]:
    """What a pseudo-random permutation of 0 … num − 1 has at `places`, without writing it down."""
    return jax.vmap(_permute, in_axes=(None, 0, None, None))(_round_keys(key), places, num, _bits(num))


def _round_keys(key: Array) -> UInt32[Array, "rounds 2"]:
    return jax.random.bits(key, (_ROUNDS, 2), jnp.uint32)


def _bits(num: int) -> int:
    """Enough for the numbers below `num`, in two halves of one at least."""
    return max(2, (num - 1).bit_length())


def _permute(
    round_keys: UInt32[Array, "rounds 2"], place: Int[Array, ""], num: int | Int[Array, ""], bits: int
) -> Int[Array, ""]:
    """One value of a pseudo-random permutation of 0 … num − 1, num ≤ 2^bits.

    A Feistel network permutes 2^bits numbers; values of num and above are sent through again until
    they fall inside (cycle walking), which permutes the rest.
    """
    low = bits // 2
    high = bits - low
    below = jnp.asarray(num, jnp.uint32)

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
        return value, value < below

    start = (place.astype(jnp.uint32), jnp.asarray(False))
    return jax.lax.while_loop(lambda carry: ~carry[1], once, start)[0].astype(place.dtype)


def _mix(x: UInt32[Array, "..."]) -> UInt32[Array, "..."]:
    """A 32-bit hash: the finaliser of MurmurHash3 (Appleby 2011)."""
    x = (x ^ (x >> 16)) * jnp.uint32(0x85EBCA6B)
    x = (x ^ (x >> 13)) * jnp.uint32(0xC2B2AE35)
    return x ^ (x >> 16)


SCHEMES: dict[str, Callable[..., Int[Array, " B"]]] = {
    "iid": iid,
    "subset": subset,
    "epochs": epochs,
    "blocks": blocks,
}
