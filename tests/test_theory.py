"""Closed forms against sums and against simulation."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from registry import circulant, precision

import lsmcmc as ls


@pytest.mark.parametrize("d", [1, 2, 3, 4, 7, 1000])
@pytest.mark.parametrize("sigma", [0.0, 0.1, 1.0, 5.0, 1e4])
def test_gamma2_is_the_mean_of_the_inverse_eigenvalues(d, sigma):
    eigenvalues = np.linalg.eigvalsh(circulant(d, sigma))
    assert math.isclose(ls.theory.gamma2(d, sigma), np.mean(1 / eigenvalues), rel_tol=1e-9)


def test_gamma2_tends_to_one_over_the_root_of_one_plus_four_sigma():
    sigmas = np.array([0.0, 1.0, 2.0, 5.0])
    np.testing.assert_allclose(ls.theory.gamma2(10**6, sigmas), ls.theory.gamma2(None, sigmas), rtol=1e-12)
    np.testing.assert_allclose(ls.theory.gamma2(None, sigmas), 1 / np.sqrt(1 + 4 * sigmas))


def test_the_dense_matrix_is_the_one_of_the_paper():
    np.testing.assert_array_equal(ls.theory.laplacian_matrix(2, 0.5), [[1.5, -0.5], [-0.5, 1.5]])
    np.testing.assert_array_equal(ls.theory.laplacian_matrix(1, 0.5), [[1.0]])
    for d in (3, 4, 9):
        np.testing.assert_array_equal(ls.theory.laplacian_matrix(d, 2.0, order=2), circulant(d, 2.0, 2))


def test_the_covariance_without_noise_is_the_inverse_of_the_shifted_precision():
    P, h = precision(), 0.1
    exact = np.linalg.inv(P - h * P @ P / 2)
    np.testing.assert_allclose(ls.theory.stationary_covariance(P, h), exact, rtol=1e-9)


def test_an_unstable_step_is_refused_with_the_limit():
    limit = 2 / np.linalg.eigvalsh(precision()).max()
    with pytest.raises(ValueError, match=f"stability limit {limit:g}"):
        ls.theory.stationary_covariance(precision(), 1.01 * limit)
    assert np.isfinite(ls.theory.stationary_covariance(precision(), 0.99 * limit)).all()


def relative_covariance_error(sampler, exact, noise_scale, num_draws, seed=0):
    """Largest entry of the whitened difference of covariances, 50 chains."""
    P = jnp.asarray(precision(), jnp.float32)
    target = ls.Target(lambda x: -0.5 * x @ P @ x, noise_scale=noise_scale)
    scale = jnp.asarray(np.linalg.cholesky(exact), jnp.float32)
    start = lambda key: scale @ jax.random.normal(key, (P.shape[0],))  # noqa: E731
    run = ls.sample(sampler, target, init=start, num_draws=num_draws, thin=5, chains=50, seed=seed)
    flat = run.draws.reshape(-1, P.shape[0]).astype(np.float64)
    found = flat.T @ flat / len(flat)
    half = np.linalg.inv(np.linalg.cholesky(exact))
    return np.abs(half @ found @ half.T - np.eye(P.shape[0])).max()


@pytest.mark.parametrize("sigma", [0.0, 1.0])
@pytest.mark.parametrize("temperature", [1.0, 0.5])
def test_chains_with_gradient_noise_have_the_exact_covariance(sigma, temperature):
    """T8. 50 chains of 6,000 draws, d = 6; at 3 % a false alarm is beyond six standard errors."""
    h, s = 0.15, 1.5
    exact = ls.theory.stationary_covariance(precision(), h, sigma=sigma, temperature=temperature, gradient_noise=s**2)
    sampler = ls.ls_sgld(h, sigma=sigma, temperature=temperature) if sigma else ls.sgld(h, temperature=temperature)
    assert relative_covariance_error(sampler, exact, s, 6_000) < 0.03


def test_the_covariance_check_sees_a_missing_gradient_noise():
    """N: the same chains against the law without the noise in the gradients."""
    exact = ls.theory.stationary_covariance(precision(), 0.15)
    assert relative_covariance_error(ls.sgld(0.15), exact, 1.5, 2_000) > 0.05
