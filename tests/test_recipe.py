"""The complete recipe: named samplers written as a D and a Q, laws at rest by Fokker–Planck, and Γ against hands."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lsmcmc as ls
from lsmcmc.gradients import FunctionOracle

pytestmark = pytest.mark.usefixtures("x64")
D, T, H = 3, 0.7, 0.05
P = np.array([[1.5, 0.3, 0.1], [0.3, 1.0, -0.2], [0.1, -0.2, 2.0]])


def gradient(x):
    return jnp.asarray(P) @ x + 0.3 * x**3


def potential(x):
    return 0.5 * x @ jnp.asarray(P) @ x + 0.075 * jnp.sum(x**4)


def metric(x):
    return 1 / (1 + x**2)


def matrix(x):
    """A full D that mixes coordinates and changes with all of them."""
    v = jnp.stack([1 + 0.1 * x[1], 0.5 * jnp.sin(x[0]), 0.3 * x[2]])
    return jnp.outer(v, v) + jnp.diag(1 + 0.2 * x**2)


def turning(x):
    upper = jnp.zeros((D, D)).at[0, 1].set(x[2] ** 2).at[0, 2].set(jnp.sin(x[1]))
    return upper - upper.T


def coupling(q):
    """The matrix that a short Q stands for."""
    zero = jnp.zeros((D, D))
    return jnp.block([[zero, -jnp.diag(q)], [jnp.diag(q), zero]])


def couple(x, r):
    return jnp.concatenate([0 * x, 1.3 * metric(x)])


RECIPES = {
    "Riemannian Langevin, diagonal": lambda: ls.recipe(metric, step_size=H),
    "Riemannian Langevin, matrix": lambda: ls.recipe(matrix, step_size=H),
    "turning": lambda: ls.recipe(matrix, turning, step_size=H),
    "Riemannian HMC": lambda: ls.recipe(
        couple, lambda x, r: jnp.sqrt(metric(x)), step_size=H, auxiliary=jnp.zeros_like
    ),
    "its coupling by momentum too": lambda: ls.recipe(
        couple, lambda x, r: 1 + 0.1 * r**2 + x**2, step_size=H, auxiliary=jnp.zeros_like
    ),
    "an energy that mixes": lambda: ls.recipe(
        couple,
        lambda x, r: metric(x),
        step_size=H,
        auxiliary=jnp.zeros_like,
        energy=lambda x, r: 0.5 * jnp.sum(r**2 * (1 + x**2)) - 0.5 * T * jnp.sum(jnp.log1p(x**2)),
    ),
}


def transition(s, z, noise, h):
    """One step of z = (x, a) as one vector."""
    state = s.init(z[:D], key=jax.random.key(0))
    if z.size > D:
        state = eqx.tree_at(lambda st: st.dynamics, state, z[D:])
    new, _ = s.transition(state, FunctionOracle(gradient), noise, jnp.asarray(h), jnp.asarray(T))
    return jnp.concatenate([new.position, new.dynamics]) if z.size > D else new.position


def fokker_planck(s, size, energy=None):
    """∂p/∂t over p at p ∝ exp(−H/T); drift and diffusion are read off a step of h = 1, which is affine in h."""

    def noise(e):
        return e if size == D else (e[:D], e[D:])

    def drift(z):
        return transition(s, z, noise(jnp.zeros(size)), 1.0) - z

    def half_covariance(z):
        at_rest = transition(s, z, noise(jnp.zeros(size)), 1.0)
        root = jax.vmap(lambda e: transition(s, z, noise(e), 1.0) - at_rest)(jnp.eye(size))
        return root.T @ root / 2

    def log_p(z):
        kinetic = 0.0 if size == D else (0.5 * jnp.sum(z[D:] ** 2) if energy is None else energy(z[:D], z[D:]))
        return -(potential(z[:D]) + kinetic) / T

    def flux(z):  # −∇·(b p) + ∇∇:(C p), over p
        out = lambda z: drift(z) * jnp.exp(log_p(z))  # noqa: E731
        first = jnp.trace(jax.jacfwd(out)(z))
        spread = lambda z: half_covariance(z) * jnp.exp(log_p(z))  # noqa: E731
        second = jnp.einsum("ijij->", jax.jacfwd(jax.jacfwd(spread))(z))
        return (second - first) / jnp.exp(log_p(z))

    points = 0.7 * jax.random.normal(jax.random.key(0), (4, size))
    return np.asarray(jax.jit(jax.vmap(flux))(points))


@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_leaves_its_law_at_rest(name):
    s = RECIPES[name]()
    size = D if s.dynamics.auxiliary is None else 2 * D
    energy = s.dynamics.energy if "mixes" in name else None
    np.testing.assert_allclose(fokker_planck(s, size, energy), 0, atol=1e-8)


class WithoutGamma(ls.recipe(metric, step_size=H).dynamics.__class__):
    """The correction left out."""

    def move(self, state, oracle, noise, step_size, temperature):
        m, a = super().move(state, oracle, noise, step_size, temperature)
        zero = jax.tree.map(jnp.zeros_like, noise)
        warm, b = super().move(state, oracle, zero, step_size, temperature)
        cold, c = super().move(state, oracle, zero, step_size, 0 * temperature)
        return m - (warm - cold), jax.tree.map(lambda a, b, c: a - (b - c), a, b, c)


@pytest.mark.parametrize("name", ["Riemannian Langevin, diagonal", "turning", "Riemannian HMC"])
def test_the_law_is_lost_without_gamma(name):
    s = RECIPES[name]()
    d = s.dynamics
    bad = ls.Sampler(H, WithoutGamma(d.D, d.Q, d.auxiliary, d.energy))
    assert np.abs(fokker_planck(bad, D if d.auxiliary is None else 2 * D)).max() > 0.05


def test_a_constant_diagonal_is_sgld_and_a_constant_coupling_the_underdamped_equation():
    x, e = jnp.linspace(-1.0, 1.0, D), jnp.asarray([0.3, -1.0, 0.5])
    one = transition(ls.recipe(np.ones(D), step_size=H), x, e, H)
    np.testing.assert_allclose(one, x - H * gradient(x) + np.sqrt(2 * H * T) * e, rtol=1e-12)
    r = jnp.asarray([0.1, 0.2, -0.4])
    s = ls.recipe(np.r_[np.zeros(D), np.full(D, 1.5)], np.ones(D), step_size=H, auxiliary=jnp.zeros_like)
    found = transition(s, jnp.concatenate([x, r]), (0 * e, e), H)
    kicked = r - H * gradient(x) - H * 1.5 * r + np.sqrt(2 * 1.5 * H * T) * e
    np.testing.assert_allclose(found, np.concatenate([x + H * r, kicked]), rtol=1e-12)


def test_a_preconditioner_is_a_change_of_coordinates_for_recipes_too():
    B = np.stack([np.asarray(ls.Laplacian(1.0).apply((), jnp.asarray(e))) for e in np.eye(D)], axis=1)
    y, e = np.linspace(-1.0, 1.0, D), jnp.asarray([0.3, -1.0, 0.5])
    s = ls.recipe(matrix, turning, step_size=H, preconditioner=ls.Laplacian(1.0))
    direct = transition(s, jnp.asarray(B @ y), e, H)
    plain = ls.recipe(lambda y: matrix(jnp.asarray(B) @ y), lambda y: turning(jnp.asarray(B) @ y), step_size=H)
    state = plain.init(jnp.asarray(y), key=jax.random.key(0))
    pulled = FunctionOracle(lambda y: jnp.asarray(B.T) @ gradient(jnp.asarray(B) @ y))
    new, _ = plain.transition(state, pulled, e, jnp.asarray(H), jnp.asarray(T))
    np.testing.assert_allclose(direct, B @ new.position, rtol=1e-10)


def test_the_short_forms_are_the_matrices_that_they_stand_for():
    z, e = jax.random.normal(jax.random.key(1), (2, 2 * D))
    short = RECIPES["its coupling by momentum too"]()
    full = ls.recipe(
        lambda x, r: jnp.diag(couple(x, r)),
        lambda x, r: coupling(1 + 0.1 * r**2 + x**2),
        step_size=H,
        auxiliary=jnp.zeros_like,
    )
    noise = (e[:D], e[D:])
    np.testing.assert_allclose(transition(short, z, noise, H), transition(full, z, noise, H), rtol=1e-10)


def test_a_recipe_runs_on_pytrees_in_the_loop():
    target = ls.Target(lambda x: -0.5 * (jnp.sum(x["a"] ** 2) + jnp.sum(x["b"] ** 2)))
    s = ls.recipe(
        lambda x, r: jnp.concatenate([jnp.zeros(3), jnp.ones(3)]),
        lambda x, r: jnp.ones(3),
        step_size=0.05,
        auxiliary=lambda x: jax.tree.map(jnp.zeros_like, x),
    )
    run = ls.sample(s, target, {"a": jnp.zeros(2), "b": jnp.zeros(1)}, num_draws=3_000, chains=50, burn_in=200)
    assert run.variance()["a"] == pytest.approx(np.ones(2), abs=0.1)


def test_wrong_recipes_are_refused():
    target = ls.Target(lambda x: -0.5 * jnp.sum(x**2))
    with pytest.raises(ValueError, match=r"D must be a matrix of shape \(3, 3\).*or its diagonal.*got shape \(2,\)"):
        ls.sample(ls.recipe(np.ones(2), step_size=0.1), target, jnp.zeros(3), num_draws=1)
    with pytest.raises(ValueError, match="Q must be skew-symmetric"):
        ls.recipe(np.eye(2), np.ones((2, 2)), step_size=0.1)
    with pytest.raises(ValueError, match="D must be positive semi-definite"):
        ls.recipe(-np.eye(2), step_size=0.1)
    with pytest.raises(ValueError, match="give auxiliary= too"):
        ls.recipe(np.ones(2), step_size=0.1, energy=lambda x, a: 0.0)
