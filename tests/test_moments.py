"""Running moments against those of the same draws: far from zero, without weight, in half precision."""

import jax.numpy as jnp
import numpy as np
import pytest

import lsmcmc as ls


@pytest.mark.parametrize("offset", [0.0, 1e5])
@pytest.mark.parametrize("num_draws", [300, 2 * 4096 + 100])
def test_moments_of_a_mean_that_is_large_for_its_spread_keep_their_digits(offset, num_draws):
    """At 1e5 sd a float32 mean moves in steps of 0.008 sd, and its error used to add up to 0.2 sd."""
    target = ls.Target(lambda x: -0.5 * jnp.sum((x - offset) ** 2))
    options = {"num_draws": num_draws, "chains": 2, "seed": 1}
    stored = ls.sample(ls.sgld(0.1), target, jnp.full(3, offset), **options)
    running = ls.sample(ls.sgld(0.1), target, jnp.full(3, offset), keep="moments", **options)
    np.testing.assert_allclose(running.mean(), stored.mean(), rtol=0, atol=2e-5)
    np.testing.assert_allclose(running.variance(), stored.variance(), rtol=2e-5)


def test_draws_without_weight_have_moments_that_are_not_a_number():
    options = {"num_draws": 10, "chains": 2, "keep": ls.Moments(weighted=True)}
    target = ls.Target(lambda x: -0.5 * jnp.sum(x**2))
    run = ls.sample(ls.sgld(0.0), target, jnp.ones(2), **options)
    assert run.num_draws == 10
    assert run.summary(weighted=True).isna().all(axis=None)
    assert np.isnan(run.mean(weighted=True)).all()
    stored = ls.sample(ls.sgld(0.0), target, jnp.ones(2), num_draws=10)
    assert np.isnan(stored.predict(lambda x: x, weighted=True)).all()
    np.testing.assert_allclose(stored.predict(lambda x: x), 1.0, rtol=1e-6)


def test_a_schedule_that_starts_at_zero_weighs_only_what_comes_after():
    target = ls.Target(lambda x: -0.5 * jnp.sum(x**2))
    sampler = ls.sgld(lambda k: jnp.where(k < 5, 0.0, 0.1))
    options = {"num_draws": 20, "chains": 2}
    stored = ls.sample(sampler, target, jnp.ones(2), **options)
    running = ls.sample(sampler, target, jnp.ones(2), keep=ls.Moments(weighted=True), **options)
    np.testing.assert_allclose(running.mean(True), stored.draws[:, 5:].mean((0, 1)), rtol=1e-5)
    np.testing.assert_allclose(running.summary(True)["sd"], stored.summary(True)["sd"], rtol=1e-5)
