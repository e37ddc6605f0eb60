"""Exact tests of what each sampler computes: drift and diffusion, stationary law, change of coordinates, equations.

Each check is a function of a sampler, so that the negative controls at the end can hand it a wrong one.
"""

import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from registry import (
    ADAPTIVE,
    CONSTANT,
    PRECONDITIONERS,
    D,
    circulant,
    linear_regression,
    logistic_regression,
    precision,
    sampler,
)
from scipy.linalg import solve_discrete_lyapunov, sqrtm

import lsmcmc as ls
from lsmcmc.gradients import FunctionOracle

pytestmark = pytest.mark.usefixtures("x64")
PRODUCT = list(itertools.product(["overdamped"], PRECONDITIONERS))  # those with momenta: test_momentum.py


def transition(s, gradient, x, noise, h, temperature=1.0, memory=None):
    """One step from x under given noise; `memory` is the preconditioner's state."""
    state = s.init(jnp.asarray(x), key=jax.random.key(0))
    if memory is not None:
        state = eqx.tree_at(lambda st: st.preconditioner, state, memory)
    new, _ = s.transition(state, FunctionOracle(gradient), jnp.asarray(noise), jnp.asarray(h), jnp.asarray(temperature))
    return np.asarray(new.position)


def warm_memory(s, gradient):
    """A preconditioner state that has seen some gradients."""
    memory = s.preconditioner.init(jnp.zeros(D))
    for seed in range(3):
        memory = s.preconditioner.observe(memory, gradient(jax.random.normal(jax.random.key(seed), (D,))), 1)
    return memory


def dense(fn):
    """The matrix of a linear map on R^D."""
    return np.stack([np.asarray(fn(jnp.asarray(e))) for e in np.eye(D)], axis=1)


def quartic_gradient(x):
    """∇U of a target that is not Gaussian."""
    return jnp.asarray(precision()) @ x + 0.3 * x**3


# --- T2: the complete recipe -------------------------------------------------------------------------------------


def check_recipe(s, expected_root=None):
    """At h → 0: drift −G∇U (+ T Γ), diffusion G T, with the G of the preconditioner."""
    x, h, temperature = np.linspace(-1, 1.5, D), 1e-7, 0.7
    memory = warm_memory(s, quartic_gradient)
    learned = s.preconditioner.observe(memory, quartic_gradient(jnp.asarray(x)), 1)
    root = dense(lambda v: s.preconditioner.apply(learned, v)) if expected_root is None else expected_root
    still = transition(s, quartic_gradient, x, np.zeros(D), h, temperature, memory)
    pushed = [transition(s, quartic_gradient, x, e, h, temperature, memory) - still for e in np.eye(D)]
    diffusion = np.stack(pushed, axis=1) / np.sqrt(2 * h)
    G = root @ root.T
    np.testing.assert_allclose(diffusion @ diffusion.T, temperature * G, rtol=1e-6, atol=1e-7)
    correction = s.preconditioner.divergence(memory, quartic_gradient, jnp.asarray(x), 1)
    gamma = 0 if correction is None else np.asarray(correction)
    drift = -G @ np.asarray(quartic_gradient(jnp.asarray(x))) + temperature * gamma
    np.testing.assert_allclose((still - x) / h, drift, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(("dynamics", "preconditioner"), PRODUCT)
def test_drift_and_diffusion_are_those_of_the_complete_recipe(dynamics, preconditioner):
    check_recipe(sampler(dynamics, preconditioner))


def test_smoothing_has_the_roots_of_the_dense_inverse_in_drift_and_diffusion():
    root = np.real(sqrtm(np.linalg.inv(circulant(D, 1.0))))
    check_recipe(sampler("overdamped", "laplacian"), root)


def test_the_gamma_of_rmsprop_is_the_derivative_of_its_diagonal():
    s = ls.psgld(0.1, decay=0.9, eps=1e-3, gamma=True)
    check_recipe(s)
    memory, x = warm_memory(s, quartic_gradient), jnp.linspace(-1.0, 1.5, D)

    def diagonal(x):
        learned = s.preconditioner.observe(memory, quartic_gradient(x), 1)
        return s.preconditioner.apply(learned, jnp.ones(D)) ** 2

    eps = 1e-6
    numeric = [
        (diagonal(x + eps * e)[i] - diagonal(x - eps * e)[i]) / (2 * eps) for i, e in enumerate(jnp.eye(D, dtype=float))
    ]
    gamma = s.preconditioner.divergence(memory, quartic_gradient, x, 1)
    np.testing.assert_allclose(gamma, numeric, rtol=1e-6)


# --- T3: the stationary law on quadratics ------------------------------------------------------------------------


def affine_parts(s, h, temperature):
    """M and N of x' = M x + N ε on U = ½xᵀPx, read off the implementation."""
    P = jnp.asarray(precision())

    def move(x, noise):
        return transition(s, lambda z: P @ z, x, noise, h, temperature)

    zero = np.zeros(D)
    assert np.abs(move(zero, zero)).max() == 0
    return dense(lambda e: move(e, zero)), dense(lambda e: move(zero, e))


def check_stationary_covariance(s, root, h=0.05):
    """Cov = B(K − hK²/2)⁻¹Bᵀ with K = BᵀPB, times T."""
    for temperature in (1.0, 0.5):
        M, N = affine_parts(s, h, temperature)
        found = solve_discrete_lyapunov(M, N @ N.T)
        K = root.T @ precision() @ root
        exact = temperature * root @ np.linalg.inv(K - h * K @ K / 2) @ root.T
        np.testing.assert_allclose(found, exact, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("preconditioner", CONSTANT)
def test_the_law_at_rest_on_a_gaussian_is_the_exact_one(preconditioner):
    s = sampler("overdamped", preconditioner)
    check_stationary_covariance(s, dense(lambda v: s.preconditioner.apply((), v)))


@pytest.mark.parametrize("sigma", [0.0, 0.5, 4.0])
def test_theory_gives_the_law_that_the_implementation_has_with_gradient_noise(sigma):
    h, spread = 0.1, 1.3
    M, N = affine_parts(ls.ls_sgld(h, sigma=sigma), h, 0.7)
    G = np.linalg.inv(circulant(D, sigma))
    found = solve_discrete_lyapunov(M, N @ N.T + (h * spread) ** 2 * G @ G)
    expected = ls.theory.stationary_covariance(precision(), h, sigma=sigma, temperature=0.7, gradient_noise=spread**2)
    np.testing.assert_allclose(found, expected, rtol=1e-9)


def moments_at_rest(maps):
    """Mean and covariance of x' = M x + c + N ε, (M, c) drawn from `maps` at every step: exact, no sampling."""
    Ms, cs, N = maps
    mean = np.linalg.solve(np.eye(D) - Ms.mean(0), cs.mean(0))
    lift = np.mean([np.kron(M, M) for M in Ms], axis=0)
    shifted = [M @ mean + c - mean for M, c in zip(Ms, cs, strict=True)]
    source = np.mean([np.outer(s, s) for s in shifted], axis=0) + N @ N.T
    return mean, np.linalg.solve(np.eye(D * D) - lift, source.reshape(-1)).reshape(D, D)


@pytest.mark.parametrize("scheme", ["iid", "subset"])
@pytest.mark.parametrize("preconditioner", CONSTANT)
def test_the_law_at_rest_under_minibatch_noise_is_the_exact_one(preconditioner, scheme):
    """Linear regression, N = 6 and B = 2, every batch enumerated, against NumPy with the dense B."""
    posterior, X, y = linear_regression()
    s, h, size = sampler("overdamped", preconditioner), 0.03, 2
    pairs = itertools.product(range(6), repeat=2) if scheme == "iid" else itertools.combinations(range(6), 2)
    batches = [list(pair) for pair in pairs]

    def one(x, noise, rows):
        estimator = ls.Minibatch(size, scheme)
        oracle = ls.Oracle(posterior, estimator, (), estimator.fetch(posterior, rows, x))
        state = s.init(x, key=jax.random.key(0))
        return s.transition(state, oracle, noise, jnp.asarray(h), jnp.asarray(1.0))[0].position

    step, zero = jax.jit(one), jnp.zeros(D)
    cs = np.stack([step(zero, zero, jnp.asarray(b)) for b in batches])
    Ms = np.stack(
        [dense(lambda e, b=b, c=c: step(e, zero, jnp.asarray(b)) - c) for b, c in zip(batches, cs, strict=True)]
    )
    N = dense(lambda e: step(zero, e, jnp.asarray(batches[0])) - cs[0])
    found = moments_at_rest((Ms, cs, N))

    root = dense(lambda v: s.preconditioner.apply((), v))
    G, ratio = root @ root.T, 6 / size
    exact_Ms = np.stack([np.eye(D) - h * G @ (np.eye(D) + ratio * X[b].T @ X[b]) for b in batches])
    exact_cs = np.stack([h * ratio * G @ X[b].T @ y[b] for b in batches])
    exact = moments_at_rest((exact_Ms, exact_cs, np.sqrt(2 * h) * root))
    np.testing.assert_allclose(found[0], exact[0], rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(found[1], exact[1], rtol=1e-8, atol=1e-10)


# --- T4: a preconditioner is a change of coordinates ---------------------------------------------------------------


def check_change_of_coordinates(s, steps=5, root=None):
    """Stepping U with B from x = B y equals stepping U∘B with the identity from y, under the same noise."""
    h = 0.02
    memory = warm_memory(s, quartic_gradient)
    plain = ls.Sampler(h, s.dynamics)
    y = np.linspace(-0.5, 0.7, D)
    for k in range(steps):
        noise = np.asarray(jax.random.normal(jax.random.key(k), (D,)))
        if root is None:
            x = jnp.asarray(y)  # an adaptive root follows x, so x is given and y found from it
            learned = s.preconditioner.observe(memory, quartic_gradient(x), 1)
            B = dense(lambda v, learned=learned: s.preconditioner.apply(learned, v))
            y0 = np.linalg.solve(B, np.asarray(x))
        else:
            B, y0, x = root, y, root @ y
        direct = transition(s, quartic_gradient, x, noise, h, memory=memory)
        pulled = transition(plain, lambda z, B=B: jnp.asarray(B.T) @ quartic_gradient(jnp.asarray(B) @ z), y0, noise, h)
        np.testing.assert_allclose(direct, B @ pulled, rtol=1e-9, atol=1e-10)
        y = direct if root is None else pulled


@pytest.mark.parametrize(("dynamics", "preconditioner"), PRODUCT)
def test_a_preconditioner_is_a_change_of_coordinates(dynamics, preconditioner):
    s = sampler(dynamics, preconditioner)
    constant = preconditioner not in ADAPTIVE
    root = dense(lambda v: s.preconditioner.apply(s.preconditioner.init(jnp.zeros(D)), v)) if constant else None
    check_change_of_coordinates(s, root=root)


# --- T6: one step against the numbered equations --------------------------------------------------------------------


def numpy_gradient(x, X, y):
    """∇U of the logistic posterior on given rows, scaled to all of them."""
    rows, labels = X
    weight = 1 / (1 + np.exp(labels * (rows @ x)))
    return x - (y / len(labels)) * rows.T @ (labels * weight)


def paper_step(s, equation, memory=None):
    """Our step and the paper's on one minibatch, with its ε carried over to ours by ε = B⁻¹ A^{-1/2} ε."""
    posterior, X, y = logistic_regression()
    x, eps, rows, h = np.linspace(-1, 1, D), np.random.default_rng(5).normal(size=D), np.array([3, 8, 8, 21]), 0.02
    batch = ls.Minibatch(4).fetch(posterior, jnp.asarray(rows), x)
    oracle = ls.Oracle(posterior, ls.Minibatch(4), (), batch)
    state = s.init(jnp.asarray(x), key=jax.random.key(0))
    g = numpy_gradient(x, (X[rows], y[rows]), len(y))
    learned = s.preconditioner.observe(state.preconditioner, jnp.asarray(g), len(y))
    B = dense(lambda v: s.preconditioner.apply(learned, v))
    expected, spread = equation(x, g, h, len(y), eps)
    ours = np.linalg.solve(B, spread) / np.sqrt(2 * h)
    new, _ = s.transition(state, oracle, jnp.asarray(ours), jnp.asarray(h), jnp.asarray(1.0))
    np.testing.assert_allclose(new.position, expected, rtol=1e-10, atol=1e-12)


def test_ls_sgld_is_equation_ls_sgld_with_eta_and_beta_translated():
    """x − η A⁻¹ g/N + √(2η/β) A^{-1/2} ε on f = U/N, η = hN, β = N/T."""
    inverse = np.linalg.inv(circulant(D, 0.5))

    def equation(x, g, h, num, eps):
        eta, beta = h * num, num
        spread = np.sqrt(2 * eta / beta) * np.real(sqrtm(inverse)) @ eps
        return x - eta * inverse @ (g / num) + spread, spread

    paper_step(ls.ls_sgld(0.02, sigma=0.5), equation)


def test_sgld_is_the_step_of_welling_and_teh_with_epsilon_twice_h():
    def equation(x, g, h, num, eps):
        spread = np.sqrt(2 * h) * eps
        return x - (2 * h) / 2 * g + spread, spread

    paper_step(ls.sgld(0.02), equation)


def test_psgld_is_algorithm_1_of_li_et_al():
    def equation(x, g, h, num, eps):
        G = 1 / (1e-5 + np.sqrt(0.01 * (g / num) ** 2))
        spread = np.sqrt(2 * h * G) * eps
        return x - h * G * g + spread, spread

    paper_step(ls.psgld(0.02), equation)


def test_ls_psgld_has_one_root_in_drift_and_noise():
    inverse = np.linalg.inv(circulant(D, 0.5))

    def equation(x, g, h, num, eps):
        half = np.diag(1 / np.sqrt(1e-5 + np.sqrt(0.01 * (g / num) ** 2)))
        spread = np.sqrt(2 * h) * half @ np.real(sqrtm(inverse)) @ eps
        return x - h * half @ inverse @ half @ g + spread, spread

    paper_step(ls.ls_psgld(0.02, sigma=0.5), equation)


def test_lmc_is_equation_lmc_on_all_data():
    posterior, X, y = logistic_regression()
    x, eps, h = np.linspace(-1, 1, D), np.random.default_rng(5).normal(size=D), 0.02
    s = ls.lmc(h)
    oracle = ls.FullBatch().oracle(posterior, jax.random.key(0), jnp.asarray(x))
    state = s.init(jnp.asarray(x), key=jax.random.key(0))
    new, _ = s.transition(state, oracle, jnp.asarray(eps), jnp.asarray(h), jnp.asarray(1.0))
    expected = x - h * numpy_gradient(x, (X, y), len(y)) + np.sqrt(2 * h) * eps
    np.testing.assert_allclose(new.position, expected, rtol=1e-12)


@pytest.mark.parametrize("sigma", [0.0, 1.0, 30.0])
def test_at_temperature_zero_a_step_is_the_dense_gradient_step(sigma):
    x, h = np.linspace(-1, 1, D), 0.1
    s = ls.ls_sgld(h, sigma=sigma, temperature=0.0)
    new, _ = s.step(s.init(jnp.asarray(x), key=jax.random.key(0)), quartic_gradient, key=jax.random.key(1))
    expected = x - h * np.linalg.solve(circulant(D, sigma), np.asarray(quartic_gradient(jnp.asarray(x))))
    np.testing.assert_allclose(new.position, expected, rtol=1e-10)


def test_lssgd_by_optax_is_the_step_at_temperature_zero():
    import optax

    x, optimiser = jnp.linspace(-1.0, 1.0, D), optax.chain(ls.laplacian_smoothing(2.0), optax.sgd(0.1))
    updates, _ = optimiser.update(quartic_gradient(x), optimiser.init(x))
    s = ls.ls_sgld(0.1, sigma=2.0, temperature=0.0)
    new, _ = s.step(s.init(x, key=jax.random.key(0)), quartic_gradient, key=jax.random.key(1))
    np.testing.assert_allclose(optax.apply_updates(x, updates), new.position, rtol=1e-12)


# --- N: sabotaged samplers on which the checks above must fail -----------------------------------------------------


class LoudNoise(ls.Overdamped):
    """Noise 2 % too large."""

    def move(self, state, oracle, noise, step_size, temperature):
        return super().move(state, oracle, 1.02 * noise, step_size, temperature)


class ForgottenTwo(ls.Overdamped):
    """√(hT) for √(2hT)."""

    def move(self, state, oracle, noise, step_size, temperature):
        return super().move(state, oracle, noise / np.sqrt(2), step_size, temperature)


class TemperatureForItsRoot(ls.Overdamped):
    """T for √T."""

    def move(self, state, oracle, noise, step_size, temperature):
        return super().move(state, oracle, jnp.sqrt(temperature) * noise, step_size, temperature)


class UnsmoothedNoise(ls.Sampler):
    """x − h A⁻¹g + √(2h) ε: the gradient smoothed, the noise not."""

    def transition(self, state, oracle, noise, h, temperature):
        loud = jnp.linalg.solve(jnp.asarray(dense(lambda v: self.preconditioner.apply((), v))), noise)
        return super().transition(state, oracle, loud, h, temperature)


class SmoothedTwice(ls.Laplacian):
    """A⁻¹ where its root belongs."""

    def apply(self, state, v):
        return super().apply(state, super().apply_transpose(state, v))

    apply_transpose = apply


class NotTransposed(ls.Laplacian):
    """B for Bᵀ in the drift."""

    def apply_transpose(self, state, v):
        return self.apply(state, v)


class StaleGradient(ls.RMSprop):
    """The current batch left out of V."""

    def observe(self, state, gradient, num_examples):
        return state


SMOOTH_ROOT = np.real(sqrtm(np.linalg.inv(circulant(D, 1.0))))
NON_GAUSSIAN_T = {"temperature for its root": lambda: ls.Sampler(0.05, TemperatureForItsRoot(), ls.Laplacian(1.0))}
SABOTAGED = {
    "noise × 1.02": lambda: ls.Sampler(0.05, LoudNoise(), ls.Laplacian(1.0)),
    "no factor two": lambda: ls.Sampler(0.05, ForgottenTwo(), ls.Laplacian(1.0)),
    "unsmoothed noise": lambda: UnsmoothedNoise(0.05, ls.Overdamped(), ls.Laplacian(1.0)),
    "smoothed twice": lambda: ls.Sampler(0.05, ls.Overdamped(), SmoothedTwice(1.0)),
    "not transposed": lambda: ls.Sampler(0.05, ls.Overdamped(), NotTransposed(1.0)),
    "another σ": lambda: ls.Sampler(0.05, ls.Overdamped(), ls.Laplacian(1.01)),
}


@pytest.mark.parametrize("name", [*SABOTAGED, *NON_GAUSSIAN_T])
def test_the_recipe_check_fails_on_a_sabotaged_sampler(name):
    with pytest.raises(AssertionError):
        check_recipe({**SABOTAGED, **NON_GAUSSIAN_T}[name](), SMOOTH_ROOT)


@pytest.mark.parametrize("name", [*SABOTAGED, *NON_GAUSSIAN_T])
def test_the_stationary_check_fails_on_a_sabotaged_sampler(name):
    with pytest.raises(AssertionError):
        check_stationary_covariance({**SABOTAGED, **NON_GAUSSIAN_T}[name](), SMOOTH_ROOT)


@pytest.mark.parametrize("name", ["unsmoothed noise", "smoothed twice", "not transposed", "another σ"])
def test_the_coordinates_check_fails_on_a_sabotaged_sampler(name):
    honest = sampler("overdamped", "laplacian")
    root = dense(lambda v: honest.preconditioner.apply((), v))
    check_change_of_coordinates(honest, root=root)
    with pytest.raises(AssertionError):
        check_change_of_coordinates(SABOTAGED[name](), root=root)


def test_the_equation_check_fails_when_the_current_batch_is_left_out_of_v():
    def equation(x, g, h, num, eps):
        G = 1 / (1e-5 + np.sqrt(0.01 * (g / num) ** 2))
        spread = np.sqrt(2 * h * G) * eps
        return x - h * G * g + spread, spread

    with pytest.raises(AssertionError):
        paper_step(ls.Sampler(0.02, ls.Overdamped(), StaleGradient()), equation)


def test_the_equation_check_fails_when_the_prior_is_scaled_with_the_data():
    posterior, X, y = logistic_regression()
    wrong = ls.Posterior(posterior.log_likelihood, lambda x: -0.5 * 1.01 * jnp.sum(x**2), (X, y))
    x = jnp.linspace(-1.0, 1.0, D)
    gradient = jax.grad(lambda z: -wrong.log_density(z))(x)
    assert not np.allclose(gradient, numpy_gradient(np.asarray(x), (X, y), len(y)), rtol=1e-4)
