"""How the largest stable step is found: on Gaussians, on a3a linearised, and by chains."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array
from numpy.typing import NDArray

import lsmcmc as ls
from lsmcmc import theory
from lsmcmc.experiments import blr, figure1
from lsmcmc.experiments.parts import Arrays
from lsmcmc.experiments.stability import batch_limit, smoothed_rows, weighted_gram

SIGMAS = (0.0, 0.1, *blr.SIGMAS)  # 0.1 is Figure 1's
BATCH, STEPS, THIN, PATH, PATH_STEP = 5, 4_000, 20, 2_000, 2e-4
GRID = tuple(float(h) for h in np.geomspace(2e-4, 4e-3, 10))  # of steps, for the chains on a3a
GUESSING = float(np.log(2))  # the log loss of a classifier that always says ½
FINITE, TRIES, WIDTH = 20_000, 9, 0.1  # steps, bisections and half width of the check

Limits = NDArray[np.float64]  # (replication, σ)


def stiff(d: int, u: Any) -> Limits:
    """The limits where the curvature is 1 along u and nothing across."""
    u = np.asarray(u, np.float64) / np.linalg.norm(u)
    return np.array([2 / (u @ np.linalg.solve(theory.laplacian_matrix(d, sigma), u)) for sigma in SIGMAS])


def _of(precision: Any) -> Limits:
    return np.array([theory.stability_limit(precision, sigma=sigma) for sigma in SIGMAS])


def _turned(rng: Any, d: int = blr.DIM) -> Limits:
    vectors, _ = np.linalg.qr(rng.normal(size=(d, d)))
    return _of((vectors * np.geomspace(1, 1_000, d)) @ vectors.T)


GAUSSIANS: dict[str, tuple[Callable[[Any], Limits], bool]] = {  # and whether it is random
    "the Gaussian of Figure 1": (lambda rng: _of(figure1.PRECISION), False),
    "the same with correlation −0.9": (lambda rng: _of(np.linalg.inv([[1.0, -0.9], [-0.9, 1.0]])), False),
    "N(0, I) in 122 dimensions": (lambda rng: _of(np.eye(blr.DIM)), False),
    "stiff along (1, …, 1)": (lambda rng: stiff(blr.DIM, np.ones(blr.DIM)), False),
    "stiff along a random direction": (lambda rng: stiff(blr.DIM, rng.normal(size=blr.DIM)), True),
    "curvatures 1 to 1,000 along random directions": (_turned, True),
}


def gaussians(num: int, seed: int) -> dict[str, Limits]:
    """Exact limits of every case; of a random one, `num` times."""
    found = {}
    for number, (case, (limits, random)) in enumerate(GAUSSIANS.items()):
        rng = np.random.default_rng([seed, number])
        found[case] = np.array([limits(rng) for _ in range(num if random else 1)])
    return found


def linearised(num: int, seed: int) -> Arrays:
    """Limits at positions of a chain that is stable."""
    key = jax.random.fold_in(jax.random.key(seed), 6)
    walk = ls.sample(
        ls.lmc(PATH_STEP), blr.posterior(), init=blr.starts(key, num), num_draws=1, burn_in=PATH - 1, seed=seed,
        progress=False,
    )  # fmt: skip
    X = blr.data().train[0]
    weights = blr.curvatures(walk.draws[:, 0], X)
    rows = [smoothed_rows(X, sigma) for sigma in SIGMAS]
    return {
        "full": np.array([[2 / np.linalg.eigvalsh(weighted_gram(r, w))[-1] for r in rows] for w in weights]),
        "batches": np.array([[batch_limit(r, w, BATCH) for r in rows] for w in weights]),
    }


def losses_at(sigma: float, starts: Array, seed: int) -> Arrays:
    """Mean log loss of the iterates at every step of the grid, axes (step, chain)."""
    X, y = (jnp.asarray(leaf) for leaf in blr.data().train)
    losses = []
    for h in GRID:
        run = ls.sample(
            ls.ls_sgld(h, sigma=sigma) if sigma else ls.sgld(h),
            blr.posterior(),
            init=starts,
            num_draws=STEPS // 2 // THIN,
            burn_in=STEPS // 2,
            thin=THIN,
            gradient=ls.Minibatch(BATCH, "subset"),
            seed=seed,
            progress=False,
        )
        losses.append(np.asarray(_mean_loss(X, y, jnp.asarray(run.draws))))
    return {"losses": np.array(losses, np.float64)}


@jax.jit
def _mean_loss(X: Array, y: Array, draws: Array) -> Array:
    """Of every chain, over rows and draws."""
    return jax.lax.map(lambda own: -jax.nn.log_sigmoid(y * (own @ X.T)).mean(), draws)


def crossing(losses: NDArray[np.float64]) -> Limits:
    """The step at which the loss last crosses that of guessing, (chain, σ), by a line in the logs.

    >>> losses = np.exp(np.linspace(-1, 1, len(GRID))) * GUESSING
    >>> round(float(crossing(losses[np.newaxis, :, np.newaxis])[0, 0]), 6)  # the middle of the grid
    0.000894
    """
    above = losses > GUESSING
    if not (above[:, -1].all() and (~above[:, 0]).all()):
        raise RuntimeError("the grid of steps does not hold the largest stable one of every σ; widen GRID.")
    after = len(GRID) - np.argmin(above[:, ::-1], axis=1)  # the first of the last run above
    x, y = np.log(np.array(GRID)), np.log(losses)
    y0, y1 = (np.take_along_axis(y, index[:, np.newaxis], axis=1)[:, 0] for index in (after - 1, after))
    x0, x1 = x[after - 1], x[after]
    return np.asarray(np.exp(x0 + (x1 - x0) * (np.log(GUESSING) - y0) / (y1 - y0)).T)


def explosions(seed: int, num: int) -> Arrays:
    """The step from which on chains leave the finite numbers, by bisection, over the exact limit; (σ, seed)."""
    limits = [theory.stability_limit(figure1.PRECISION, sigma=sigma) for sigma in SIGMAS]
    seeds = [seed * 100 + i for i in range(num)]
    found = [[_explosion(s, one, limit) / limit for one in seeds] for s, limit in zip(SIGMAS, limits, strict=True)]
    return {"ratio": np.array(found)}


def _explosion(sigma: float, seed: int, limit: float) -> float:
    low, high = (1 - WIDTH) * limit, (1 + WIDTH) * limit
    for _ in range(TRIES):
        middle = np.sqrt(low * high)
        low, high = (low, middle) if _explodes(sigma, float(middle), seed) else (middle, high)
    return float(np.sqrt(low * high))


def _explodes(sigma: float, h: float, seed: int) -> bool:
    sampler = ls.ls_sgld(h, sigma=sigma) if sigma else ls.sgld(h)
    target = figure1._target()
    try:
        ls.sample(sampler, target, jnp.zeros(2), num_draws=1, thin=FINITE, seed=seed, progress=False)
    except ls.DivergenceError:
        return True
    return False
