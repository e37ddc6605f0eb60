"""Logistic regression on a3a with differential privacy: DP-SGD against DP-LSSGD at equal ε.

python examples/private.py
"""

import jax
import jax.numpy as jnp
import numpy as np
import optax

import lsmcmc as ls

BATCH, STEPS, CLIP, DELTA, LEARNING_RATE = 50, 500, 1.0, 1e-5, 0.5
SEEDS = 20


def train(posterior, sigma, z, key):
    """The weights after all steps. The data are touched through the clipped, noisy sums alone."""
    rows, noise = jax.random.split(key)
    minibatch = ls.Minibatch(BATCH, "subset")
    optimiser = ls.dp_lssgd(LEARNING_RATE, clip=CLIP, noise_multiplier=z, key=noise, sigma=sigma)
    start = jnp.zeros(posterior.data[0].shape[1])

    def step(carry, k):
        x, state = carry
        batch = minibatch.fetch(posterior, minibatch.plan(rows, k, posterior.num_examples), x)
        losses = -posterior.log_likelihood_gradients(x, batch)
        updates, state = optimiser.update(losses, state)
        return (optax.apply_updates(x, updates), state), None

    steps = jnp.arange(STEPS, dtype=jnp.int32)
    return jax.lax.scan(step, (start, optimiser.init(start)), steps)[0][0]


def main():
    """Test accuracy over seeds, without privacy and at two budgets."""
    (X, y), (X_test, y_test) = ls.data.a3a()
    model = ls.models.logistic(X.shape[1])
    posterior = ls.Posterior(model.log_likelihood, model.log_prior, (X, y))
    keys = jax.random.split(jax.random.key(0), SEEDS)
    run = {"batch_size": BATCH, "num_examples": posterior.num_examples, "num_steps": STEPS, "delta": DELTA}
    print("epsilon  noise    DP-SGD            DP-LSSGD, σ = 1   σ = 3      (test accuracy, mean ± sd over seeds)")
    for epsilon in (0.3, 1.0, None):
        z = ls.privacy.noise_multiplier(epsilon, **run) if epsilon else 0.0
        found = []
        for sigma in (0.0, 1.0, 3.0):
            weights = jax.jit(jax.vmap(lambda key, s=sigma, z=z: train(posterior, s, z, key)))(keys)
            accuracy = np.mean(np.sign(X_test @ np.asarray(weights).T) == y_test[:, None], axis=0)
            found.append(f"{accuracy.mean():.3f} ± {accuracy.std():.3f}")
        print(f"{epsilon or '∞':<8} {z:<8.2f} " + "     ".join(found))


if __name__ == "__main__":
    main()
