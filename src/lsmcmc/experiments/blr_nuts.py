"""The reference for Figure 4: the a3a posterior by a long NUTS run, in coordinates in which it is nearly round."""

from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from numpy.typing import NDArray

import lsmcmc as ls
from lsmcmc.experiments import blr
from lsmcmc.experiments.blr_chains import log_of_sums
from lsmcmc.experiments.parts import Arrays
from lsmcmc.experiments.stability import weighted_gram

RIDGE = {"Γ": 3e-6, "N(0, I)": 1.0}  # 1/sd² along directions that the data leave free


@dataclass(frozen=True)
class Length:
    """Of a NUTS run."""

    chains: int
    warm_up: int
    draws: int
    doublings: int  # of a trajectory, at most


def reference(prior: str, length: Length, key: Array) -> Arrays:
    """Mean, sd and predictive of the posterior, of all chains and of both halves of them, and how well they mixed."""
    draws, divergent = _draws(prior, length, key)
    half = len(draws) // 2
    parts = [draws[:half].reshape(-1, blr.DIM), draws[half:].reshape(-1, blr.DIM)]
    p, loss = _predictive(draws.reshape(-1, blr.DIM))
    flat = draws.reshape(-1, blr.DIM).astype(np.float64)
    found = {
        "mean": flat.mean(0),
        "sd": flat.std(0),
        "p": p,
        "loss": np.array(loss),
        "half_mean": np.stack([part.mean(0, dtype=np.float64) for part in parts]),
        "half_sd": np.stack([part.std(0, dtype=np.float64) for part in parts]),
        "half_p": np.stack([_predictive(part)[0] for part in parts]),
        "norm": np.linalg.norm(flat, axis=1).mean(),
        "rhat": np.max(ls.diagnostics.rhat(draws)),
        "ess": np.min(ls.diagnostics.ess(draws)),
        "divergences": divergent,
    }
    return {name: np.asarray(value) for name, value in found.items()}


def _draws(prior: str, length: Length, key: Array) -> tuple[NDArray[np.float32], np.int64]:
    """All chains at once, axes (chain, draw, d), and the number of divergent steps."""
    centre, root = _coordinates(prior)
    data = blr.posterior(prior), jnp.asarray(centre, float), jnp.asarray(root, float)
    draws, divergent = _nuts(*data, jax.random.split(key, length.chains), length)
    return np.asarray(draws), np.asarray(divergent).sum()


def _coordinates(prior: str) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Of x = m + Lz, the mode m under a ridge and a root L of the inverse Hessian there. Any would be right."""
    from scipy.optimize import minimize

    X, y = (np.asarray(leaf, np.float64) for leaf in blr.data().train)
    ridge = RIDGE[prior]

    def potential(x: Any) -> Any:
        value = np.logaddexp(0, -y * (X @ x)).sum() + ridge / 2 * x @ x
        return value, X.T @ blr.residuals(x[np.newaxis], X, y)[0] + ridge * x

    mode = minimize(potential, np.zeros(blr.DIM), jac=True, method="L-BFGS-B", options={"maxiter": 1_000}).x
    values, vectors = np.linalg.eigh(weighted_gram(X, blr.curvatures(mode[np.newaxis], X)[0]))
    return mode, vectors / np.sqrt(values.clip(0) + ridge)


@eqx.filter_jit
def _nuts(
    posterior: ls.Posterior, centre: Array, root: Array, keys: Array, length: Length
) -> tuple[Float[Array, "chain draw d"], Array]:
    """The NUTS of blackjax with window adaptation, from N(0, I) in z: independent of the library's own samplers."""
    import blackjax

    def log_density(z: Array) -> Array:
        return posterior.log_density(centre + root @ z)

    def chain(key: Array) -> Any:
        begin, warm, go = jax.random.split(key, 3)
        adaptation = blackjax.window_adaptation(blackjax.nuts, log_density, max_num_doublings=length.doublings)
        (state, found), _ = adaptation.run(warm, jax.random.normal(begin, centre.shape), length.warm_up)
        step = blackjax.nuts(log_density, **(found | {"max_num_doublings": length.doublings})).step

        def one(state: Any, key: Array) -> Any:
            state, info = step(key, state)
            return state, (centre + root @ state.position, info.is_divergent)

        return jax.lax.scan(one, state, jax.random.split(go, length.draws))[1]

    with jax.numpy_dtype_promotion("standard"):  # blackjax mixes labels and truths
        return jax.vmap(chain)(keys)


def _predictive(draws: NDArray[Any], rows: int = 500) -> tuple[NDArray[np.float64], float]:
    """The average of P(y = +1) of each test row over draws, and its log loss; `rows` draws in memory at a time."""
    X, y = (jnp.asarray(leaf) for leaf in blr.data().test)
    blocks = [log_of_sums(X, y, jnp.asarray(draws[None, i : i + rows]))[0] for i in range(0, len(draws), rows)]
    log_p = np.logaddexp.reduce(np.asarray(blocks, np.float64)) - np.log(len(draws))
    return np.where(np.asarray(y) > 0, np.exp(log_p), -np.expm1(log_p)), float(-log_p.mean())
