"""Dynamics with momentum: against textbooks, their laws at rest, their orders, and wrong ones that must be found out.

Everything is in y with unit mass; a state is (y, r). Laws are exact: Lyapunov, quadrature, enumeration.
"""

import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from registry import ADAPTIVE, DYNAMICS, PRECONDITIONERS, UNDERDAMPED, D, linear_regression, precision
from scipy.linalg import expm, solve_continuous_lyapunov, solve_discrete_lyapunov

import lsmcmc as ls
from lsmcmc import momentum
from lsmcmc.gradients import FunctionOracle

pytestmark = pytest.mark.usefixtures("x64")
FRICTION, H, T = 1.5, 0.05, 0.7


def quartic_gradient(x):
    return jnp.asarray(precision()) @ x + 0.3 * x**3


def numpy_gradient(x):
    return np.asarray(quartic_gradient(jnp.asarray(x)))


def step(dynamics, gradient, y, r, noise, h=H, temperature=T, preconditioner=ls.Identity(), memory=None):
    """One step of (y, r) under given noise."""
    s = ls.Sampler(h, dynamics, preconditioner)
    state = s.init(jax.tree.map(jnp.asarray, y), key=jax.random.key(0))
    state = eqx.tree_at(lambda st: st.dynamics, state, r)
    if memory is not None:
        state = eqx.tree_at(lambda st: st.preconditioner, state, memory)
    new, _ = s.transition(state, FunctionOracle(gradient), noise, jnp.asarray(h), jnp.asarray(temperature))
    return new.position, new.dynamics


def state_of(dynamics, seed=1):
    """A state with every number away from zero."""
    rng = np.random.default_rng(seed)
    like = dynamics.init(jnp.zeros(D), jax.random.key(0), jnp.asarray(1.0))
    return jax.tree.map(lambda leaf: jnp.asarray(rng.normal(size=leaf.shape)) + 0.5, like)


# --- T6: against textbooks, each in its own convention -------------------------------------------------------------


def chen_fox_guestrin(gradient, y, r, e, h, T):
    """Δθ = v, Δv = −η∇U − αv + N(0, 2(α − β̂)η), with v = h r, η = h², α = hγ and β̂ = 0."""
    eta, alpha, v = h**2, h * FRICTION, h * r
    v = v - eta * gradient(y) - alpha * v + np.sqrt(2 * alpha * eta * T) * e
    return y + v, v / h


def chen_ding_carin(gradient, y, r, e, h, T):
    """Half a drift, half the damping, the kick, half the damping, half a drift."""
    y = y + r * h / 2
    r = np.exp(-FRICTION * h / 2) * r
    r = r - h * gradient(y) + np.sqrt(2 * FRICTION * h * T) * e
    r = np.exp(-FRICTION * h / 2) * r
    return y + r * h / 2, r


def leimkuhler_matthews(kicks):
    def step(gradient, y, r, e, h, T):
        c = np.exp(-FRICTION * h)
        r = r - kicks[0] * h * gradient(y)
        y = y + h / 2 * r
        r = c * r + np.sqrt(T * (1 - c**2)) * e
        y = y + h / 2 * r
        return y, r - kicks[1] * h * gradient(y)

    return step


def cheng_et_al(gradient, y, r, e, h, T):
    """The linear equation with ∇ held still: mean and covariance by matrix exponentials."""
    A = np.array([[0.0, 1.0], [0.0, -FRICTION]])
    flow = expm(A * h)
    doubled = expm(np.block([[-A, np.diag([0.0, 2 * FRICTION * T])], [np.zeros((2, 2)), A.T]]) * h)
    covariance = doubled[2:, 2:].T @ doubled[:2, 2:]  # Van Loan 1978
    push = expm(np.block([[A, np.array([[0.0], [-1.0]])], [np.zeros((1, 3))]]) * h)[:2, 2]
    lower = np.linalg.cholesky(covariance[::-1, ::-1])  # r first, then y given r
    z = flow @ np.stack([y, r]) + np.outer(push, gradient(y)) + (lower @ np.stack(e))[::-1]
    return z[0], z[1]


TEXTBOOK = {
    "sghmc": chen_fox_guestrin,
    "symmetric": chen_ding_carin,
    "baoa": leimkuhler_matthews((1, 0)),
    "baoab": leimkuhler_matthews((0.5, 0.5)),
    "umcmc": cheng_et_al,
}


def check_textbook(dynamics, textbook, h):
    rng = np.random.default_rng(3)
    y, r = rng.normal(size=(2, D))
    noise = dynamics.noise(jax.random.key(1), jnp.zeros(D))
    found = step(dynamics, quartic_gradient, y, jnp.asarray(r), noise, h)
    expected = textbook(
        lambda x: np.asarray(quartic_gradient(jnp.asarray(x))), y, r, jax.tree.map(np.asarray, noise), h, T
    )
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-11)


@pytest.mark.parametrize("h", [0.01, 0.1, 0.5])
@pytest.mark.parametrize("name", TEXTBOOK)
def test_a_step_is_that_of_the_textbook(name, h):
    check_textbook(UNDERDAMPED[name](), TEXTBOOK[name], h)


def test_the_noise_estimate_is_taken_out_of_the_added_noise():
    """Chen et al.: N(0, 2(α − β̂)η), β̂ = h²V̂/2, so r' has variance 2hγT − h²V̂."""
    V = 3.0
    for form in (momentum.SGHMC, momentum.SymmetricSGHMC):
        dynamics = form(FRICTION, V)
        ones, zeros = jnp.ones(D), jnp.zeros(D)
        _, with_noise = step(dynamics, quartic_gradient, zeros, zeros, ones)
        _, without = step(dynamics, quartic_gradient, zeros, zeros, zeros)
        scale = np.exp(-FRICTION * H / 2) if form is momentum.SymmetricSGHMC else 1.0
        np.testing.assert_allclose(
            np.asarray(with_noise - without) / scale, np.sqrt(2 * H * FRICTION * T - H**2 * V), rtol=1e-12
        )


def test_noise_estimates_may_be_given_by_branch():
    dynamics = momentum.SGHMC(1.0, {"w": 2.0, "b": 0.0})
    noise = {"w": jnp.ones(2), "b": jnp.ones(1)}
    spread = dynamics.spread(noise, jnp.asarray(0.1), jnp.asarray(1.0))
    np.testing.assert_allclose(spread["w"], np.sqrt(0.2 - 0.02), rtol=1e-12)
    np.testing.assert_allclose(spread["b"], np.sqrt(0.2), rtol=1e-12)


@pytest.mark.parametrize("per_leaf", [False, True])
def test_the_thermostat_is_algorithm_2_of_ding_et_al(per_leaf):
    """p ← p − ξph − ∇h + N(0, 2Ah), θ ← θ + ph, ξ ← ξ + (pᵀp/n − 1)h, on two leaves."""
    rng = np.random.default_rng(4)
    y = [rng.normal(size=4), rng.normal(size=2)]
    r, e = ([rng.normal(size=4), rng.normal(size=2)] for _ in range(2))
    xi = [0.4, 0.9] if per_leaf else [0.4, 0.4]
    dynamics = momentum.NoseHoover(FRICTION, per_leaf=per_leaf)
    as_jax = lambda tree: jax.tree.map(jnp.asarray, tree)  # noqa: E731
    state = (as_jax(r), as_jax(xi) if per_leaf else jnp.asarray(0.4))
    found, (momenta, thermostat) = step(
        dynamics, lambda x: [2 * leaf for leaf in x], as_jax(y), state, as_jax(e), H, 1.0
    )
    p = [a - H * x * a - H * 2 * b + np.sqrt(2 * FRICTION * H) * n for a, b, n, x in zip(r, y, e, xi, strict=True)]
    np.testing.assert_allclose(np.concatenate(momenta), np.concatenate(p), rtol=1e-12)
    np.testing.assert_allclose(np.concatenate(found), np.concatenate(y) + H * np.concatenate(p), rtol=1e-12)
    if per_leaf:
        expected = [x + H * (a @ a / a.size - 1) for x, a in zip(xi, p, strict=True)]
        np.testing.assert_allclose(jax.tree.leaves(thermostat), expected, rtol=1e-12)
    else:
        np.testing.assert_allclose(thermostat, 0.4 + H * (sum(a @ a for a in p) / D - 1), rtol=1e-12)


def test_resampling_draws_the_momentum_anew_when_it_is_due_and_not_otherwise():
    dynamics = momentum.Resampled(momentum.SGHMC(FRICTION), 3)
    s = ls.Sampler(H, dynamics, temperature=T)
    noise = dynamics.noise(jax.random.key(1), jnp.zeros(D))
    state = s.init(jnp.ones(D), key=jax.random.key(0))
    for count in range(5):
        state = eqx.tree_at(lambda st: st.step, state, jnp.asarray(count, jnp.int32))
        new, _ = s.transition(state, quartic_gradient, noise, jnp.asarray(H), jnp.asarray(T))
        start = jnp.sqrt(T) * noise[1] if count % 3 == 0 else state.dynamics
        expected = step(momentum.SGHMC(FRICTION), quartic_gradient, state.position, start, noise[0])
        np.testing.assert_allclose(new.position, expected[0], rtol=1e-12)


# --- the small functions that keep their digits --------------------------------------------------------------------


@pytest.mark.parametrize(("dtype", "digits"), [("float32", 3e-5), ("float64", 2e-11)])
def test_the_coefficients_keep_their_digits_from_no_friction_to_much(dtype, digits):
    from decimal import Decimal, getcontext

    getcontext().prec = 60
    for z in (1e-6, 1e-3, 0.05, 0.19999, 0.20001, 0.7, 5.0, 50.0):
        d = Decimal(float(np.dtype(dtype).type(z)))
        e = (-d).exp()
        exact = {
            "_phi1": (1 - e) / d,
            "_phi2": (d - 1 + e) / d**2,
            "_tanh_over": (1 - e * e) / (1 + e * e) / d,
            "_psi": (d - 2 * (1 - e) / (1 + e)) / d**3,
        }
        for name, value in exact.items():
            found = getattr(momentum, name)(jnp.asarray(z, dtype))
            assert found.dtype == dtype
            assert float(found) == pytest.approx(float(value), rel=digits), (name, z)


@pytest.mark.parametrize("name", UNDERDAMPED)
def test_without_friction_a_step_is_that_of_a_hamiltonian_flow(name):
    """No noise, and an energy kept to O(h²) over one step."""
    without = eqx.tree_at(lambda d: d.friction, UNDERDAMPED[name](), jnp.asarray(0.0))
    y, r = jnp.ones(D), jnp.full(D, 0.3)
    noise = without.noise(jax.random.key(0), y)
    silent = jax.tree.map(jnp.zeros_like, noise)
    h = 1e-3
    (y1, r1), (y2, r2) = (step(without, lambda x: x, y, r, e, h) for e in (noise, silent))
    np.testing.assert_allclose(y1, y2, atol=1e-12)
    np.testing.assert_allclose(r1, r2, atol=1e-12)
    energy = lambda y, r: 0.5 * float(y @ y + r @ r)  # noqa: E731
    assert abs(energy(y1, r1) - energy(y, r)) < 20 * h**2


# --- T2: the complete recipe ---------------------------------------------------------------------------------------


def warm(preconditioner):
    memory = preconditioner.init(jnp.zeros(D))
    for seed in range(3):
        memory = preconditioner.observe(memory, quartic_gradient(jax.random.normal(jax.random.key(seed), (D,))), 1)
    return memory


def dense(fn):
    return np.stack([np.asarray(fn(jnp.asarray(e))) for e in np.eye(D)], axis=1)


def check_recipe(dynamics, preconditioner):
    """As h → 0: dx = B r dt, dr = (−Bᵀ∇U − γr) dt, and ⟨dr dr⟩ = 2γT I dt, the only noise."""
    x, h, rng = np.linspace(-1, 1.5, D), 1e-6, np.random.default_rng(2)
    memory, r = warm(preconditioner), jnp.asarray(rng.normal(size=D))
    learned = preconditioner.observe(memory, quartic_gradient(jnp.asarray(x)), 1)
    B = dense(lambda v: preconditioner.apply(learned, v))
    like = dynamics.noise(jax.random.key(0), jnp.zeros(D))
    silent = jax.tree.map(jnp.zeros_like, like)
    leaves, structure = jax.tree.flatten(silent)
    move = jax.jit(lambda noise: step(dynamics, quartic_gradient, x, r, noise, h, T, preconditioner, memory))
    still = move(silent)
    np.testing.assert_allclose((still[0] - x) / h, B @ r, rtol=1e-4, atol=1e-4)
    drift = -B.T @ np.asarray(quartic_gradient(jnp.asarray(x))) - FRICTION * np.asarray(r)
    np.testing.assert_allclose((still[1] - r) / h, drift, rtol=1e-4, atol=1e-4)
    columns = [
        move(jax.tree.unflatten(structure, [*leaves[:i], jnp.asarray(e), *leaves[i + 1 :]]))[1] - still[1]
        for i in range(len(leaves))
        for e in np.eye(D)
    ]
    spread = np.stack(columns, axis=1)
    np.testing.assert_allclose(spread @ spread.T / h, 2 * FRICTION * T * np.eye(D), rtol=1e-4, atol=1e-5)


PAIRS = [(name, pre) for name in UNDERDAMPED for pre in ("identity", "laplacian", "rmsprop @ laplacian")]


@pytest.mark.parametrize(("name", "preconditioner"), PAIRS)
def test_drift_and_diffusion_are_those_of_the_underdamped_equation(name, preconditioner):
    check_recipe(UNDERDAMPED[name](), PRECONDITIONERS[preconditioner]())


def fokker_planck(dynamics, gradient_noise=0.0, h=1e-6):
    """What is left of ∂p/∂t at p ∝ exp(−U/T − ‖r‖²/2T − d(ξ − ξ̄)²/2T), ξ̄ = A + V h/2T: zero if p is at rest.

    The drift is read off a step of length h without noise; V = `gradient_noise` enters as diffusion h V.
    """
    d = 3
    P = jnp.asarray(precision()[:d, :d])
    mean = FRICTION + gradient_noise * h / (2 * T)
    zero = jnp.zeros(d)

    def drift(z):
        y, r, xi = z[:d], z[d : 2 * d], z[-1]
        y1, (r1, xi1) = step(dynamics, lambda x: P @ x, y, (r, xi), zero, h, T)
        return (jnp.concatenate([y1, r1, xi1[None]]) - z) / h

    def log_p(z):
        y, r, xi = z[:d], z[d : 2 * d], z[-1]
        return -(y @ P @ y + r @ r + d * (xi - mean) ** 2) / (2 * T)

    def flux(z):
        score = jax.grad(log_p)(z)
        diffusion = FRICTION * T + gradient_noise * h / 2  # half the variance of r per time
        spread = diffusion * (jnp.trace(jax.hessian(log_p)(z)[d : 2 * d, d : 2 * d]) + jnp.sum(score[d : 2 * d] ** 2))
        return jnp.trace(jax.jacfwd(drift)(z)) + drift(z) @ score - spread

    points = jax.random.normal(jax.random.key(0), (5, 2 * d + 1))
    return np.asarray(jax.vmap(flux)(points))


THERMOSTATS = [momentum.NoseHoover, momentum.SymmetricNoseHoover]


@pytest.mark.parametrize("form", THERMOSTATS)
def test_the_thermostat_leaves_the_law_of_ding_et_al_at_rest(form):
    np.testing.assert_allclose(fokker_planck(form(FRICTION)), 0, atol=1e-3)


@pytest.mark.parametrize("form", THERMOSTATS)
def test_the_thermostat_absorbs_gradient_noise_that_is_alike_in_all_coordinates(form):
    """With V h = 4, so large that it matters at any h, the mean of ξ moves by V h/2T and the rest stays."""
    np.testing.assert_allclose(fokker_planck(form(FRICTION), gradient_noise=4e6), 0, atol=1e-3)


class LengthForItsSquare(momentum.NoseHoover):
    """‖v‖ where ‖v‖² belongs."""

    def move(self, state, oracle, noise, step_size, temperature):
        m, (r, xi) = super().move(state, oracle, noise, step_size, temperature)
        square = jnp.sum(r**2)
        return m, (r, xi + step_size * (jnp.sqrt(square) - square) / r.size)


def test_the_thermostat_check_fails_for_the_length_in_place_of_its_square():
    assert np.abs(fokker_planck(LengthForItsSquare(FRICTION))).max() > 0.1


# --- T3: laws at rest on quadratics --------------------------------------------------------------------------------


def affine(dynamics, P, h, temperature=1.0):
    """M and N of z' = M z + N ε, z = (y, r), on U = ½yᵀPy."""
    P = jnp.asarray(P)
    d = len(P)
    like, structure = jax.tree.flatten(dynamics.noise(jax.random.key(0), jnp.zeros(d)))

    def move(z, e):
        noise = jax.tree.unflatten(structure, list(e.reshape(len(like), d)))
        return jnp.concatenate(step(dynamics, lambda x: P @ x, z[:d], z[d:], noise, h, temperature))

    zero = jnp.zeros(2 * d), jnp.zeros(len(like) * d)
    return np.asarray(jax.jacfwd(move, 0)(*zero)), np.asarray(jax.jacfwd(move, 1)(*zero))


def law_at_rest(dynamics, P, h, temperature=1.0):
    M, N = affine(dynamics, P, h, temperature)
    return solve_discrete_lyapunov(M, N @ N.T)


@pytest.mark.parametrize("name", ["baoa", "baoab"])
def test_the_position_of_baoab_has_the_law_of_the_gaussian_itself(name):
    P = precision()
    for h in (0.05, 0.4, 0.8):
        covariance = law_at_rest(UNDERDAMPED[name](), P, h, 0.6)[:D, :D]
        np.testing.assert_allclose(covariance, 0.6 * np.linalg.inv(P), rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("name", UNDERDAMPED)
def test_the_law_at_rest_scales_with_the_temperature(name):
    P = precision()
    one, half = (law_at_rest(UNDERDAMPED[name](), P, H, t) for t in (1.0, 0.5))
    np.testing.assert_allclose(half, one / 2, rtol=1e-9, atol=1e-12)


# of the position's law at rest, of the law of (y, r) after a time, in h
ORDERS = {"sghmc": (2, 1), "symmetric": (2, 2), "baoa": (None, 1), "baoab": (None, 2), "umcmc": (1, 1)}


def slope(error, hs):
    return np.polyfit(np.log(hs), np.log([error(h) for h in hs]), 1)[0]


@pytest.mark.parametrize("name", ORDERS)
def test_the_bias_at_rest_falls_with_the_order_of_theory(name):
    P, order = precision(), ORDERS[name][0]

    def error(h):
        return np.abs(law_at_rest(UNDERDAMPED[name](), P, h)[:D, :D] - np.linalg.inv(P)).max()

    if order is None:
        assert error(0.2) < 1e-10
    else:
        assert slope(error, (0.01, 0.005, 0.0025)) == pytest.approx(order, abs=0.1)


@pytest.mark.parametrize("name", ORDERS)
def test_the_weak_order_on_the_linear_equation_is_that_of_theory(name):
    """Mean and covariance of (y, r) at time 1 against the matrix exponential of the equation itself."""
    P, order = precision(), ORDERS[name][1]
    A = np.block([[np.zeros((D, D)), np.eye(D)], [-P, -FRICTION * np.eye(D)]])
    Q = np.diag([0.0] * D + [2 * FRICTION] * D)
    rest = solve_continuous_lyapunov(A, -Q)
    flow = expm(A)
    exact = rest - flow @ rest @ flow.T

    def error(h):
        M, N = affine(UNDERDAMPED[name](), P, h)
        mean, covariance = np.eye(2 * D), np.zeros((2 * D, 2 * D))
        for _ in range(round(1 / h)):
            mean, covariance = M @ mean, M @ covariance @ M.T + N @ N.T
        return max(np.abs(mean - flow).max(), np.abs(covariance - exact).max())

    assert slope(error, (1 / 50, 1 / 100, 1 / 200)) == pytest.approx(order, abs=0.15)


@pytest.mark.parametrize("name", ORDERS)
def test_the_local_error_off_the_quadratic_has_the_weak_order_plus_one(name):
    """E f(y', r') against f + h Lf + h²L²f/2, L the generator: U = y⁴/4, f a polynomial, Gauss–Hermite is exact."""
    dynamics, gradient = UNDERDAMPED[name](), lambda y: y**3

    def generator(f):
        dy, dr = jax.grad(f, 0), jax.grad(f, 1)
        return lambda y, r: (
            r * dy(y, r) - (gradient(y) + FRICTION * r) * dr(y, r) + FRICTION * T * jax.grad(dr, 1)(y, r)
        )

    f = lambda y, r: y**2 * r + r**3 + y**3  # noqa: E731
    y, r = jnp.asarray(0.8), jnp.asarray(-0.5)
    nodes, weights = np.polynomial.hermite_e.hermegauss(12)
    count = len(jax.tree.leaves(dynamics.noise(jax.random.key(0), y)))
    grid = jnp.asarray(list(itertools.product(nodes, repeat=count)))
    w = np.prod(list(itertools.product(weights / weights.sum(), repeat=count)), axis=1)
    structure = jax.tree.structure(dynamics.noise(jax.random.key(0), y))

    def error(h):
        after = jax.vmap(lambda e: f(*step(dynamics, gradient, y, r, jax.tree.unflatten(structure, list(e)), h)))(grid)
        lf = generator(f)
        return abs(float(w @ np.asarray(after) - (f(y, r) + h * lf(y, r) + h**2 / 2 * generator(lf)(y, r))))

    order = {"sghmc": 1, "symmetric": 2, "baoa": 1, "baoab": 2, "umcmc": 1}[name]
    assert slope(error, (0.02, 0.01, 0.005)) == pytest.approx(order + 1, abs=0.2)


@pytest.mark.parametrize("preconditioner", ["identity", "laplacian"])
@pytest.mark.parametrize("name", UNDERDAMPED)
def test_the_law_at_rest_under_minibatch_noise_is_the_exact_one(name, preconditioner):
    """Linear regression, N = 6 and B = 2, every batch enumerated, against the textbook in the dense coordinates."""
    posterior, X, y = linear_regression()
    h, B = 0.03, dense(lambda v: PRECONDITIONERS[preconditioner]().apply((), v))
    dynamics, estimator = UNDERDAMPED[name](), ls.Minibatch(2, "subset")
    batches = [np.array(pair) for pair in itertools.combinations(range(6), 2)]
    like, structure = jax.tree.flatten(dynamics.noise(jax.random.key(0), jnp.zeros(D)))
    s = ls.Sampler(h, dynamics, PRECONDITIONERS[preconditioner]())

    def ours(z, e, rows):
        oracle = ls.Oracle(posterior, estimator, (), estimator.fetch(posterior, rows, z[:D]))
        state = s.init(z[:D], key=jax.random.key(0))
        state = eqx.tree_at(lambda st: st.dynamics, state, z[D:])
        noise = jax.tree.unflatten(structure, list(e.reshape(len(like), D)))
        new, _ = s.transition(state, oracle, noise, jnp.asarray(h), jnp.asarray(1.0))
        return jnp.concatenate([new.position, new.dynamics])

    zero, quiet = jnp.zeros(2 * D), jnp.zeros(len(like) * D)
    parts = jax.jit(lambda rows: (jax.jacfwd(ours)(zero, quiet, rows), ours(zero, quiet, rows)))
    Ms, cs = (np.stack(part) for part in zip(*(parts(jnp.asarray(b)) for b in batches), strict=True))
    N = np.asarray(jax.jacfwd(ours, 1)(zero, quiet, jnp.asarray(batches[0])))
    found = moments_at_rest(Ms, cs, N)

    def book(z, e, rows):
        def gradient(q):
            x = B @ q
            return B.T @ (x + 3 * X[rows].T @ (X[rows] @ x - y[rows]))

        noise = e.reshape(len(like), D)
        q, r = TEXTBOOK[name](gradient, np.linalg.solve(B, z[:D]), z[D:], noise if len(like) > 1 else noise[0], h, 1.0)
        return np.concatenate([B @ q, r])

    zeros = np.zeros(2 * D), np.zeros(len(like) * D)
    cs = np.stack([book(*zeros, b) for b in batches])
    Ms = np.stack(
        [np.stack([book(e, zeros[1], b) - c for e in np.eye(2 * D)], 1) for b, c in zip(batches, cs, strict=True)]
    )
    N = np.stack([book(zeros[0], e, batches[0]) - cs[0] for e in np.eye(len(zeros[1]))], 1)
    for a, b in zip(found, moments_at_rest(Ms, cs, N), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-7, atol=1e-9)


def moments_at_rest(Ms, cs, N):
    """Mean and covariance of z' = M z + c + N ε, (M, c) drawn anew at every step."""
    d = Ms.shape[1]
    mean = np.linalg.solve(np.eye(d) - Ms.mean(0), cs.mean(0))
    lift = np.mean([np.kron(M, M) for M in Ms], axis=0)
    shifted = [M @ mean + c - mean for M, c in zip(Ms, cs, strict=True)]
    source = np.mean([np.outer(s, s) for s in shifted], axis=0) + N @ N.T
    return mean, np.linalg.solve(np.eye(d * d) - lift, source.reshape(-1)).reshape(d, d)


# --- T4: a preconditioner is a change of coordinates ----------------------------------------------------------------


@pytest.mark.parametrize("preconditioner", PRECONDITIONERS)
@pytest.mark.parametrize("name", sorted(set(DYNAMICS) - {"overdamped"}))
def test_a_preconditioner_is_a_change_of_coordinates(name, preconditioner):
    dynamics, B = DYNAMICS[name](), PRECONDITIONERS[preconditioner]()
    memory, x = warm(B), np.linspace(-0.5, 0.7, D)
    learned = B.observe(memory, quartic_gradient(jnp.asarray(x)), 1) if preconditioner in ADAPTIVE else memory
    root = jnp.asarray(dense(lambda v: B.apply(learned, v)))
    state, noise = state_of(dynamics), dynamics.noise(jax.random.key(5), jnp.zeros(D))
    direct = step(dynamics, quartic_gradient, x, state, noise, 0.05, T, B, memory)
    y = np.linalg.solve(root, x)
    pulled = step(dynamics, lambda q: root.T @ quartic_gradient(root @ q), y, state, noise, 0.05, T)
    np.testing.assert_allclose(direct[0], root @ pulled[0], rtol=1e-9, atol=1e-10)
    for a, b in zip(jax.tree.leaves(direct[1]), jax.tree.leaves(pulled[1]), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-10)


# --- T8: runs ------------------------------------------------------------------------------------------------------

SPREAD = np.array([[1.6, 0.5, 0.2], [0.5, 1.4, -0.3], [0.2, -0.3, 1.8]])
UNADJUSTED = {
    "sgld": lambda h: ls.sgld(h),
    "ls_sgld": lambda h: ls.ls_sgld(h, sigma=1.0),
    "sghmc": lambda h: ls.sghmc(h, friction=1.5),
    "symmetric": lambda h: ls.sghmc(h, friction=1.5, integrator="symmetric"),
    "resampled": lambda h: ls.sghmc(h, friction=0.5, resample_every=10),
    "baoa": lambda h: ls.baoab(h, friction=1.5),
    "baoab": lambda h: ls.baoab(h, friction=1.5, full=True),
    "ls_baoa": lambda h: ls.baoab(h, friction=1.5, preconditioner=ls.Laplacian(1.0)),
    "umcmc": lambda h: ls.umcmc(h),
    "sgnht": lambda h: ls.sgnht(h, friction=1.5),
}


@pytest.mark.parametrize("name", UNADJUSTED)
def test_covariances_are_within_a_tenth_over_the_range_of_steps(name):
    """4,000 chains after 40 units of time: a variance has a standard error of 2.2 %, a tenth is 4.5 of them."""
    precise = jnp.asarray(np.linalg.inv(SPREAD))
    target = ls.Target(lambda x: -0.5 * x @ precise.astype(x.dtype) @ x)
    for h in (0.02, 0.2):
        start = np.random.default_rng(0).normal(size=(4_000, 3)) @ np.linalg.cholesky(SPREAD).T
        run = ls.sample(UNADJUSTED[name](h), target, init=jnp.asarray(start), num_draws=1, thin=round(40 / h))
        assert np.abs(np.cov(run.draws[:, 0].T) - SPREAD).max() < 0.1 * SPREAD.max()


def test_the_thermostat_finds_the_friction_that_noisy_gradients_call_for():
    """Noise s²: ξ settles at A + h s²/2, positions keep their variance, and SGHMC without a thermostat is too hot."""
    h, s = 0.1, 3.0
    target = ls.Target(lambda x: -0.5 * jnp.sum(x**2), noise_scale=s)
    options = {"num_draws": 4_000, "burn_in": 2_000, "chains": 20, "seed": 1}
    run = ls.sample(ls.sgnht(h, friction=1.0), target, jnp.zeros(20), **options)
    settled = run.state.sampler.dynamics[1]
    assert float(settled.mean()) == pytest.approx(1.0 + h * s**2 / 2, rel=0.15)
    assert run.variance().mean() == pytest.approx(1.0, rel=0.06)
    hot = ls.sample(ls.sghmc(h, friction=1.0), target, jnp.zeros(20), **options)
    assert hot.variance().mean() > 1.3
    cooled = ls.sample(ls.sghmc(h, friction=1.0, noise_estimate=s**2), target, jnp.zeros(20), **options)
    assert cooled.variance().mean() == pytest.approx(1.0, rel=0.06)


# --- N: sabotaged dynamics on which the checks above must fail ------------------------------------------------------


class Loud(momentum.BAOAB):
    """Noise 2 % too large."""

    def move(self, state, oracle, noise, step_size, temperature):
        return super().move(state, oracle, 1.02 * noise, step_size, temperature)


class OneHalfStepMissing(momentum.BAOAB):
    """The second half of the drift left out."""

    def move(self, state, oracle, noise, step_size, temperature):
        m, r = super().move(state, oracle, noise, step_size, temperature)
        return m - step_size / 2 * r, r


class ChenWithTheOldMomentum(momentum.SGHMC):
    """The position moved before the momentum."""

    def move(self, state, oracle, noise, step_size, temperature):
        return step_size * state, super().move(state, oracle, noise, step_size, temperature)[1]


class NoiseTwiceTheSame(momentum.UnderdampedExact):
    """The two normals of a coordinate not correlated as they should be."""

    def move(self, state, oracle, noise, step_size, temperature):
        return super().move(state, oracle, (noise[0], -noise[0]), step_size, temperature)


class FrictionForItsHalf(momentum.SymmetricSGHMC):
    """e^{−γh} where e^{−γh/2} belongs."""

    def move(self, state, oracle, noise, step_size, temperature):
        doubled = eqx.tree_at(lambda d: d.friction, momentum.SymmetricSGHMC(1.0), 2 * self.friction)
        return doubled.move(state, oracle, noise / jnp.sqrt(2), step_size, temperature)


WRONG = {
    "baoa": [Loud, OneHalfStepMissing],
    "sghmc": [ChenWithTheOldMomentum],
    "umcmc": [NoiseTwiceTheSame],
    "symmetric": [FrictionForItsHalf],
}


@pytest.mark.parametrize(("name", "form"), [(name, form) for name, forms in WRONG.items() for form in forms])
def test_the_textbook_check_fails_on_a_sabotaged_dynamics(name, form):
    with pytest.raises(AssertionError):
        check_textbook(form(FRICTION), TEXTBOOK[name], H)


@pytest.mark.parametrize("form", [Loud, OneHalfStepMissing])
def test_the_law_of_baoab_is_lost_on_a_sabotaged_dynamics(form):
    P = precision()
    assert np.abs(law_at_rest(form(FRICTION), P, 0.2)[:D, :D] - np.linalg.inv(P)).max() > 1e-3


@pytest.mark.parametrize("form", [Loud, OneHalfStepMissing, FrictionForItsHalf])
def test_the_recipe_check_fails_on_a_sabotaged_dynamics(form):
    with pytest.raises(AssertionError):
        check_recipe(form(FRICTION), ls.Laplacian(1.0))


# --- bad input -----------------------------------------------------------------------------------------------------


def test_wrong_arguments_are_refused_with_what_to_write():
    with pytest.raises(ValueError, match=r"friction must be a finite number, zero or above, got -1"):
        ls.sghmc(0.1, friction=-1.0)
    with pytest.raises(ValueError, match=r"integrator must be one of 'euler', 'symmetric', got 'leapfrog'"):
        ls.sghmc(0.1, friction=1.0, integrator="leapfrog")
    with pytest.raises(ValueError, match=r"resample_every must be at least 1, got 0"):
        ls.sghmc(0.1, friction=1.0, resample_every=0)
    with pytest.raises(ValueError, match=r"BAOAB has momenta.*Write gamma=False"):
        ls.baoab(0.1, friction=1.0, preconditioner=ls.RMSprop(gamma=True))
    target = ls.Target(lambda x: -0.5 * jnp.sum(x**2))
    with pytest.raises(ValueError, match=r"noise_estimate is 50, but at step size 0.1 .* no more than .* = 20"):
        ls.sample(ls.sghmc(0.1, friction=1.0, noise_estimate=50.0), target, jnp.zeros(2), num_draws=1)
