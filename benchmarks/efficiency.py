"""`efficiency`: effective samples a second, and error against gradient evaluations, on a3a against NUTS."""

import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import lsmcmc as ls
from benchmarks import problems
from benchmarks.timing import GateError, Size

BATCH, STEP_SIZE, SIGMA = 50, 2e-4, 1.0
_STEPS, _POINTS = 200_000, (1_000, 3_000, 10_000, 30_000, 100_000, 200_000)
_CHECKED = 1.0  # largest error of a mean, in posterior sd, that the gate lets pass at the end


def efficiency(size: Size) -> dict[str, Any]:
    """For SGLD, LS-SGLD and blackjax's SGLD: ESS/s, and errors of means and spreads along the chain."""
    steps, points = (2_000, (500, 2_000)) if size.tiny else (_STEPS, _POINTS)
    means, spreads, seconds = reference(size)
    h = problems.TINY_STEP_SIZE if size.tiny else STEP_SIZE
    batch = 10 if size.tiny else BATCH
    makers = {
        "lsmcmc SGLD": lambda: _ours(ls.sgld(h), batch, steps, size),
        "lsmcmc LS-SGLD": lambda: _ours(ls.ls_sgld(h, sigma=SIGMA), batch, steps, size),
        "blackjax SGLD": lambda: _blackjax(h, batch, steps, size),
    }
    rows = [_row(name, *make(), means, spreads, points, batch) for name, make in makers.items()]
    for row in rows:
        if not row["curve"][-1]["error_of_means"] < _CHECKED:
            raise GateError(
                f"{row['name']} ends {row['curve'][-1]['error_of_means']:.3g} sd from the reference's means."
            )
    return {"unit": "effective samples a second", "nuts_seconds": seconds, "batch": batch, "step_size": h, "rows": rows}


def reference(size: Size) -> tuple[Any, Any, float]:
    """Means and standard deviations by blackjax's NUTS on all data, and how long that took."""
    import blackjax

    X, y = (jnp.asarray(part) for part in problems.a3a(size.tiny))
    warm_up, draws = (200, 200) if size.tiny else (500, 2_000)

    def run(data: Any, key: Any) -> Any:
        def log_density(x: Any) -> Any:
            return problems.log_prior(x) + problems.log_likelihood(x, data).sum()

        adapt, go = jax.random.split(key)
        found, _ = blackjax.window_adaptation(blackjax.nuts, log_density).run(adapt, jnp.zeros(problems.DIM), warm_up)
        kernel = blackjax.nuts(log_density, **found.parameters)

        def step(state: Any, key: Any) -> tuple[Any, Any]:
            state, _ = kernel.step(key, state)
            return state, state.position

        return jax.lax.scan(step, found.state, jax.random.split(go, draws))[1]

    began = time.perf_counter()
    with jax.numpy_dtype_promotion("standard"):  # which NUTS is written for
        drawn = np.asarray(jax.jit(run)((X, y), jax.random.key(0)), np.float64)
    return drawn.mean(0), drawn.std(0), time.perf_counter() - began


def _ours(sampler: ls.Sampler, batch: int, steps: int, size: Size) -> tuple[Any, float]:
    settings = {"num_draws": steps, "batch_size": batch, "progress": False}
    target = problems.posterior(size.tiny)
    ls.sample(sampler, target, jnp.zeros(problems.DIM), **settings)
    began = time.perf_counter()
    run = ls.sample(sampler, target, jnp.zeros(problems.DIM), seed=1, **settings)
    return run.draws[0], time.perf_counter() - began


def _blackjax(h: float, batch: int, steps: int, size: Size) -> tuple[Any, float]:
    import blackjax

    X, y = (jnp.asarray(part) for part in problems.a3a(size.tiny))
    algorithm = blackjax.sgld(
        blackjax.sgmcmc.gradients.grad_estimator(problems.log_prior, problems.log_likelihood, len(y))
    )

    def chain(data: Any, key: Any) -> Any:
        def step(x: Any, key: Any) -> tuple[Any, Any]:
            rows_key, noise_key = jax.random.split(key)
            rows = jax.random.randint(rows_key, (batch,), 0, len(y))
            x = algorithm.step(noise_key, x, (data[0][rows], data[1][rows]), h)
            return x, x

        return jax.lax.scan(step, jnp.zeros(problems.DIM), jax.random.split(key, steps))[1]

    compiled = jax.jit(chain)
    jax.block_until_ready(compiled((X, y), jax.random.key(0)))
    began = time.perf_counter()
    draws = np.asarray(compiled((X, y), jax.random.key(1)))
    return draws, time.perf_counter() - began


def _row(
    name: str, draws: Any, seconds: float, means: Any, spreads: Any, points: tuple[int, ...], batch: int
) -> dict[str, Any]:
    """ESS of the second half, every tenth draw, and the errors after so many steps, the first tenth left out."""
    held = np.asarray(draws, np.float64)
    half = held[len(held) // 2 :: 10]
    ess = np.asarray([_ess(half[:, i]) for i in range(0, problems.DIM, 8)])
    return {
        "name": name,
        "steps_per_second": len(held) / seconds,
        "ess_per_second_median": float(np.median(ess) / (seconds / 2)),
        "ess_per_second_least": float(ess.min() / (seconds / 2)),
        "curve": [_errors(held[n // 10 : n], n * batch, means, spreads) for n in points],
    }


def _ess(draws: Any) -> float:
    return float(
        len(draws) / max(1.0, float(np.asarray(ls.diagnostics.autocorrelation_time(draws[None, :, None])).max()))
    )


def _errors(draws: Any, rows: int, means: Any, spreads: Any) -> dict[str, float]:
    """Root mean squares over the coordinates: of the means in posterior sd, of the log ratio of spreads."""
    off = (draws.mean(0) - means) / spreads
    wide = np.log(draws.std(0) / spreads)
    return {
        "row_gradients": rows,
        "error_of_means": float(np.sqrt((off**2).mean())),
        "error_of_spreads": float(np.sqrt((wide**2).mean())),
    }
