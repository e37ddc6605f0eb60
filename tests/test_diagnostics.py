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
