"""The mixture of §4.1.2: its density, the law of the printed gradient, quadrature and a Metropolis reference."""

from functools import lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

import lsmcmc as ls

NUM, BATCH, SIGMA = 500, 10, 1.0
HALF_LOG_2 = 0.5 * np.log(2.0)

WALKERS, KEPT, BURN_IN, THIN = 1_000, 80, 500, 50  # of the Metropolis reference
PROPOSAL = 2.5  # standard deviation: the modes are 5.6 apart, each about 1 wide

Points = NDArray[Any]  # (n, 2)


@lru_cache(maxsize=4)
def centres(seed: int) -> Points:
    """aᵢ ~ N((2, 2), 2I), i = 1 … 500, drawn exactly: the paper's Metropolis chain has this law as well."""
    return np.random.default_rng(seed).normal(2.0, np.sqrt(2.0), (NUM, 2)).astype(np.float32)


def log_component(x: Any, a: Any) -> Any:
    """−fᵢ(x) = log(⅔ e^{−|x − a|²/2} + ⅓ e^{−|x + a|²/2}) of each row a, up to a constant.

    = −|x|²/2 + log cosh(s + ½ log 2) with s = ⟨a, x⟩; its gradient is a tanh(s + ½ log 2) − x = a − x − 2a/(1 + 2e²ˢ).
    """
    return -0.5 * jnp.sum(x**2) + _log_cosh(a @ x + HALF_LOG_2)


def printed_component(x: Any, a: Any) -> Any:
    """What has the printed gradient: ∇ = a − x − 2a/(2 + e²ˢ) with s = ⟨a, x⟩.

    −|x|²/2 + ½ log(2 + e²ˢ) = −|x|²/2 + ½(s + log cosh(s − ½ log 2)), up to a constant.
    """
    s = a @ x
    return -0.5 * jnp.sum(x**2) + 0.5 * (s + _log_cosh(s - HALF_LOG_2))


def _log_cosh(z: Any) -> Any:
    """Up to log 2, without overflow; its derivative costs one exponential."""
    return jnp.abs(z) + jnp.log1p(jnp.exp(-2 * jnp.abs(z)))


def _flat(x: Any) -> Any:
    return jnp.zeros((), x.dtype)


READINGS = {"density": log_component, "printed gradient": printed_component}


def posterior(reading: str, seed: int) -> ls.Posterior:
    """U = Σᵢ fᵢ. The target exp(−U/n) is that of temperature n; the paper's step η is h = η/n."""
    return ls.Posterior(READINGS[reading], _flat, centres(seed))


def sgld(eta: float) -> ls.Sampler:
    """The paper's step η and β = 1 on the mean f = U/n."""
    return ls.sgld(eta / NUM, temperature=NUM)


def psgld(eta: float) -> ls.Sampler:
    """With the default decay and ε."""
    return ls.psgld(eta / NUM, temperature=NUM)


def ls_sgld(eta: float) -> ls.Sampler:
    """σ = 1."""
    return ls.ls_sgld(eta / NUM, sigma=SIGMA, temperature=NUM)


def ls_psgld(eta: float) -> ls.Sampler:
    """σ = 1."""
    return ls.ls_psgld(eta / NUM, sigma=SIGMA, temperature=NUM)


SAMPLERS = {"SGLD": sgld, "pSGLD": psgld, "LS-SGLD": ls_sgld, "LS-pSGLD": ls_psgld}


class Law(NamedTuple):
    """The target by quadrature: points of a grid and their weights, which sum to 1."""

    grid: Points
    weights: NDArray[np.float64]

    @property
    def mean(self) -> NDArray[np.float64]:
        """E x."""
        return self.weights @ self.grid

    @property
    def share(self) -> float:
        """P(x + y < 0), the mass of the smaller mode."""
        return float(self.weights @ _half(self.grid.sum(1)))


def _half(total: NDArray[Any]) -> NDArray[np.float64]:
    """1 below zero, ½ at zero."""
    return 0.5 - 0.5 * np.sign(total)


@lru_cache(maxsize=4)
def quadrature(reading: str, seed: int) -> Law:
    """By the trapezoidal rule on [−10, 10]², spacing 0.1: exact to rounding for a density this smooth."""
    axis = np.linspace(-10, 10, 201)
    grid = np.stack(np.meshgrid(axis, axis, indexing="ij"), axis=-1).reshape(-1, 2)
    log_density = np.asarray(_log_densities(posterior(reading, seed), jnp.asarray(grid, jnp.float32)), np.float64)
    weights = np.exp(log_density - log_density.max())
    return Law(grid, weights / weights.sum())


@jax.jit
def _log_densities(target: ls.Posterior, points: Any) -> Any:
    return jax.lax.map(lambda x: target.log_density(x) / NUM, points, batch_size=1_000)


def share(points: Any) -> Any:
    """How much of the points lies at x + y < 0: of arrays (…, n, 2)."""
    return np.mean(np.asarray(points).sum(-1) < 0, axis=-1)


class Reference(NamedTuple):
    """Draws of random walk Metropolis, axes (chain, draw, 2), and how often a proposal was accepted."""

    draws: Points
    acceptance: float

    def points(self) -> Points:
        """Chain by chain, so that blocks far apart are independent."""
        return self.draws.reshape(-1, 2)


@lru_cache(maxsize=4)
def reference(reading: str, seed: int) -> Reference:
    """Many chains of blackjax's random walk Metropolis on the whole target, from N(0, 9I)."""
    draws, acceptance = _metropolis(posterior(reading, seed), jax.random.key(seed), WALKERS, KEPT, BURN_IN, THIN)
    return Reference(np.asarray(draws), float(acceptance))


def _metropolis(target: ls.Posterior, key: Any, walkers: int, kept: int, burn_in: int, thin: int) -> tuple[Any, Any]:
    """All walkers at once: draws (chain, draw, 2) and the mean acceptance."""
    import blackjax

    def chain(target: ls.Posterior, key: Any) -> tuple[Any, Any]:
        begin, walk = jax.random.split(key)
        algorithm = blackjax.additive_step_random_walk.normal_random_walk(
            lambda x: target.log_density(x) / NUM, PROPOSAL * jnp.ones(2)
        )

        def step(state: Any, key: Any) -> tuple[Any, Any]:
            state, info = algorithm.step(key, state)
            return state, info.acceptance_rate

        def draw(state: Any, key: Any) -> tuple[Any, Any]:
            state, accepted = jax.lax.scan(step, state, jax.random.split(key, thin))
            return state, (state.position, accepted.mean())

        warm, go = jax.random.split(walk)
        state = algorithm.init(3 * jax.random.normal(begin, (2,)))
        state, _ = jax.lax.scan(step, state, jax.random.split(warm, burn_in))
        return jax.lax.scan(draw, state, jax.random.split(go, kept))[1]

    draws, accepted = jax.jit(jax.vmap(chain, in_axes=(None, 0)))(target, jax.random.split(key, walkers))
    return draws, accepted.mean()
