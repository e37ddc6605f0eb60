"""The fast generator gives JAX's own numbers."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lsmcmc import _random, _trees

SHAPES = [(), (0,), (1,), (5,), (3, 7), (8,), (1000,)]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
@pytest.mark.parametrize("shape", SHAPES)
def test_normals_are_those_of_jax_bit_for_bit(shape, dtype):
    key = jax.random.key(5)
    expected = jax.random.normal(key, shape, dtype)
    found = _random.normal(key, shape, jnp.dtype(dtype))
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(np.asarray(found), np.asarray(expected))


def test_double_precision_normals_are_those_of_jax(x64):
    key = jax.random.key(5)
    np.testing.assert_array_equal(_random.normal(key, (9,), jnp.dtype("float64")), jax.random.normal(key, (9,)))


@pytest.mark.parametrize("size", [65_535, 65_537, 100_003])
def test_long_leaves_are_cut_from_a_friendly_length_without_changing_a_bit(size):
    key = jax.random.key(1)
    np.testing.assert_array_equal(_random.normal(key, (size,), jnp.dtype("float32")), jax.random.normal(key, (size,)))


def test_every_function_of_a_key_gives_the_same_numbers():
    key = jax.random.key(2**32 - 1)
    fast = _random.fast(key)
    np.testing.assert_array_equal(jax.random.randint(fast, (9,), 0, 3185), jax.random.randint(key, (9,), 0, 3185))
    for use in (lambda k: jax.random.split(k, (3, 2)), lambda k: jax.random.fold_in(k, 7)):
        np.testing.assert_array_equal(jax.random.key_data(use(fast)), jax.random.key_data(use(key)))


def test_a_batch_of_keys_gives_the_same_numbers_as_one_at_a_time():
    keys = jax.random.split(jax.random.key(3), 4)
    batched = jax.vmap(lambda k: _random.normal(k, (5,), jnp.dtype("float32")))(keys)
    np.testing.assert_array_equal(batched, jnp.stack([jax.random.normal(k, (5,)) for k in keys]))


def test_keys_of_another_generator_and_plain_ones_are_taken():
    other = jax.random.key(0, impl="rbg")
    assert _random.fast(other) is other
    plain = jnp.array([0, 7], jnp.uint32)
    np.testing.assert_array_equal(_random.normal(plain, (5,), jnp.dtype("float32")), jax.random.normal(plain, (5,)))


def test_more_numbers_than_the_counter_has_are_refused():
    with pytest.raises(ValueError, match=r"more than 2\*\*32; split the position into leaves"):
        jax.jit(lambda: _random.normal(jax.random.key(0), (2**16, 2**16 + 1), jnp.dtype("float32"))).lower()


def test_one_leaf_draws_with_the_key_and_several_with_one_each():
    key = jax.random.key(4)
    one = _trees.normal_like(key, jnp.zeros(3))
    np.testing.assert_array_equal(one, jax.random.normal(key, (3,)))
    first, second = jax.random.split(key)
    both = _trees.normal_like(key, {"a": jnp.zeros(3), "b": jnp.zeros((2, 2))})
    np.testing.assert_array_equal(both["a"], jax.random.normal(first, (3,)))
    np.testing.assert_array_equal(both["b"], jax.random.normal(second, (2, 2)))
