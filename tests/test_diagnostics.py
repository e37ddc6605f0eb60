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


# The Wasserstein distance


def clouds(num, other, d, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(num, d)), 0.5 + 2 * rng.normal(size=(other, d))


def test_on_the_line_the_wasserstein_distance_pairs_the_sorted_points():
    x, y = clouds(200, 200, 1)
    expected = np.sqrt(np.mean((np.sort(x[:, 0]) - np.sort(y[:, 0])) ** 2))
    assert ls.diagnostics.wasserstein2(x, y) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(("num", "other"), [(60, 90), (1, 40), (100, 30)])
def test_clouds_of_unequal_sizes_weigh_the_same(num, other):
    """A cloud whose every point is repeated is the same law: repeated to a common size, sorting gives the distance."""
    x, y = clouds(num, other, 1)
    common = np.lcm(num, other)
    a, b = (np.sort(np.repeat(cloud[:, 0], common // len(cloud))) for cloud in (x, y))
    assert ls.diagnostics.wasserstein2(x, y) == pytest.approx(np.sqrt(np.mean((a - b) ** 2)), rel=1e-9)
    assert ls.diagnostics.wasserstein2(y, x) == pytest.approx(ls.diagnostics.wasserstein2(x, y), rel=1e-9)


@pytest.mark.parametrize("offset", [0.0, 1e6])
def test_a_shifted_cloud_is_as_far_as_the_shift(offset):
    x, _ = clouds(150, 1, 3)
    shift = np.array([1.0, -2.0, 2.0])
    assert ls.diagnostics.wasserstein2(x + offset, x + offset + shift) == pytest.approx(3.0, rel=1e-9)


def test_the_order_of_the_points_does_not_matter():
    x, y = clouds(150, 150, 2)
    mixed = np.random.default_rng(1).permutation(x)
    assert ls.diagnostics.wasserstein2(x, mixed) == 0.0
    assert ls.diagnostics.wasserstein2(mixed, y) == pytest.approx(ls.diagnostics.wasserstein2(x, y), rel=1e-12)


def test_in_the_plane_the_transport_is_the_best_assignment():
    from scipy.optimize import linear_sum_assignment
    from scipy.spatial.distance import cdist

    x, y = clouds(300, 300, 2)
    cost = cdist(x, y) ** 2
    best = np.sqrt(cost[linear_sum_assignment(cost)].mean())
    assert ls.diagnostics.wasserstein2(x, y) == pytest.approx(best, rel=1e-12)
    assert best < 0.95 * np.sqrt(np.trace(cost) / 300)  # another assignment is further


def test_large_gaussian_clouds_are_as_far_as_the_gaussians():
    """2,000 points a side in the plane: the bias and the spread are a few hundredths."""
    x, y = clouds(2000, 2000, 2)
    exact = ls.theory.gaussian_w2(np.zeros(2), np.eye(2), np.full(2, 0.5), 4 * np.eye(2))
    assert ls.diagnostics.wasserstein2(x, y) == pytest.approx(exact, abs=0.1)


@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        (np.zeros(3), np.zeros((3, 1)), r"x must hold points in rows, .* got shape \(3,\)"),
        (np.zeros((3, 1)), np.zeros((2, 3, 1)), r"y must hold points .* draws.reshape\(-1, d\)"),
        (np.zeros((0, 2)), np.zeros((3, 2)), r"x must hold points .* got shape \(0, 2\)"),
        (np.zeros((3, 2)), np.zeros((3, 1)), "equally many coordinates"),
        (np.array([[0.0, np.nan], [0, 0]]), np.zeros((3, 2)), "x must be finite, 1 of its points are not"),
    ],
)
def test_clouds_that_are_none_are_refused(x, y, message):
    with pytest.raises(ValueError, match=message):
        ls.diagnostics.wasserstein2(x, y)


def test_a_solver_that_stops_short_of_the_optimum_is_an_error(monkeypatch):
    monkeypatch.setattr(ls.diagnostics._distances, "_MOST_PIVOTS", 3)
    with pytest.raises(RuntimeError, match="no optimal plan between 50 and 60 points"):
        ls.diagnostics.wasserstein2(*clouds(50, 60, 2))


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
