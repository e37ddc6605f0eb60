"""The weak order of the integrators that test_momentum.py does not measure: overdamped, recipes, thermostats."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree
from registry import DYNAMICS
from test_momentum import ORDERS

import lsmcmc as ls
from lsmcmc import momentum

pytestmark = pytest.mark.usefixtures("x64")
T, A = 0.7, 1.5


def gradient(x):
    """∇U of x⁴/4 + x²/2."""
    return x**3 + x


def metric(x):
    return 1 / (1 + x**2)


def moved(sampler, z, noise, h):
    """One step of z = (x, what the dynamics carries), all numbers."""
    state = sampler.init(z[:1], key=jax.random.key(0))
    state = ls.State(z[:1], ravel_pytree(state.dynamics)[1](z[1:]), state.preconditioner, state.step)
    new, _ = sampler.transition(state, gradient, noise, jnp.asarray(h), jnp.asarray(T))
    return jnp.concatenate([new.position, ravel_pytree(new.dynamics)[0].astype(float)])


def langevin(f):
    """−∇U f' + T f''."""
    df = jax.grad(f)
    return lambda z: -gradient(z[0]) * df(z)[0] + T * jax.hessian(f)(z)[0, 0]


def riemannian(f):
    """(−G∇U + T G') f' + T G f''."""
    df = jax.grad(f)
    drift = lambda x: -metric(x) * gradient(x) + T * jax.grad(metric)(x)  # noqa: E731
    return lambda z: drift(z[0]) * df(z)[0] + T * metric(z[0]) * jax.hessian(f)(z)[0, 0]


def thermostat(f):
    """r ∂y + (−∇U − ξr) ∂r + AT ∂²r + (r² − T) ∂ξ."""
    df = jax.grad(f)

    def lf(z):
        y, r, xi = z
        drift = jnp.stack([r, -gradient(y) - xi * r, r**2 - T])
        return drift @ df(z) + A * T * jax.hessian(f)(z)[1, 1]

    return lf


CASES = {
    "overdamped": (lambda: ls.sgld(0.1), langevin, 1),
    "recipe": (lambda: ls.recipe(lambda x: metric(x), step_size=0.1), riemannian, 1),
    "sgnht": (lambda: ls.Sampler(0.1, momentum.NoseHoover(A)), thermostat, 1),
    "symmetric sgnht": (lambda: ls.Sampler(0.1, momentum.SymmetricNoseHoover(A)), thermostat, 2),
    "symmetric sgnht per leaf": (
        lambda: ls.Sampler(0.1, momentum.SymmetricNoseHoover(A, per_leaf=True)),
        thermostat,
        2,
    ),
}


def local_order(sampler, generator):
    """The slope in h of E f(z') − (f + h Lf + h²L²f/2); Gauss–Hermite is exact to 23 degrees of the noise."""
    size = {langevin: 1, riemannian: 1, thermostat: 3}[generator]
    z = jnp.asarray([0.8, -0.5, 1.3][:size])

    def f(z):
        return z[0] ** 2 * z[-1] + z[-1] ** 3 + z[0] ** 3 + (z[1] ** 3 + z[0] * z[1] * z[2] if size > 1 else 0.0)

    nodes, weights = np.polynomial.hermite_e.hermegauss(12)
    after = jax.jit(lambda h: jax.vmap(lambda e: f(moved(sampler, z, e[None], h)))(jnp.asarray(nodes)))
    lf = generator(f)
    theory = [float(g(z)) for g in (f, lf, generator(lf))]
    hs = np.array([0.02, 0.01, 0.005])
    mean = np.array([np.asarray(after(h)) @ weights / weights.sum() for h in hs])
    errors = np.abs(mean - (theory[0] + hs * theory[1] + hs**2 / 2 * theory[2]))
    return np.polyfit(np.log(hs), np.log(errors), 1)[0]


@pytest.mark.parametrize("name", CASES)
def test_the_local_error_has_the_weak_order_plus_one(name):
    make, generator, order = CASES[name]
    assert local_order(make(), generator) == pytest.approx(order + 1, abs=0.2)


class WithoutGamma(ls.recipe(lambda x: metric(x), step_size=0.1).dynamics.__class__):
    """Γ left out: no order at all."""

    def move(self, state, oracle, noise, step_size, temperature):
        m, a = super().move(state, oracle, noise, step_size, temperature)
        zero = jax.tree.map(jnp.zeros_like, noise)
        warm, _ = super().move(state, oracle, zero, step_size, temperature)
        cold, _ = super().move(state, oracle, zero, step_size, 0 * temperature)
        return m - (warm - cold), a


class HalfAStepOfFriction(momentum.SymmetricNoseHoover):
    """The first half of the thermostat left out."""

    def move(self, state, oracle, noise, step_size, temperature):
        (r, xi), h = state, step_size
        early = self.warmer(xi, r, h / 2, temperature) - xi
        return super().move((r, xi - early), oracle, noise, step_size, temperature)


def test_the_measured_order_falls_on_sabotaged_integrators():
    d = ls.recipe(lambda x: metric(x), step_size=0.1).dynamics
    loses_gamma = ls.Sampler(0.1, WithoutGamma(d.D, d.Q, d.auxiliary, d.energy))
    assert local_order(loses_gamma, riemannian) < 1.3
    assert local_order(ls.Sampler(0.1, HalfAStepOfFriction(A)), thermostat) < 1.3


def test_every_integrator_of_the_registry_has_its_order_measured():
    composed = {"resampled"}  # SGHMC, between fresh momenta
    assert set(DYNAMICS) == composed | set(ORDERS) | (set(CASES) - {"recipe"})
