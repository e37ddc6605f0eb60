"""Running moments against those of the same draws: far from zero, without weight, in half precision."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

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


NORMAL = ls.Target(lambda x: -0.5 * jnp.sum((x["w"] * jnp.array([1.0, 2.0, 3.0])) ** 2) - 0.5 * x["b"] ** 2)
START = {"w": jnp.zeros(3), "b": jnp.array(0.0)}


def draws_of(keep=None, num_draws=200, **options):
    return ls.sample(
        ls.sgld(0.05), NORMAL, START, num_draws=num_draws, chains=2, thin=2, burn_in=3, keep=keep, **options
    )


def predictive(x, inputs):
    return {"line": inputs @ x["w"], "positive": x["b"] > 0}


def test_running_averages_of_a_function_are_those_over_the_draws():
    inputs = np.array([[1.0, 2.0, 0.0], [0.0, -1.0, 1.0]], np.float32)
    running, stored = draws_of(ls.Moments(predictive, inputs)), draws_of()
    each = stored.draws["w"] @ inputs.T
    np.testing.assert_allclose(running.mean()["line"], each.mean((0, 1)), atol=1e-5)
    np.testing.assert_allclose(running.variance()["line"], each.var((0, 1)), rtol=1e-4)
    np.testing.assert_allclose(running.mean()["positive"], (stored.draws["b"] > 0).mean(), rtol=1e-5)
    assert list(running.summary().index) == ["line[0]", "line[1]", "positive"]


def test_a_function_of_whole_positions_is_averaged_where_leaves_are_frozen():
    mask = {"w": True, "b": False}
    inputs = np.eye(3, dtype=np.float32)
    running = draws_of(ls.Moments(predictive, inputs), trainable=mask)
    np.testing.assert_allclose(running.mean()["line"], draws_of(trainable=mask).mean()["w"], atol=1e-5)


@pytest.mark.parametrize(
    ("of", "message"),
    [
        (lambda x: (), "returned nothing to average"),
        (lambda x: jax.lax.complex(x["b"], x["b"]), "must return real numbers"),
    ],
)
def test_what_cannot_be_averaged_is_refused(of, message):
    with pytest.raises(ValueError, match=message):
        draws_of(ls.Moments(of))


def test_the_last_draw_alone_is_the_last_of_all_draws():
    last, stored = draws_of("last", chunk=7), draws_of()
    assert last.draws["w"].shape == (2, 1, 3)
    assert last.num_draws == 1
    np.testing.assert_array_equal(last.draws["w"][:, 0], stored.draws["w"][:, -1])
    np.testing.assert_array_equal(last.predict(lambda x: x["b"]), last.draws["b"].mean())
    np.testing.assert_array_equal(last.step_sizes, stored.step_sizes[-1:])


@pytest.mark.parametrize("chunk", [None, 7])
def test_draws_for_the_covariance_are_spread_evenly_over_a_run_of_any_length(chunk):
    run, stored = draws_of(ls.Moments(rank=4), num_draws=37, chunk=chunk), draws_of(num_draws=37)
    held = run._spread.held
    assert sorted(held) == [8, 16, 24, 32]
    for number, positions in held.items():
        np.testing.assert_array_equal(positions["w"], stored.draws["w"][:, number - 1])
    np.testing.assert_array_equal(run.mean()["w"], draws_of("moments", num_draws=37).mean()["w"])


def dense_of(covariance):
    """The matrix, column by column."""
    flat, back = ravel_pytree(covariance.mean)
    return np.stack(
        [np.asarray(ravel_pytree(covariance.apply(back(e)))[0]) for e in np.eye(flat.size, dtype=flat.dtype)]
    )


def test_the_low_rank_covariance_is_half_the_variances_and_half_that_of_the_held_draws():
    run = draws_of(ls.Moments(rank=8))
    mean, _ = ravel_pytree(jax.tree.map(np.float32, run.mean()))
    held = np.stack([np.asarray(ravel_pytree(d)[0]) for d in zip_rows(run._spread.stacked())]) - np.asarray(mean)
    expected = np.diag(ravel_pytree(run.variance())[0]) / 2 + held.T @ held / (2 * (len(held) - 1))
    np.testing.assert_allclose(dense_of(run.covariance()), expected, rtol=2e-4, atol=1e-6)


def zip_rows(tree):
    length = len(jax.tree.leaves(tree)[0])
    return [jax.tree.map(lambda leaf: leaf[i], tree) for i in range(length)]  # noqa: B023


def test_positions_drawn_from_the_low_rank_covariance_have_it():
    covariance = draws_of(ls.Moments(rank=3)).covariance()
    drawn = jax.vmap(covariance.sample)(jax.random.split(jax.random.key(0), 20_000))
    flat = np.asarray(jax.vmap(lambda x: ravel_pytree(x)[0])(drawn), np.float64)
    expected = dense_of(covariance)
    error = (np.cov(flat.T) - expected) / np.sqrt(np.outer(np.diag(expected), np.diag(expected)))
    assert abs(error).max() < 4.5 * np.sqrt(2 / 20_000)  # false alarms below 1e-4
    np.testing.assert_allclose(flat.mean(0), ravel_pytree(covariance.mean)[0], atol=0.03)


def test_covariances_that_cannot_be_had_say_what_to_write():
    with pytest.raises(ValueError, match=r"needs keep=ls.Moments\(rank=K\)"):
        draws_of("moments").covariance()
    with pytest.raises(ValueError, match="leave out weighted=True and the function"):
        ls.Moments(rank=3, weighted=True)
