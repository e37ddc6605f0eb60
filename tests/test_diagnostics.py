"""Diagnostics against processes whose values are known exactly."""

import numpy as np
import pytest
from registry import precision

import lsmcmc as ls


def autoregressive(phi, num_chains, num_draws, seed=0):
    """x' = φx + ε at rest: τ = ½ + φ/(1 − φ)."""
    from scipy.signal import lfilter

    rng = np.random.default_rng(seed)
    noise = rng.normal(size=(num_chains, num_draws, len(phi)))
    noise[:, 0] /= np.sqrt(1 - np.square(phi))
    return np.stack([lfilter([1.0], [1.0, -p], noise[..., i], axis=1) for i, p in enumerate(phi)], axis=-1)


def test_the_autocorrelation_time_of_autoregressions_is_the_exact_one():
    """40 chains of 50,000 draws: the estimate has a standard error near 1 % of τ."""
    phi = np.array([0.0, 0.5, 0.9])
    found = ls.diagnostics.autocorrelation_time(autoregressive(phi, 40, 50_000), mean=0.0)
    np.testing.assert_allclose(found, 0.5 + phi / (1 - phi), rtol=0.04)


def test_the_autocorrelation_time_of_sgld_is_that_of_theory():
    import jax
    import jax.numpy as jnp

    P = precision()
    chain = ls.theory.linear_chain(P, 0.2)
    root = jnp.asarray(np.linalg.cholesky(chain.covariance()), jnp.float32)
    target = ls.Target(lambda x: -0.5 * x @ jnp.asarray(P, x.dtype) @ x)
    run = ls.sample(
        ls.sgld(0.2), target, init=lambda key: root @ jax.random.normal(key, (6,)), num_draws=20_000, chains=20
    )
    found = ls.diagnostics.autocorrelation_time(run.draws, mean=0.0)
    np.testing.assert_allclose(found, chain.autocorrelation_time(), rtol=0.06)


def test_the_empirical_mean_is_weighted_by_the_step_sizes():
    draws = np.random.default_rng(0).normal(size=(3, 400))
    weights = np.linspace(2.0, 0.1, 400)
    centre = np.average(draws.mean(0), weights=weights)
    assert ls.diagnostics.autocorrelation_time(draws, step_sizes=weights) == pytest.approx(
        ls.diagnostics.autocorrelation_time(draws, mean=centre)
    )


def test_the_covariance_error_is_that_of_numpy():
    rng = np.random.default_rng(0)
    draws, target = rng.normal(size=(3, 50, 2)) + 1, np.eye(2)
    expected = [np.mean((chain.T @ chain / 50 - target) ** 2) for chain in draws]
    np.testing.assert_allclose(ls.diagnostics.covariance_mse(draws, target), expected)
    shifted = ls.diagnostics.covariance_mse(draws, target, mean=np.ones(2))
    assert (shifted < ls.diagnostics.covariance_mse(draws, target)).all()


@pytest.mark.parametrize("statistic", [ls.diagnostics.ess, ls.diagnostics.rhat, ls.diagnostics.autocorrelation_time])
def test_draws_need_chain_and_draw_axes(statistic):
    with pytest.raises(ValueError, match=r"needs leading axes \(chain, draw\), got shape \(10,\)"):
        statistic(np.ones(10))


# Scores of predictions


def predictions(num, classes):
    rng = np.random.default_rng(0)
    p = rng.dirichlet(np.ones(classes), size=num)
    return p, np.array([rng.choice(classes, p=row) for row in p])


def test_scores_of_several_classes_are_those_of_scikit_learn():
    from sklearn import metrics

    p, y = predictions(500, 4)
    assert ls.diagnostics.log_loss(p, y) == pytest.approx(metrics.log_loss(y, p))
    assert ls.diagnostics.accuracy(p, y) == pytest.approx(metrics.accuracy_score(y, p.argmax(1)))
    assert ls.diagnostics.brier_score(p, y) == pytest.approx(metrics.brier_score_loss(y, p, scale_by_half=False))


@pytest.mark.parametrize("labels", [lambda y: y, lambda y: 2 * y - 1, lambda y: y > 0, lambda y: y.astype(np.float32)])
def test_two_classes_may_be_written_as_one_probability_and_any_usual_labels(labels):
    p, y = predictions(300, 2)
    for score in (
        ls.diagnostics.log_loss,
        ls.diagnostics.accuracy,
        ls.diagnostics.brier_score,
        ls.diagnostics.calibration_error,
    ):
        assert score(p[:, 1], labels(y)) == pytest.approx(score(p, y))


def test_the_calibration_error_is_small_for_calibrated_predictions_and_the_gap_for_others():
    p, y = predictions(200_000, 3)
    assert ls.diagnostics.calibration_error(p, y) < 0.006
    sure = np.where(p == p.max(1, keepdims=True), 0.999, 0.0005)
    gap = 0.999 - np.mean(p.argmax(1) == y)
    assert ls.diagnostics.calibration_error(sure, y) == pytest.approx(gap)


def test_a_certain_and_wrong_prediction_costs_infinitely_much():
    assert ls.diagnostics.log_loss([0.0, 1.0], [1, 1]) == np.inf


@pytest.mark.parametrize(
    ("probabilities", "labels", "message"),
    [
        ([0.5, 2.0], [0, 1], "lie between 0 and 1"),
        ([0.5, np.nan], [0, 1], "lie between 0 and 1"),
        ([0.5, 0.5], [0, 2], "classes 0 … 1"),
        ([[0.5, 0.5]], [-1], "classes 0 … 1"),
        ([0.5, 0.5], [0, 1, 1], "must have shape"),
        ([[[0.5]]], [0], "run.predict"),
        ([], [], "must have shape"),
    ],
)
def test_predictions_that_are_none_are_refused(probabilities, labels, message):
    with pytest.raises(ValueError, match=message):
        ls.diagnostics.log_loss(probabilities, labels)
