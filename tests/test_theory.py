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


def test_the_law_after_some_steps_is_the_recursion_written_out():
    chain = ls.theory.linear_chain(precision(), 0.1, sigma=1.0, gradient_noise=0.5)
    mean, covariance = np.ones(6), np.zeros((6, 6))
    for k in range(12):
        found = chain.law_after(k, np.ones(6))
        np.testing.assert_allclose(found[0], mean, rtol=1e-12)
        np.testing.assert_allclose(found[1], covariance, rtol=1e-12, atol=1e-15)
        mean = chain.transition @ mean
        covariance = chain.transition @ covariance @ chain.transition.T + chain.noise
    np.testing.assert_allclose(chain.law_after(10_000, np.ones(6))[1], chain.covariance(), rtol=1e-9)


def test_the_autocorrelation_time_is_the_sum_over_lags():
    chain = ls.theory.linear_chain(precision(), 0.1, sigma=1.0)
    C = chain.covariance()
    powers = [np.linalg.matrix_power(chain.transition, t) @ C for t in range(1, 2_000)]
    expected = 0.5 + sum(np.diag(R) for R in powers) / np.diag(C)
    np.testing.assert_allclose(chain.autocorrelation_time(), expected, rtol=1e-9)


def test_the_error_of_an_empirical_covariance_is_that_of_simulated_chains():
    """1,000 chains of 50 draws at rest; the mean of the squared errors has a relative standard error near 3 %."""
    P, h, n = np.array([[2.0, 0.5], [0.5, 1.0]]), 0.3, 50
    chain = ls.theory.linear_chain(P, h, gradient_noise=1.0)
    target = ls.Target(lambda x: -0.5 * x @ jnp.asarray(P, x.dtype) @ x, noise_scale=1.0)
    root = jnp.asarray(np.linalg.cholesky(chain.covariance()), jnp.float32)
    run = ls.sample(ls.sgld(h), target, init=lambda key: root @ jax.random.normal(key, (2,)), num_draws=n, chains=1_000)
    found = np.einsum("cti,ctj->cij", run.draws, run.draws) / n
    errors = ((found - np.linalg.inv(P)) ** 2).mean((1, 2))
    exact = chain.covariance_mse(n, np.linalg.inv(P))
    assert abs(errors.mean() - exact) < 4 * errors.std() / math.sqrt(1_000)
    assert abs(errors.mean() - 1.3 * exact) > 4 * errors.std() / math.sqrt(1_000)  # the check can fail


def mean_mse_written_out(chain, n, start):
    """From the covariances of all pairs of steps, one by one; `start` a point, or None for a chain at rest."""
    M, d = chain.transition, len(chain.transition)
    x, C = (np.zeros(d), chain.covariance()) if start is None else (np.asarray(start), np.zeros((d, d)))
    mean, total, sums = np.zeros(d), np.zeros((d, d)), np.zeros((d, d))  # sums: Σ_{s ≤ t} Cov(x_t, x_s)
    for _ in range(n):
        x, C, sums = M @ x, M @ C @ M.T + chain.noise, M @ sums
        mean += x
        total += sums + sums.T + C
        sums = sums + C
    return np.mean(np.diag(total + np.outer(mean, mean))) / n**2


@pytest.mark.parametrize("n", [1, 2, 9, 300])
@pytest.mark.parametrize("start", [None, np.zeros(6), np.arange(6.0)])
def test_the_error_of_an_empirical_mean_is_the_sum_over_all_pairs_of_steps(n, start):
    chain = ls.theory.linear_chain(precision(), 0.1, sigma=1.0, gradient_noise=0.5)
    assert chain.mean_mse(n, start) == pytest.approx(mean_mse_written_out(chain, n, start), rel=1e-9)


def test_the_error_of_a_long_mean_is_twice_the_autocorrelation_time_over_the_length():
    chain = ls.theory.linear_chain(precision(), 0.1, sigma=1.0)
    expected = np.mean(2 * chain.autocorrelation_time() * np.diag(chain.covariance())) / 10**7
    assert chain.mean_mse(10**7, np.ones(6)) == pytest.approx(expected, rel=1e-4)
    assert chain.mean_mse(10**7) == pytest.approx(expected, rel=1e-4)


def test_the_distance_of_gaussians_agrees_with_special_cases():
    C, D = np.diag([1.0, 4.0]), np.diag([9.0, 16.0])
    assert math.isclose(ls.theory.gaussian_w2([0, 0], C, [3, 4], D), math.sqrt(25 + 4 + 4), rel_tol=1e-12)
    P = np.linalg.inv(precision())
    assert ls.theory.gaussian_w2(np.zeros(6), P, np.zeros(6), P) < 1e-6
    turned = np.array([[1.0, 0.9], [0.9, 1.0]])
    forth = ls.theory.gaussian_w2([0, 0], turned, [1, 0], D)
    assert math.isclose(forth, ls.theory.gaussian_w2([1, 0], D, [0, 0], turned), rel_tol=1e-9)


def test_the_stability_limit_is_where_a_chain_explodes():
    limit = ls.theory.stability_limit(precision(), sigma=1.0)
    assert ls.theory.linear_chain(precision(), 0.999 * limit, sigma=1.0)
    with pytest.raises(ValueError, match="no law at rest"):
        ls.theory.linear_chain(precision(), 1.001 * limit, sigma=1.0)


CONSTANTS = {"omega": 2.0, "batch_size": 10, "f0": 3.0, "log_sobolev": 0.5, "log_normalizer": 1.0}


def test_theorem_1_is_its_formula():
    K, eta, d, M, beta = 50, 1e-3, 20, 3.0, 2.0
    bound = ls.theory.w2_bound_convex(K, eta, d, smoothness=M, beta=beta, sigma=1.0, **CONSTANTS)
    gamma = ls.theory.gamma2(d, 1.0)
    assert math.isclose(bound.gradient_noise, math.sqrt(2 * K * eta**2 * d * 4 / 10))
    assert math.isclose(bound.integrator, math.sqrt(8 * gamma * K * (K + 1) * eta**3 * M**2 * d / beta))
    assert math.isclose(bound.ergodicity, math.sqrt(2 * 0.5 * 7) * math.exp(-(1 / 5) * K * eta / (2 * beta * 0.5)))
    assert math.isclose(bound.total, bound.gradient_noise + bound.integrator + bound.ergodicity)
    stated = ls.theory.w2_bound_convex(K, eta, d, smoothness=M, beta=beta, sigma=1.0, form="stated", **CONSTANTS)
    assert math.isclose(stated.integrator, bound.integrator * beta / M)
    assert math.isclose(stated.gradient_noise, bound.gradient_noise * math.sqrt(beta))


def test_theorem_2_is_its_formula():
    K, eta, d, M, beta, b = 2_000, 1e-3, 20, 3.0, 2.0, 0.7
    options = {"smoothness": M, "beta": beta, "dissipativity": b, "sigma": 1.0, **CONSTANTS}
    for form, noise_factor, integrator_factor in (("proof", 0.5, 1), ("stated", 1, 1), ("lemma", 0.5, beta)):
        bound = ls.theory.w2_bound_nonconvex(K, eta, d, form=form, **options)
        D = noise_factor * beta * d * 4 * K * eta / 10
        D += integrator_factor * 2 * ls.theory.gamma2(d, 1.0) * M**2 * d * K * eta**2
        front = math.sqrt((1.5 + 2 * (b + d / beta)) * K * eta)
        assert math.isclose(bound.discretization, front * (D**0.5 + D**0.25))


def test_the_bound_holds_where_the_distance_is_known():
    """On N(0, I), full gradient: the exact W2(P(x_K), π) is below Theorem 1 for every K and σ."""
    d, eta = 8, 1e-2
    f0, log_normalizer = 0.0, d / 2 * math.log(2 * math.pi)
    for sigma in (0.0, 1.0):
        chain = ls.theory.linear_chain(np.eye(d), eta, sigma=sigma)
        for K in (1, 10, 100, 1_000):
            mean, covariance = chain.law_after(K, np.zeros(d))
            exact = ls.theory.gaussian_w2(mean, covariance, np.zeros(d), np.eye(d))
            bound = ls.theory.w2_bound_convex(
                K,
                eta,
                d,
                omega=0.0,
                batch_size=1,
                smoothness=1.0,
                log_sobolev=2.0,
                f0=f0,
                log_normalizer=log_normalizer,
                sigma=sigma,
            )
            assert exact <= bound.total


def test_constants_outside_their_interval_are_refused():
    with pytest.raises(ValueError, match=r"gamma1 lies between 0\.04 and 1 for d = 20 and sigma = 1, got 0\.01"):
        ls.theory.w2_bound_convex(10, 1e-3, 20, smoothness=1.0, sigma=1.0, gamma1=0.01, **CONSTANTS)
    with pytest.raises(ValueError, match=r"form must be one of 'proof', 'stated', got 'paper'"):
        ls.theory.w2_bound_convex(10, 1e-3, 20, smoothness=1.0, form="paper", **CONSTANTS)
    with pytest.raises(ValueError, match=r"must not be negative, got -\d.*relative entropy of the start"):
        ls.theory.w2_bound_convex(10, 1e-3, 20, smoothness=1.0, **{**CONSTANTS, "f0": -5.0})


def test_the_chain_becomes_the_diffusion_as_the_step_goes_to_zero():
    """At one time, with a tenth of the step the distance is a tenth: Euler–Maruyama is of weak order one."""
    P, start, time = precision(), np.arange(6.0), 0.7
    mean, covariance = ls.theory.diffusion_law(P, time, start, sigma=1.0, temperature=0.5)
    off = []
    for num_steps in (700, 7_000):
        chain = ls.theory.linear_chain(P, time / num_steps, sigma=1.0, temperature=0.5)
        off.append(
            [np.abs(a - b).max() for a, b in zip(chain.law_after(num_steps, start), (mean, covariance), strict=True)]
        )
    np.testing.assert_allclose(np.divide(*off), 10, rtol=0.02)
    assert np.max(off[1]) < 2e-4
    plain = ls.theory.diffusion_law(P, time, start, temperature=0.5)
    assert np.abs(plain[0] - mean).max() > 0.1  # without smoothing it is another law


def test_the_diffusion_starts_at_its_point_and_ends_at_the_target():
    P, start = precision(), np.arange(6.0)
    mean, covariance = ls.theory.diffusion_law(P, 0.0, start, sigma=1.0)
    np.testing.assert_allclose(mean, start)
    np.testing.assert_allclose(covariance, 0, atol=1e-12)
    mean, covariance = ls.theory.diffusion_law(P, 500.0, start, sigma=1.0)
    np.testing.assert_allclose(mean, 0, atol=1e-9)
    np.testing.assert_allclose(covariance, np.linalg.inv(P), rtol=1e-9)


def test_theorem_1_is_no_bound_where_the_target_is_high_at_its_start():
    """On N(0, I/6) the exact distance is above it: the entropy of a point is not −log π(0)."""
    d, eta, K = 8, 1e-4, 100
    chain = ls.theory.linear_chain(6 * np.eye(d), eta)
    mean, covariance = chain.law_after(K, np.zeros(d))
    exact = ls.theory.gaussian_w2(mean, covariance, np.zeros(d), np.eye(d) / 6)
    constants = {"omega": 0.0, "batch_size": 1, "smoothness": 6.0, "log_sobolev": 2 / 6, "f0": 0.0}
    bound = ls.theory.w2_bound_convex(K, eta, d, log_normalizer=d / 2 * math.log(2 * math.pi / 6), **constants)
    assert exact > 1.5 * bound.total


def test_a_negative_time_and_a_flat_target_are_refused():
    with pytest.raises(ValueError, match="time"):
        ls.theory.diffusion_law(np.eye(2), -1.0, np.zeros(2))
    with pytest.raises(ValueError, match="positive definite, its smallest eigenvalue is 0"):
        ls.theory.diffusion_law(np.diag([1.0, 0.0]), 1.0, np.zeros(2))
