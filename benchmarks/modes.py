"""`mixture`: the paper's two-dimensional mixture, where a step is next to nothing: what the loop itself costs."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import lsmcmc as ls
from benchmarks.problems import timed
from benchmarks.timing import Contender, Size, compared

NUM, STEP_SIZE, BATCH = 500, 0.1, 5
_STEPS = 20_000


def _log_likelihood(x: Any, a: Any) -> Any:
    """1/N of the log density of two modes, at ±aᵢ, for one aᵢ or many: U is then of order one."""
    return (-0.5 * ((x - a) ** 2).sum(-1) - jnp.log(3.0) + jnp.log1p(2 * jnp.exp(-2 * (a @ x)))) / NUM


def mixture(size: Size) -> dict[str, Any]:
    """One chain of SGLD, ours and blackjax's, all draws kept; the gate is the mean of |x|² against quadrature."""
    centres = np.random.default_rng(0).normal(size=(NUM, 2)).astype(np.float32) * 0.3 + np.float32(1.0)
    count = 2_000 if size.tiny else _STEPS
    contenders = [_ours(centres, count), _blackjax(centres, count)]
    rows = compared(contenders, _expected(centres), 0.5 if size.tiny else 0.2, size)
    return {"unit": "one step", "rows": rows}


def _ours(centres: Any, checked: int) -> Contender:
    target = ls.Posterior(_log_likelihood, lambda x: jnp.zeros(()), centres)

    def run(count: int) -> Any:
        return ls.sample(
            ls.sgld(STEP_SIZE), target, jnp.ones(2), num_draws=count, batch_size=BATCH, progress=False
        ).draws

    return Contender("lsmcmc SGLD", timed(run), lambda: float((run(checked) ** 2).sum(-1).mean()))


def _blackjax(centres: Any, checked: int) -> Contender:
    import blackjax

    estimator = blackjax.sgmcmc.gradients.grad_estimator(lambda x: jnp.zeros(()), _log_likelihood, NUM)
    algorithm = blackjax.sgld(estimator)

    def chain(data: Any, key: Any, count: int) -> Any:
        def step(x: Any, key: Any) -> tuple[Any, Any]:
            rows_key, noise_key = jax.random.split(key)
            rows = jax.random.randint(rows_key, (BATCH,), 0, NUM)
            x = algorithm.step(noise_key, x, data[rows], STEP_SIZE)
            return x, x

        return jax.lax.scan(step, jnp.ones(2), jax.random.split(key, count))[1]

    compiled = jax.jit(chain, static_argnums=2)

    def run(count: int) -> Any:
        return np.asarray(compiled(jnp.asarray(centres), jax.random.key(0), count))

    return Contender("blackjax SGLD", timed(run, warm=True), lambda: float((run(checked) ** 2).sum(-1).mean()))


def _expected(centres: Any) -> float:
    """E|x|² of the target by quadrature, in float64."""
    axis = np.linspace(-8, 8, 161)
    grid = np.stack(np.meshgrid(axis, axis, indexing="ij"), -1).reshape(-1, 2)
    a = centres.astype(np.float64)
    log_p = np.zeros(len(grid))
    for centre in a:
        log_p += (-0.5 * ((grid - centre) ** 2).sum(1) + np.log1p(2 * np.exp(-2 * (grid @ centre)))) / NUM
    weights = np.exp(log_p - log_p.max())
    return float(weights @ (grid**2).sum(1) / weights.sum())
