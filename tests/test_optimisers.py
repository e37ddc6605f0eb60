"""Laplacian smoothing in optax chains against NumPy, and differential privacy: clipping, noise, and the accountant."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from dp_accounting import GaussianDpEvent, NeighboringRelation, SampledWithoutReplacementDpEvent, rdp
from registry import D, circulant, logistic_regression
from scipy.optimize import brentq
from scipy.stats import norm

import lsmcmc as ls

GRADIENTS = np.random.default_rng(4).normal(size=(7, D))


def sgd(gradients):
    """w ← w − 0.1 v, v ← 0.9 v + g."""
    v = np.zeros(D)
    for g in gradients:
        v = 0.9 * v + g
        yield -0.1 * v


def adam(gradients):
    """Kingma and Ba (2015), Algorithm 1."""
    m, v = np.zeros(D), np.zeros(D)
    for t, g in enumerate(gradients, start=1):
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g**2
        yield -0.1 * (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.999**t)) + 1e-8)


def rmsprop(gradients):
    """Tieleman and Hinton (2012), with ε inside of the root."""
    v = np.zeros(D)
    for g in gradients:
        v = 0.9 * v + 0.1 * g**2
        yield -0.1 * g / np.sqrt(v + 1e-8)


OPTIMISERS = {
    "sgd with momentum": (lambda: optax.sgd(0.1, momentum=0.9), sgd),
    "adam": (lambda: optax.adam(0.1), adam),
    "rmsprop": (lambda: optax.rmsprop(0.1), rmsprop),
}


def updates_of(optimiser):
    state, found = optimiser.init(jnp.zeros(D)), []
    with jax.numpy_dtype_promotion("standard"):  # which optax.adam needs
        for g in GRADIENTS:
            updates, state = optimiser.update(jnp.asarray(g), state)
            found.append(updates)
    return np.stack(found)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("sigma", [0.0, 1.0, 20.0])
@pytest.mark.parametrize("name", OPTIMISERS)
def test_an_optimiser_after_smoothing_is_the_optimiser_of_the_dense_smoothed_gradient(name, sigma):
    make, transcription = OPTIMISERS[name]
    smoothed = np.linalg.solve(circulant(D, sigma), GRADIENTS.T).T
    found = updates_of(optax.chain(ls.laplacian_smoothing(sigma), make()))
    np.testing.assert_allclose(found, np.stack(list(transcription(smoothed))), rtol=1e-9)
    after = updates_of(optax.chain(make(), ls.laplacian_smoothing(sigma)))
    assert np.allclose(found, after) == (sigma == 0 or name == "sgd with momentum")  # which is linear


def test_smoothing_in_a_chain_is_compiled_and_keeps_the_dtypes_of_the_leaves():
    optimiser = optax.chain(ls.laplacian_smoothing(1.0), optax.sgd(0.5))
    gradient = {"w": jnp.ones((3, 4), jnp.bfloat16), "b": jnp.ones(3)}
    updates, _ = jax.jit(optimiser.update)(gradient, optimiser.init(gradient))
    assert updates["w"].dtype == jnp.bfloat16
    np.testing.assert_allclose(updates["b"], -0.5, rtol=1e-6)


# --- DP-LSSGD ---------------------------------------------------------------------------------------------------------


def dp(key=0, **options):
    options = {"clip": 1.5, "noise_multiplier": 0.0, "sigma": 0.0, **options}
    return ls.dp_lssgd(1.0, key=jax.random.key(key), **options)


def released(optimiser, gradients):
    """Minus the update of one step."""
    updates, _ = optimiser.update(gradients, optimiser.init(None))
    return jax.tree.map(lambda leaf: -leaf, updates)


@pytest.mark.usefixtures("x64")
def test_gradients_are_clipped_over_all_leaves_one_by_one_averaged_and_smoothed():
    rows = 3 * GRADIENTS
    rows[0] *= 1e-3  # one that is short enough
    tree = {"a": jnp.asarray(rows[:, :4]), "b": jnp.asarray(rows[:, 4:])}
    clipped = rows * np.minimum(1, 1.5 / np.linalg.norm(rows, axis=1))[:, None]
    assert np.linalg.norm(clipped, axis=1).min() < 1.5 <= np.linalg.norm(clipped, axis=1).max() + 1e-9
    found = released(dp(), tree)
    np.testing.assert_allclose(np.concatenate([found["a"], found["b"]]), clipped.mean(0), rtol=1e-9)
    smooth = released(dp(sigma=2.0), jnp.asarray(rows))
    np.testing.assert_allclose(smooth, np.linalg.solve(circulant(D, 2.0), clipped.mean(0)), rtol=1e-9)


@pytest.mark.usefixtures("x64")
def test_another_row_moves_the_released_sum_by_twice_the_clip_at_most():
    """The sensitivity that the accounting takes, attained by a gradient turned round."""
    before = 10 * GRADIENTS
    for replacement in (-before[2], 1e6 * GRADIENTS[5], np.zeros(D)):
        after = before.copy()
        after[2] = replacement
        moved = 7 * np.linalg.norm(released(dp(), jnp.asarray(after)) - released(dp(), jnp.asarray(before)))
        assert moved <= 2 * 1.5 * (1 + 1e-9)
        if np.array_equal(replacement, -before[2]):
            np.testing.assert_allclose(moved, 2 * 1.5, rtol=1e-9)


def test_the_noise_of_the_released_sum_has_the_stated_size_and_another_key_another_noise():
    zeros = jnp.zeros((8, 40_000))
    noise = 8 * np.asarray(released(dp(noise_multiplier=2.0), zeros))
    assert abs(noise.std() / (2.0 * 1.5) - 1) < 4 / np.sqrt(2 * noise.size)
    assert np.abs(noise - 8 * np.asarray(released(dp(1, noise_multiplier=2.0), zeros))).max() > 1
    optimiser = dp(noise_multiplier=2.0)
    first, state = optimiser.update(zeros, optimiser.init(None))
    second, _ = optimiser.update(zeros, state)
    assert abs(np.corrcoef(first, second)[0, 1]) < 4 / np.sqrt(noise.size)


@pytest.mark.usefixtures("x64")
def test_smoothing_takes_from_the_noise_what_the_spectrum_says():
    noise = released(dp(noise_multiplier=1.0), jnp.zeros((4, 4096)))
    smoothed = released(dp(noise_multiplier=1.0, sigma=1.0), jnp.zeros((4, 4096)))
    np.testing.assert_allclose(smoothed, ls.smoothing.solve(noise, 1.0), rtol=1e-9, atol=1e-12)
    ratio = np.mean(1 / np.asarray(ls.smoothing.eigenvalues(4096, 1.0)) ** 2)
    assert abs(np.var(smoothed) / np.var(noise) / ratio - 1) < 0.15


def test_the_gradients_of_a_posterior_by_row_are_those_of_its_sum():
    posterior, X, y = logistic_regression()
    batch, x = (jnp.asarray(X[:9], jnp.float32), jnp.asarray(y[:9], jnp.float32)), jnp.linspace(-1.0, 1.0, D)
    rows = posterior.log_likelihood_gradients(x, batch)
    assert rows.shape == (9, D)
    np.testing.assert_allclose(
        rows.sum(0), jax.grad(lambda x: posterior.log_likelihood(x, batch).sum())(x), rtol=1e-4, atol=1e-6
    )


PLAN = {"batch_size": 50, "num_examples": 3185, "num_steps": 500, "delta": 1e-5}


def test_epsilon_is_the_number_of_the_accountant_for_a_sensitivity_of_two_clips():
    accountant = rdp.RdpAccountant(neighboring_relation=NeighboringRelation.REPLACE_ONE)
    event = SampledWithoutReplacementDpEvent(3185, 50, GaussianDpEvent(4.0 / 2))
    expected = accountant.compose(event, 500).get_epsilon(1e-5)
    assert ls.privacy.epsilon(4.0, **PLAN) == expected


def exact_epsilon(mu, delta):
    """Of one Gaussian release, whose sensitivity is μ standard deviations (Balle and Wang 2018, Theorem 8)."""

    def excess(eps):
        return norm.cdf(mu / 2 - eps / mu) - np.exp(eps) * norm.cdf(-mu / 2 - eps / mu) - delta

    return brentq(excess, 1e-9, 50)


@pytest.mark.parametrize("z", [2.0, 4.0, 8.0])
def test_epsilon_is_an_upper_bound_of_the_exact_one_and_would_not_be_with_half_the_sensitivity(z):
    """All rows in every batch: k Gaussian releases are one of √k times the sensitivity."""
    for steps in (1, 10):
        plan = {"batch_size": 100, "num_examples": 100, "num_steps": steps, "delta": 1e-5}
        exact = exact_epsilon(2 / z * np.sqrt(steps), 1e-5)
        for scheme in ("subset", "epochs"):
            assert exact <= ls.privacy.epsilon(z, **plan, scheme=scheme) < 1.25 * exact
        assert ls.privacy.epsilon(2 * z, **plan) < exact  # what one gets from an accountant that is told z


def test_passes_cost_as_much_as_releases_of_all_rows():
    passes = ls.privacy.epsilon(4.0, batch_size=50, num_examples=1_000, num_steps=60, delta=1e-5, scheme="epochs")
    whole = ls.privacy.epsilon(4.0, batch_size=1_000, num_examples=1_000, num_steps=3, delta=1e-5)
    np.testing.assert_allclose(passes, whole, rtol=1e-12)


def test_the_noise_multiplier_is_the_least_that_is_private_enough():
    z = ls.privacy.noise_multiplier(2.0, **PLAN)
    assert ls.privacy.epsilon(z, **PLAN) <= 2.0 < ls.privacy.epsilon(0.999 * z, **PLAN)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: ls.privacy.epsilon(0.0, **PLAN), "noise_multiplier must be above zero, got 0: without noise nothing"),
        (lambda: ls.privacy.epsilon(1.0, **{**PLAN, "delta": 1.0}), "delta must be between 0 and 1.*got 1"),
        (lambda: ls.privacy.epsilon(1.0, **{**PLAN, "batch_size": 4_000}), "batch_size is 4000 but the data have 3185"),
        (lambda: ls.privacy.epsilon(1.0, **PLAN, scheme="iid"), "scheme must be one of 'subset', 'epochs', got 'iid'"),
        (lambda: ls.privacy.epsilon(1e9, **PLAN), "the accountant cannot work with noise_multiplier=1e"),
        (lambda: ls.privacy.noise_multiplier(0.0, **PLAN), "epsilon must be above zero, got 0"),
        (lambda: ls.privacy.noise_multiplier(1e6, **PLAN), "the accountant cannot work with epsilon=1e"),
        (lambda: dp(clip=0.0), "clip must be above zero, got 0: gradients of no length say nothing"),
        (lambda: dp(clip=-1.0), "clip must be a finite number, zero or above, got -1"),
    ],
)
def test_what_cannot_be_private_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()
