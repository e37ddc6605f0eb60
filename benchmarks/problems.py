"""The problems that are timed, ours and the in-process peers' side, and what the gates expect."""

import functools
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import lsmcmc as ls
from benchmarks.timing import Contender, Size

STEP_SIZE, TINY_STEP_SIZE, BATCH, DIM = 1e-4, 2e-2, 5, 122
CHECKED = 4_000  # steps of a gate's chain


@functools.cache
def a3a(tiny: bool = False) -> tuple[Any, Any]:
    """Features and labels in float32; made up, and few, for tests."""
    if tiny:
        rng = np.random.default_rng(0)
        X = (rng.random((60, DIM)) < 0.1).astype(np.float32)
        return X, np.sign(rng.normal(size=60)).astype(np.float32)
    X, y = ls.data.a3a().train
    return np.asarray(X, np.float32), np.asarray(y, np.float32)


def step_size(tiny: bool = False) -> float:
    """H: the few rows of a test mix at a larger one."""
    return TINY_STEP_SIZE if tiny else STEP_SIZE


def log_likelihood(x: Any, batch: Any) -> Any:
    """Log σ(y⟨d, x⟩), of one row or of many."""
    X, y = batch
    return jax.nn.log_sigmoid(y * (X @ x))


def log_prior(x: Any) -> Any:
    """N(0, I)."""
    return -0.5 * jnp.sum(x**2)


def posterior(tiny: bool = False) -> ls.Posterior:
    """Logistic regression on a3a."""
    return ls.Posterior(log_likelihood, log_prior, a3a(tiny))


def potentials(draws: Any, tiny: bool = False) -> Any:
    """U of each draw on all data, in float64."""
    X, y = (np.asarray(part, np.float64) for part in a3a(tiny))
    draws = np.asarray(draws, np.float64).reshape(-1, DIM)
    return np.logaddexp(0, -y * (draws @ X.T)).sum(1) + 0.5 * (draws**2).sum(1)


def level(draws: Any, tiny: bool = False) -> float:
    """What the gate compares: the mean of U over the second half of a chain, axes (…, draw, d)."""
    draws = np.asarray(draws)
    return float(potentials(draws[..., draws.shape[-2] // 2 :, :], tiny).mean())


@functools.cache
def expected_level(smoothing: float = 0.0, tiny: bool = False) -> float:
    """The same of the textbook's SGLD, x − h∇Û + √(2h) ε, in NumPy and float64, smoothed as the paper writes it."""
    (X, y), rng = (np.asarray(part, np.float64) for part in a3a(tiny)), np.random.default_rng(7)
    x, seen = np.zeros(DIM), []
    h = step_size(tiny)
    spectrum = 1 + 2 * smoothing * (1 - np.cos(2 * np.pi * np.arange(DIM // 2 + 1) / DIM))
    for step in range(CHECKED):
        rows = rng.integers(0, len(y), BATCH)
        residual = -y[rows] / (1 + np.exp(y[rows] * (X[rows] @ x)))
        gradient, noise = x + len(y) / BATCH * (X[rows].T @ residual), rng.normal(size=DIM)
        if smoothing:
            gradient = np.fft.irfft(np.fft.rfft(gradient) / spectrum, DIM)
            noise = np.fft.irfft(np.fft.rfft(noise) / np.sqrt(spectrum), DIM)
        x = x - h * gradient + np.sqrt(2 * h) * noise
        if step >= CHECKED // 2:
            seen.append(x)
    return float(potentials(np.array(seen), tiny).mean())


def ours(name: str, sampler: ls.Sampler, size: Size, chains: int = 1) -> Contender:
    """`ls.sample` as a user calls it, draws kept and handed over in NumPy; compiled before."""
    target = posterior(size.tiny)

    def run(count: int) -> Any:
        return ls.sample(
            sampler, target, jnp.zeros(DIM), num_draws=count, batch_size=BATCH, chains=chains, progress=False
        )

    return Contender(name, timed(run), lambda: level(run(_checked(chains)).draws, size.tiny))


def blackjax_sgld(name: str, size: Size, chains: int = 1) -> Contender:
    """Its SGLD under `lax.scan`, batches drawn inside, as its users write it; vmapped over chains."""
    import blackjax

    X, y = (jnp.asarray(part) for part in a3a(size.tiny))
    estimator = blackjax.sgmcmc.gradients.grad_estimator(log_prior, log_likelihood, len(y))
    algorithm = blackjax.sgld(estimator)

    def chain(data: Any, key: Any, count: int) -> Any:
        X, y = data

        def step(x: Any, key: Any) -> tuple[Any, Any]:
            rows_key, noise_key = jax.random.split(key)
            rows = jax.random.randint(rows_key, (BATCH,), 0, len(y))
            x = algorithm.step(noise_key, x, (X[rows], y[rows]), step_size(size.tiny))
            return x, x

        return jax.lax.scan(step, jnp.zeros(DIM), jax.random.split(key, count))[1]

    many = jax.jit(jax.vmap(chain, in_axes=(None, 0, None)), static_argnums=2)
    one = jax.jit(chain, static_argnums=2)

    def run(count: int) -> Any:
        key = jax.random.key(0)
        draws = one((X, y), key, count) if chains == 1 else many((X, y), jax.random.split(key, chains), count)
        return np.asarray(draws)

    return Contender(name, timed(run, warm=True), lambda: level(run(_checked(chains)), size.tiny))


def timed(run: Callable[[int], Any], warm: bool = False) -> Callable[[int], float]:
    """Seconds of `run(count)`; once before where another count is another compile."""
    seen = set()

    def seconds(count: int) -> float:
        if warm and count not in seen:
            seen.add(count)
            run(count)
        began = time.perf_counter()
        jax.block_until_ready(run(count))
        return time.perf_counter() - began

    return seconds


def _checked(chains: int) -> int:
    return CHECKED if chains == 1 else CHECKED // 4 * 2
