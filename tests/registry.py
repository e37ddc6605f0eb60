"""Every piece by name, so that one check runs over all of them, and toy targets with laws known exactly."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np

import lsmcmc as ls
from lsmcmc import momentum

D = 6  # of the toy problems

PRECONDITIONERS = {
    "identity": lambda: ls.Identity(),
    "laplacian": lambda: ls.Laplacian(1.0),
    "strong laplacian": lambda: ls.Laplacian(20.0),
    "second order": lambda: ls.Laplacian(0.7, order=2),
    "rmsprop": lambda: ls.RMSprop(0.9, 1e-3),
    "rmsprop @ laplacian": lambda: ls.RMSprop(0.9, 1e-3) @ ls.Laplacian(0.5),
    "laplacian @ rmsprop": lambda: ls.Laplacian(0.5) @ ls.RMSprop(0.9, 1e-3),
}
ADAPTIVE = {name for name in PRECONDITIONERS if "rmsprop" in name}
CONSTANT = sorted(set(PRECONDITIONERS) - ADAPTIVE)

UNDERDAMPED = {
    "sghmc": lambda: momentum.SGHMC(1.5),
    "symmetric": lambda: momentum.SymmetricSGHMC(1.5),
    "baoa": lambda: momentum.BAOAB(1.5),
    "baoab": lambda: momentum.BAOAB(1.5, full=True),
    "umcmc": lambda: momentum.UnderdampedExact(1.5),
}
DYNAMICS = {
    "overdamped": lambda: ls.Overdamped(),
    **UNDERDAMPED,
    "resampled": lambda: momentum.Resampled(momentum.SGHMC(1.0), 3),
    "sgnht": lambda: momentum.NoseHoover(1.5),
    "symmetric sgnht": lambda: momentum.SymmetricNoseHoover(1.5),
    "symmetric sgnht per leaf": lambda: momentum.SymmetricNoseHoover(1.5, per_leaf=True),
}

ESTIMATORS = {
    "iid": lambda: ls.Minibatch(2),
    "subset": lambda: ls.Minibatch(2, "subset"),
    "epochs": lambda: ls.Minibatch(2, "epochs"),
    "shared": lambda: ls.Minibatch(2, shared=True),
    "full": lambda: ls.FullBatch(),
    "srvr": lambda: ls.SVRG(2, 5, anchor=5, recursive=True),
    "saga": lambda: ls.SAGA(2),
}

SAMPLERS = {
    "sgld": lambda h=1e-2: ls.sgld(h),
    "psgld": lambda h=1e-2: ls.psgld(h),
    "psgld with gamma": lambda h=1e-2: ls.psgld(h, gamma=True),
    "ls_sgld": lambda h=1e-2: ls.ls_sgld(h, sigma=1.0),
    "ls_sgld of order 2": lambda h=1e-2: ls.ls_sgld(h, sigma=0.5, order=2),
    "global ls_sgld": lambda h=1e-2: ls.ls_sgld(h, sigma=1.0, scope="global"),
    "ls_psgld": lambda h=1e-2: ls.ls_psgld(h, sigma=1.0),
    "per leaf": lambda h=1e-2: ls.sgld(h, preconditioner=[ls.Laplacian(1.0), ls.RMSprop()]),
    "sghmc": lambda h=1e-2: ls.sghmc(h, friction=1.0, noise_estimate=1e-3),
    "symmetric sghmc": lambda h=1e-2: ls.sghmc(h, friction=1.0, integrator="symmetric"),
    "resampled sghmc": lambda h=1e-2: ls.sghmc(h, friction=0.5, resample_every=4),
    "ls_sghmc": lambda h=1e-2: ls.sghmc(h, friction=1.0, preconditioner=ls.Laplacian(1.0)),
    "baoa": lambda h=1e-2: ls.baoab(h, friction=1.0),
    "baoab": lambda h=1e-2: ls.baoab(h, friction=1.0, full=True),
    "umcmc": lambda h=1e-2: ls.umcmc(h),
    "euler sgnht": lambda h=1e-2: ls.sgnht(h, friction=1.0, integrator="euler"),
    "sgnht per leaf": lambda h=1e-2: ls.sgnht(h, friction=1.0, per_leaf=True),
    "replicas": lambda h=1e-2: ls.tempering(ls.ls_psgld(h), (1.0, 2.0, 4.0), swap_every=2),
    "replicas of sgnht": lambda h=1e-2: ls.tempering(ls.sgnht(h, friction=1.0), (1.0, 2.0), swap_every=3),
    "lmc": lambda h=1e-2: ls.lmc(h),
    "ls_lmc": lambda h=1e-2: ls.lmc(h, preconditioner=ls.Laplacian(1.0)),
    "rwm": lambda h=1e-2: ls.rwm(h),
    "mala": lambda h=1e-2: ls.mala(h),
    "ls_mala": lambda h=1e-2: ls.mala(h, preconditioner=ls.Laplacian(1.0)),
    "hmc": lambda h=1e-2: ls.hmc(h, 3),
    "nuts": lambda h=1e-2: ls.nuts(h, max_doublings=4),
    "amagold": lambda h=1e-2: ls.amagold(h, friction=1.0, num_steps=3),
}
FULL_DATA = {name for name in SAMPLERS if SAMPLERS[name]().reads_all_data}
CORRECTED = {name for name in SAMPLERS if SAMPLERS[name]().dynamics.is_exact}  # by a Metropolis test


WRAPPED = {
    "alone": lambda s: s,
    "replicas": lambda s: ls.tempering(s, (1.0, 2.0), swap_every=2, energy_variance=1.0),
}


def is_allowed(dynamics: str, preconditioner: str, estimator: str, *rest: str) -> bool:
    """Whether these pieces go together: a Metropolis test takes a constant preconditioner, and often all data."""
    kind = DYNAMICS[dynamics]()
    reads_all_data = getattr(kind, "reads_all_data", kind.is_exact)
    return not (kind.is_exact and preconditioner in ADAPTIVE) and not (reads_all_data and estimator != "full")


def covering(*factors, allowed=is_allowed) -> list[tuple[str, ...]]:
    """A few rows of the full product that hold every pair of values in it, found greedily, in order."""
    product = [row for row in itertools.product(*factors) if allowed(*row)]

    def pairs(row: tuple[str, ...]) -> set:
        return set(itertools.combinations(enumerate(row), 2))

    missing, chosen = set().union(*map(pairs, product)), []
    while missing:
        chosen.append(max(product, key=lambda row: len(pairs(row) & missing)))
        missing -= pairs(chosen[-1])
    return chosen


def sampler(dynamics: str, preconditioner: str, step_size: float = 0.05, temperature: float = 1.0) -> ls.Sampler:
    """One of the full product."""
    return ls.Sampler(step_size, DYNAMICS[dynamics](), PRECONDITIONERS[preconditioner](), temperature)


def precision() -> np.ndarray:
    """A correlated positive definite matrix with eigenvalues from 0.5 to 4."""
    vectors, _ = np.linalg.qr(np.random.default_rng(1).normal(size=(D, D)))
    return vectors @ np.diag(np.linspace(0.5, 4.0, D)) @ vectors.T


def linear_regression(num: int = 6) -> tuple[ls.Posterior, np.ndarray, np.ndarray]:
    """A posterior quadratic in the position whose minibatch gradients have noise that depends on it."""
    rng = np.random.default_rng(2)
    X, y = rng.normal(size=(num, D)), rng.normal(size=num)

    def log_likelihood(x, batch):
        rows, targets = batch
        return -0.5 * (targets - rows @ x) ** 2

    return ls.Posterior(log_likelihood, lambda x: -0.5 * jnp.sum(x**2), (X, y)), X, y


def logistic_regression(num: int = 40, dim: int = D) -> tuple[ls.Posterior, np.ndarray, np.ndarray]:
    """A small posterior without closed form."""
    rng = np.random.default_rng(3)
    X = rng.normal(size=(num, dim))
    y = np.sign(rng.normal(size=num))

    def log_likelihood(x, batch):
        rows, labels = batch
        return jax.nn.log_sigmoid(labels * (rows @ x))

    return ls.Posterior(log_likelihood, lambda x: -0.5 * jnp.sum(x**2), (X, y)), X, y


def circulant(d: int, sigma: float, order: int = 1) -> np.ndarray:
    """A_σ written down entry by entry, independently of the library."""
    minus_laplacian = np.zeros((d, d))
    for i in range(d):
        for j in {(i - 1) % d, (i + 1) % d} - {i}:
            minus_laplacian[i, j] -= 1
            minus_laplacian[i, i] += 1
    return np.eye(d) + sigma * np.linalg.matrix_power(minus_laplacian, order)
