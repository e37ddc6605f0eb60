"""T5: estimators are unbiased, shown by enumerating every batch; and plans have the laws they promise."""

import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from registry import ESTIMATORS, D, linear_regression, logistic_regression
from scipy.stats import chi2

import lsmcmc as ls
from lsmcmc import shuffling

BATCHES = {
    "iid": list(itertools.product(range(6), repeat=2)),
    "subset": list(itertools.combinations(range(6), 2)),
    "epochs": list(itertools.combinations(range(6), 2)),
}
FALSE_ALARM = 1e-4  # of each test of frequencies


def check_unbiased(posterior, exact, scheme):
    """The average over all batches is the full potential and its gradient."""
    x = jnp.linspace(-1.0, 1.0, D)
    estimator = ls.Minibatch(2, scheme)

    def answer(rows):
        oracle = ls.Oracle(posterior, estimator, (), estimator.fetch(posterior, rows, x))
        return oracle.gradient(x), oracle.potential(x)

    gradients, potentials = jax.vmap(answer)(jnp.asarray(BATCHES[scheme]))
    np.testing.assert_allclose(gradients.mean(0), jax.grad(exact)(x), rtol=1e-12)
    np.testing.assert_allclose(potentials.mean(), exact(x), rtol=1e-12)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("scheme", BATCHES)
def test_the_mean_over_every_batch_is_the_full_gradient(scheme):
    posterior, X, y = linear_regression()
    check_unbiased(posterior, lambda x: 0.5 * jnp.sum((y - X @ x) ** 2) + 0.5 * jnp.sum(x**2), scheme)


@pytest.mark.usefixtures("x64")
def test_the_check_fails_when_the_prior_is_counted_with_every_example():
    posterior, X, y = linear_regression()
    prior_in_each = ls.Posterior(
        lambda x, batch: posterior.log_likelihood(x, batch) - 0.5 * jnp.sum(x**2), posterior.log_prior, (X, y)
    )
    with pytest.raises(AssertionError):
        check_unbiased(prior_in_each, lambda x: 0.5 * jnp.sum((y - X @ x) ** 2) + 0.5 * jnp.sum(x**2), "iid")


def check_frequencies(rows, outcomes):
    """Batches, as sorted tuples, against their exact probabilities."""
    names, seen = np.unique(rows, axis=0, return_counts=True)
    expected = np.array([outcomes[tuple(name)] for name in names]) * len(rows)
    assert len(names) == len(outcomes)
    statistic = ((seen - expected) ** 2 / expected).sum()
    assert statistic < chi2.ppf(1 - FALSE_ALARM, len(outcomes) - 1)


def batches_of(scheme, num_steps, size=2, num=6, seed=0):
    key = jax.random.key(seed)
    plan = jax.jit(jax.vmap(lambda step: shuffling.SCHEMES[scheme](key, step, size, num)))
    return np.asarray(plan(jnp.arange(num_steps)))


def test_iid_rows_are_uniform_pairs():
    check_frequencies(batches_of("iid", 20_000), dict.fromkeys(BATCHES["iid"], 1 / 36))


def test_subset_gives_every_subset_equally_often():
    rows = np.sort(batches_of("subset", 20_000), axis=1)
    check_frequencies(rows, dict.fromkeys(BATCHES["subset"], 1 / 15))


def test_epochs_give_every_subset_equally_often():
    rows = np.sort(batches_of("epochs", 30_000), axis=1)[
        ::3
    ]  # one batch a pass: those within a pass are not independent
    check_frequencies(rows, dict.fromkeys(BATCHES["subset"], 1 / 15))


def test_the_frequency_check_fails_on_a_biased_draw():
    rows = np.sort(batches_of("subset", 20_000), axis=1)
    rows[:400] = [0, 1]
    with pytest.raises(AssertionError):
        check_frequencies(rows, dict.fromkeys(BATCHES["subset"], 1 / 15))


@pytest.mark.parametrize(("num", "size"), [(6, 2), (7, 7), (1, 1), (2, 1), (64, 8), (1000, 30), (3185, 64), (65537, 1)])
def test_a_pass_visits_every_row_at_most_once_and_all_that_fit(num, size):
    steps = num // size
    for epoch in (0, 3):
        key = jax.random.key(1)
        plan = jax.jit(jax.vmap(lambda s, key=key: shuffling.epochs(key, s, size, num)))
        rows = np.asarray(plan(epoch * steps + jnp.arange(steps))).ravel()
        assert len(np.unique(rows)) == len(rows) == steps * size
        assert rows.min() >= 0
        assert rows.max() < num


def test_passes_have_different_orders_and_leave_different_rows_over():
    rows = batches_of("epochs", 40, size=5, num=23).reshape(10, 20)
    assert len({tuple(pass_) for pass_ in rows}) == 10
    assert len({tuple(sorted(set(range(23)) - set(pass_.tolist()))) for pass_ in rows}) > 5


@pytest.mark.parametrize("size", [1, 3, 6])
def test_a_subset_has_no_row_twice(size):
    rows = batches_of("subset", 500, size=size)
    assert all(len(set(batch.tolist())) == size for batch in rows)


def test_a_pass_mixes_neighbours_apart():
    """Row i's place in a pass is uncorrelated with i, over many passes."""
    num, passes = 500, 200
    keys = jax.random.split(jax.random.key(0), passes)
    orders = np.asarray(jax.jit(jax.vmap(lambda k: shuffling.permuted(k, jnp.arange(num), num)))(keys))
    correlations = [np.corrcoef(np.arange(num), order)[0, 1] for order in orders]
    assert abs(np.mean(correlations)) < 4 / math.sqrt(num * passes)
    assert abs(np.std(correlations) * math.sqrt(num) - 1) < 0.25


@pytest.mark.parametrize("name", ESTIMATORS)
def test_an_oracle_answers_repeatedly_from_one_minibatch(name):
    posterior, *_ = logistic_regression()
    x = jnp.linspace(-1.0, 1.0, D)
    oracle = ESTIMATORS[name]().oracle(posterior, jax.random.key(0), x)
    np.testing.assert_array_equal(oracle.gradient(x), oracle.gradient(x))
    np.testing.assert_allclose(oracle.gradient(x), jax.grad(oracle.potential)(x), rtol=1e-6)
    np.testing.assert_allclose(oracle.full_potential(x), -posterior.log_density(x), rtol=1e-6)


def test_a_noisy_target_adds_one_error_per_step_of_the_stated_size():
    target = ls.Target(lambda x: -0.5 * jnp.sum(x**2), noise_scale=2.0)
    x = jnp.zeros(100_000)
    oracle = ls.FullBatch().oracle(target, jax.random.key(0), x)
    xi = np.asarray(oracle.gradient(x))
    np.testing.assert_allclose(oracle.gradient(x + 1) - 1, xi, atol=1e-5)
    assert abs(xi.std() / 2 - 1) < 4 / math.sqrt(2 * 100_000)
    assert np.abs(xi - np.asarray(ls.FullBatch().oracle(target, jax.random.key(1), x).gradient(x))).max() > 1


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("chunk_size", [1, 3, 7, 39, 40, 1000])
def test_the_log_density_and_its_gradient_do_not_depend_on_the_chunks(chunk_size):
    whole, X, y = logistic_regression()
    posterior = ls.Posterior(whole.log_likelihood, whole.log_prior, (X, y), chunk_size=chunk_size)
    x = jnp.linspace(-1.0, 1.0, D)
    np.testing.assert_allclose(posterior.log_density(x), whole.log_density(x), rtol=1e-12)
    np.testing.assert_allclose(jax.grad(posterior.log_density)(x), jax.grad(whole.log_density)(x), rtol=1e-12)
    np.testing.assert_allclose(
        posterior.pointwise_log_likelihood(x), whole.log_likelihood(x, (jnp.asarray(X), jnp.asarray(y))), rtol=1e-12
    )


def test_the_log_density_never_holds_all_rows_at_once():
    """Rows are scored through a 1,000-wide layer: all at once would need 400 MB, a chunk 8 MB."""
    num, width = 100_000, 1_000
    X = np.ones((num, 4), np.float32)
    weights = jnp.ones((4, width))

    def log_likelihood(x, rows):
        return -jnp.square(jnp.tanh((rows * x) @ weights)).sum(axis=1)

    posterior = ls.Posterior(log_likelihood, lambda x: -jnp.sum(x**2), X)

    def gradient(x, data):
        return jax.grad(ls.Posterior(log_likelihood, lambda z: -jnp.sum(z**2), data).log_density)(x)

    memory = jax.jit(gradient).lower(jnp.ones(4), posterior.data).compile().memory_analysis()
    assert memory.temp_size_in_bytes < 6 * 2048 * width * 4
