"""Measures the noise of each gradient estimator along a chain of SGLD on a3a: the table of docs/gradients.md.

python examples/variance_reduction.py
"""

import jax
import jax.numpy as jnp

import lsmcmc as ls

BATCH, STEP_SIZE, BURN_IN, STEPS = 32, 1e-4, 2_000, 5_000

ESTIMATORS = {
    "ls.Minibatch(32)": ls.Minibatch(BATCH),
    "ls.Minibatch(32, 'subset')": ls.Minibatch(BATCH, "subset"),
    "ls.SVRG(32, every=100)": ls.SVRG(BATCH, 100),
    "ls.SVRG(32, every=1000)": ls.SVRG(BATCH, 1_000),
    "ls.SVRG(32, every=100, anchor=1000)": ls.SVRG(BATCH, 100, anchor=1_000),
    "ls.SVRG(32, every=100, recursive=True)": ls.SVRG(BATCH, 100, recursive=True),
    "ls.SAGA(32)": ls.SAGA(BATCH),
    "ls.ControlVariate(32)": ls.ControlVariate(BATCH),
}


def posterior_of_a3a():
    """Logistic regression with a normal prior."""
    X, y = ls.data.a3a().train
    model = ls.models.logistic(X.shape[1])
    return ls.Posterior(model.log_likelihood, model.log_prior, (X, y))


@jax.jit
def squared_errors(posterior, estimator, state, start, key):
    """‖ĝ − ∇U‖² at every step of a chain that follows ĝ."""
    sampler = ls.sgld(STEP_SIZE)
    rows, noise, first = jax.random.split(key, 3)

    def step(carry, k):
        chain, state = carry
        batch = estimator.fetch(posterior, estimator.plan(rows, k, posterior.num_examples), chain.position)
        oracle, state = ls.Oracle.of_step(posterior, estimator, state, batch, chain.position, k)
        full = jax.grad(posterior.log_density)(chain.position)
        error = jnp.sum((oracle.gradient(chain.position) + full) ** 2)
        chain, _ = sampler.step(chain, oracle, key=jax.random.fold_in(noise, k))
        return (chain, state), error

    chain = sampler.init(start, key=first)
    return jax.lax.scan(step, (chain, state), jnp.arange(BURN_IN + STEPS, dtype=jnp.int32))[1]


def main():
    """One line for each estimator."""
    posterior = posterior_of_a3a()
    mode = ls.find_mode(posterior, jnp.zeros(posterior.data[0].shape[1]))
    plain = None
    for name, estimator in ESTIMATORS.items():
        errors = squared_errors(posterior, estimator, estimator.init(posterior, mode), mode, jax.random.key(0))
        mean = float(errors[BURN_IN:].mean())
        plain = plain or mean
        print(f"{name:<40} {mean:12.1f} {plain / mean:10.1f}")


if __name__ == "__main__":
    main()
