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


LENGTHS = [(7, 7, 3, 3), (1, 1, 5, 9), (1000, 30, 16, 64)]


def pass_in_blocks(num, size, block, window, epochs=(0,)):
    """The rows of some passes, in order."""
    key, minibatch = jax.random.key(1), ls.Minibatch(size, "blocks", block=block, window=window)
    steps = jnp.asarray(epochs)[:, None] * (num // size) + jnp.arange(num // size)
    plan = jax.jit(jax.vmap(jax.vmap(lambda step: minibatch.plan(key, step, num))))
    return np.asarray(plan(steps)).reshape(len(epochs), -1)


@pytest.mark.parametrize(("num", "size", "block", "window"), LENGTHS)
def test_a_pass_in_blocks_visits_every_row_at_most_once_and_all_that_fit(num, size, block, window):
    passes = pass_in_blocks(num, size, block, window, epochs=(0, 3))
    for rows in passes:
        assert len(np.unique(rows)) == len(rows) == num // size * size
        assert rows.min() >= 0
        assert rows.max() < num
    assert num < 10 or not np.array_equal(*passes)


@pytest.mark.parametrize(("block", "window"), [(7, 91)])
def test_a_window_has_rows_of_no_more_blocks_than_stated(block, window):
    """Sorted rows of a window are a few runs of neighbours; of a pass in random order they are many."""

    def most_runs(rows):
        num_windows = -(-len(rows) // window)
        parts = [np.sort(part) for part in np.array_split(rows, num_windows)]
        return max(1 + (np.diff(part) > 1).sum() for part in parts)

    rows = pass_in_blocks(1000, 1, block, window)[0]
    allowed = window // block + 3  # blocks cut by the window's edges, and one that runs over the end of the data
    assert most_runs(rows) <= allowed
    assert most_runs(batches_of("epochs", 1000, 1, 1000).ravel()) > allowed
    assert most_runs(pass_in_blocks(1000, 1, 1, window)[0]) > allowed


def test_the_mean_over_every_start_of_the_blocks_is_the_full_gradient(x64):
    """T5: each row is equally likely at each place, as the start of the first block is, whatever the blocks."""
    posterior, X, y = linear_regression()
    x = jnp.linspace(-1.0, 1.0, D)
    exact = jax.grad(lambda x: 0.5 * jnp.sum((y - X @ x) ** 2) + 0.5 * jnp.sum(x**2))(x)
    estimator, key = ls.Minibatch(2, "blocks", block=4, window=5), jax.random.key(0)

    def answer(rows):
        return ls.Oracle(posterior, estimator, (), estimator.fetch(posterior, rows, x)).gradient(x)

    rows = jax.vmap(lambda step: estimator.plan(key, step, 6))(jnp.arange(6, dtype=jnp.int32))
    starts = (rows[:, None] + jnp.arange(6, dtype=jnp.int32)[:, None]) % 6  # (step, start, place)
    for gradients in jax.vmap(jax.vmap(answer))(starts):
        np.testing.assert_allclose(gradients.mean(0), exact, rtol=1e-12)


PLACES = jnp.asarray([0, 2, 5])


def rows_at_places(fn, count=6_000):
    """(pass, place) of 6 rows in blocks of 4 with windows of 5."""
    return np.asarray(jax.jit(jax.vmap(fn))(jax.random.split(jax.random.key(2), count)))


def test_every_row_is_equally_likely_at_every_place_of_a_pass_in_blocks():
    minibatch = ls.Minibatch(1, "blocks", block=4, window=5)
    rows = rows_at_places(lambda key: jax.vmap(lambda step: minibatch.plan(key, step, 6)[0])(PLACES))
    for place in range(3):
        check_frequencies(rows[:, place : place + 1], {(row,): 1 / 6 for row in range(6)})


def test_without_a_random_start_the_rows_left_over_by_the_blocks_would_come_late():
    rows = rows_at_places(lambda key: shuffling.block_of(key, shuffling.windowed(key, PLACES, 6, 5), 6, 4))
    with pytest.raises(AssertionError):
        check_frequencies(rows[:, :1], {(row,): 1 / 6 for row in range(6)})


def test_pairs_in_a_window_as_long_as_the_data_are_as_likely_as_in_any_pass():
    key, plan = jax.random.key(5), ls.Minibatch(2, "blocks", block=2, window=6).plan
    rows = np.asarray(jax.jit(jax.vmap(lambda step: plan(key, step, 6)))(3 * jnp.arange(10_000)))
    check_frequencies(np.sort(rows, axis=1), dict.fromkeys(BATCHES["subset"], 1 / 15))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"block": 5}, "block and window belong to scheme='blocks'; leave them out for scheme='iid'"),
        ({"scheme": "blocks", "block": 8, "window": 4}, "window must be at least block, got window=4 and block=8"),
        ({"scheme": "blocks", "window": 0}, "window must be at least 1, got 0"),
    ],
)
def test_lengths_of_blocks_that_cannot_be_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        ls.Minibatch(2, **options)


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


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("name", ESTIMATORS)
def test_an_oracle_answers_repeatedly_from_one_minibatch(name):
    posterior, *_ = logistic_regression()
    x = jnp.linspace(-1.0, 1.0, D)
    oracle = ESTIMATORS[name]().oracle(posterior, jax.random.key(0), x)
    np.testing.assert_array_equal(oracle.gradient(x), oracle.gradient(x))
    np.testing.assert_allclose(oracle.gradient(x), jax.grad(oracle.potential)(x), rtol=1e-9)
    np.testing.assert_allclose(oracle.full_potential(x), -posterior.log_density(x), rtol=1e-9)


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
