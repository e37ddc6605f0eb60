"""T8 on real data: the a3a posterior against a long NUTS run (tests/reference/a3a_nuts.py makes the reference)."""

import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lsmcmc as ls

REFERENCE = json.loads((Path(__file__).parent / "reference" / "a3a_nuts.json").read_text())


def log_likelihood(w, batch):
    X, y = batch
    return jax.nn.log_sigmoid(y * (X @ w))


@pytest.mark.slow
def test_the_a3a_posterior_is_that_of_nuts():
    """LS-SGLD, batch 64, h = 3e-4, σ = 1, 4 chains of 45,000 steps, the first 5,000 burnt."""
    (X, y), (X_test, y_test) = ls.data.a3a()
    posterior = ls.Posterior(log_likelihood, lambda w: -0.5 * jnp.sum(w**2), data=(X, y))
    sampler = ls.ls_sgld(3e-4, sigma=1.0)
    run = ls.sample(
        sampler, posterior, jnp.zeros(122), num_draws=4_000, batch_size=64, burn_in=5_000, thin=10, chains=4
    )
    mean, sd = np.array(REFERENCE["mean"]), np.array(REFERENCE["sd"])
    shift = np.median(np.abs(run.mean() - mean) / sd)
    ratio = np.median(np.sqrt(run.variance()) / sd)
    p = run.predict(lambda w, X: jax.nn.sigmoid(X @ w), jnp.asarray(X_test))
    nll = float(-np.log(np.where(y_test > 0, p, 1 - p)).mean())
    print(f"shift {shift:.4f} sd, ratio of sd {ratio:.4f}, test NLL {nll:.6f} against {REFERENCE['test_nll']:.6f}")
    assert shift < 0.2
    assert 0.9 < ratio < 1.06
    assert abs(nll - REFERENCE["test_nll"]) < 0.001
