"""SGMCMCJax and jax-sgmc on the JAX that they run on; started by `peers` in `.bench-jax`."""

import functools
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
from worker import serve


def log_likelihood(x, row, label):
    """Of one row."""
    return jax.nn.log_sigmoid(label * jnp.dot(row, x))


def log_prior(x):
    """N(0, I)."""
    return -0.5 * jnp.sum(x**2)


def sgmcmcjax(data, step_size, batch):
    """SGLD by its sampler, which scans."""
    from sgmcmcjax.samplers import build_sgld_sampler

    arrays = np.load(data)
    X, y = jnp.asarray(arrays["X"]), jnp.asarray(arrays["y"])
    sampler = build_sgld_sampler(step_size, log_likelihood, log_prior, (X, y), batch, pbar=False)

    def run(count):
        return np.asarray(sampler(jax.random.PRNGKey(0), count, jnp.zeros(X.shape[1])))

    return warmed(run), lambda: level(run(4000), arrays)


def jax_sgmc(data, step_size, batch):
    """SGLD by its alias, which reads batches from the host."""
    from jax_sgmc import alias, potential
    from jax_sgmc.data import numpy_loader

    arrays = np.load(data)
    loader = numpy_loader.NumpyDataLoader(X=arrays["X"], y=arrays["y"])
    estimate = potential.minibatch_potential(
        lambda s: log_prior(s["x"]), lambda s, row: log_likelihood(s["x"], row["X"], row["y"]), strategy="vmap"
    )
    start = {"x": jnp.zeros(arrays["X"].shape[1])}

    @functools.cache
    def sampler(count):
        almost = step_size * 0.9999  # its schedule divides by the difference
        lengths = {"batch_size": batch, "accepted_samples": count}
        return alias.sgld(
            estimate, loader, first_step_size=step_size, last_step_size=almost, progress_bar=False, **lengths
        )

    def run(count):
        return np.asarray(sampler(count)(start, iterations=count)[0]["samples"]["variables"]["x"])

    least = 100  # its schedules refuse a few steps
    return warmed(lambda count: run(max(count, least))), lambda: level(run(4000), arrays)


def level(draws, arrays):
    """The mean of U over the second half of the chain."""
    X, y = arrays["X"].astype(np.float64), arrays["y"].astype(np.float64)
    draws = draws[len(draws) // 2 :].astype(np.float64)
    return float((np.logaddexp(0, -y * (draws @ X.T)).sum(1) + 0.5 * (draws**2).sum(1)).mean())


def warmed(work):
    """Another count is another compile, which is not timed."""
    seen = set()

    def again(count):
        work(count)

    def before(count):
        if count not in seen:
            seen.add(count)
            work(count)

    again.before = before
    return again


if __name__ == "__main__":
    serve({"sgmcmcjax": sgmcmcjax, "jax_sgmc": jax_sgmc})
