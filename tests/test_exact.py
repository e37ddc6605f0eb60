"""Dynamics with a Metropolis test: against textbooks, detailed balance, laws kept at rest, and wrong ones found out."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from registry import CORRECTED, FULL_DATA, SAMPLERS, D, linear_regression, logistic_regression, precision

import lsmcmc as ls
from lsmcmc import exact
from lsmcmc.amagold import AMAGOLD
from lsmcmc.nuts import NUTS, Windows

SPREAD = np.array([[1.6, 0.5, 0.2], [0.5, 1.4, -0.3], [0.2, -0.3, 1.8]])


def quartic(x):
    """U, not Gaussian."""
    return 0.5 * x @ jnp.asarray(precision(), x.dtype) @ x + 0.075 * jnp.sum(x**4)


def dense(fn, d=D):
    return np.stack([np.asarray(fn(jnp.asarray(e))) for e in np.eye(d)], axis=1)


# --- T6: against textbooks in NumPy, in the coordinates y = B⁻¹x ------------------------------------------------------


def U(x):
    return float(quartic(jnp.asarray(x)))


def dU(x):
    return np.asarray(jax.grad(quartic)(jnp.asarray(x)))


def metropolis_1953(x, B, h, T, key):
    first, test = jax.random.split(key)
    new = x + h * B @ np.asarray(jax.random.normal(first, (D,)))
    return new, np.exp(min(0, (U(x) - U(new)) / T)), test


def metropolis_hastings_langevin(x, B, h, T, key):
    """q(y → y') = N(y' | y − h Bᵀ∇U(By), 2hT), and min(1, π'q(y' → y) / πq(y → y'))."""
    first, test = jax.random.split(key)
    new = x - h * B @ B.T @ dU(x) + np.sqrt(2 * h * T) * B @ np.asarray(jax.random.normal(first, (D,)))

    def log_q(a, b):
        away = np.linalg.solve(B, b - a) + h * B.T @ dU(a)
        return -away @ away / (4 * h * T)

    return new, np.exp(min(0, (U(x) - U(new)) / T + log_q(new, x) - log_q(x, new))), test


def hamiltonian(x, B, h, T, key, num_steps=5):
    """r ~ N(0, T), half a kick, drifts and kicks, half a kick; min(1, exp(−ΔH/T))."""
    first, test = jax.random.split(key)
    r = np.sqrt(T) * np.asarray(jax.random.normal(first, (D,)))
    energy, new = U(x) + r @ r / 2, x
    r = r - h / 2 * B.T @ dU(new)
    for k in range(num_steps):
        new = new + h * B @ r
        r = r - (h / 2 if k == num_steps - 1 else h) * B.T @ dU(new)
    return new, np.exp(min(0, (energy - U(new) - r @ r / 2) / T)), test


BOOKS = {
    "rwm": (exact.RWM, metropolis_1953, 0.5),
    "mala": (exact.MALA, metropolis_hastings_langevin, 0.3),
    "hmc": (lambda: exact.HMC(5), hamiltonian, 0.4),
}


def check_book(dynamics, book, h, T=0.7):
    """Proposal, acceptance rate and decision of 20 steps."""
    smoothing = ls.Laplacian(1.0)
    s, B = ls.Sampler(h, dynamics, smoothing, T), dense(lambda v: smoothing.apply((), v))
    target, outcomes = ls.Target(lambda x: -quartic(x)), set()
    step = jax.jit(lambda state, key: s.step(state, ls.FullBatch().oracle(target, key, state.position), key=key)[0])
    state = s.init(jnp.linspace(-1.0, 1.5, D), key=jax.random.key(0))
    for k in range(20):
        key, x = jax.random.key(k), np.asarray(state.position)
        state = step(state, key)
        new, rate, test = book(x, B, h, T, key)
        np.testing.assert_allclose(s.statistics(state)["acceptance_rate"], rate, rtol=1e-8)
        taken = bool(jax.random.bernoulli(test, rate))
        np.testing.assert_allclose(state.position, new if taken else x, rtol=1e-10, atol=1e-12)
        np.testing.assert_allclose(s.statistics(state)["lp"], -U(state.position), rtol=1e-10)
        outcomes.add(taken)
    assert outcomes == {True, False}  # both were seen


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("name", BOOKS)
def test_a_step_proposes_and_accepts_as_the_textbook_does(name):
    form, book, h = BOOKS[name]
    check_book(form(), book, h)


class WrongSign(exact.MALA):
    """Accepts uphill."""

    def kernel(self, key, here, log_density, h, T, tuning):
        uphill = here[0], -here[1], here[2]
        return super().kernel(key, uphill, lambda m: -log_density(m), h, T, tuning)


class NoWayBack(exact.RWM):
    """The proposal of MALA with the test of a random walk, which forgets the drift."""

    def kernel(self, key, here, log_density, h, T, tuning):
        from blackjax.mcmc import random_walk

        def propose(key, m):
            return jnp.sqrt(2 * h * T) * jax.random.normal(key, m.shape) + h * T * here[2]

        state = random_walk.RWState(*here[:2])
        return random_walk.build_additive_step()(key, state, log_density, propose)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("form", [WrongSign, NoWayBack])
def test_the_textbook_check_fails_on_a_wrong_acceptance(form):
    with pytest.raises(AssertionError):
        check_book(form(), metropolis_hastings_langevin, 0.3)


@pytest.mark.usefixtures("x64")
def test_the_warm_up_of_nuts_is_that_of_blackjax():
    """The same keys, 60 steps with one window of masses: step size, masses, and a draw after."""
    import blackjax

    warm_up = blackjax.window_adaptation(blackjax.nuts, lambda x: -quartic(x), max_num_doublings=5)
    with jax.numpy_dtype_promotion("standard"):
        (theirs, found), _ = warm_up.run(jax.random.key(1), jnp.linspace(-1.0, 1.5, D), num_steps=60)
    s = ls.nuts(1.0, max_doublings=5).planned(60, 1, 0)
    target = ls.Target(lambda x: -quartic(x))
    state = s.init(jnp.linspace(-1.0, 1.5, D), key=jax.random.key(0))
    oracle = ls.FullBatch().oracle(target, jax.random.key(0), state.position)
    step = jax.jit(
        lambda state, key: s.transition(state, oracle, key, jnp.asarray(1.0, float), jnp.asarray(1.0, float))[0]
    )
    for key in jax.random.split(jax.random.key(1), 60):
        state = step(state, key)
    tuning = state.dynamics.tuning
    np.testing.assert_allclose(jnp.exp(tuning.s), found["step_size"], rtol=1e-6)
    np.testing.assert_allclose(tuning.masses.inverse_mass_matrix, found["inverse_mass_matrix"], rtol=1e-6)
    np.testing.assert_allclose(state.position, theirs.position, rtol=1e-6)


@pytest.mark.parametrize("burn_in", [0, 5, 19, 20, 100, 150, 151, 1000, 10_000])
def test_the_windows_of_the_warm_up_are_those_of_stan(burn_in):
    from blackjax.adaptation.window_adaptation import build_schedule

    windows, steps = Windows(burn_in), jnp.arange(burn_in)
    with jax.numpy_dtype_promotion("standard"):
        expected = np.asarray(build_schedule(burn_in)).reshape(-1, 2)
    np.testing.assert_array_equal(jax.vmap(windows.is_slow)(steps), expected[:, 0])
    np.testing.assert_array_equal(jax.vmap(windows.is_end)(steps), expected[:, 1])


# --- AMAGOLD: the published algorithm, and detailed balance with its batches and noises -------------------------------

NUM_STEPS, H, FRICTION, T = 4, 0.12, 1.3, 0.8


def zhang_cooper_de_sa(potential, gradients, theta, r, etas, eps, beta, variance):
    """Alg. 1: θ*, r* and log a, from the r it starts with; `gradients` are those of the random energies."""
    rho, start = 0.0, theta
    theta = theta + eps / 2 * r / variance
    for t, (gradient, eta) in enumerate(zip(gradients, etas, strict=True)):
        if t:
            theta = theta + eps * r / variance
        g = gradient(theta)
        new = ((1 - eps * beta) * r - eps * g + eta) / (1 + eps * beta)
        rho += eps / 2 * g @ (r + new) / variance
        r = new
    theta = theta + eps / 2 * r / variance
    return theta, r, potential(start) - potential(theta) + rho


def proposal(s, posterior, x, r, batches, noises, uniform):
    """`NUM_STEPS` steps of ours on given batches and noises; the state after the test."""
    state = s.init(jnp.asarray(x), key=jax.random.key(0))
    state = eqx.tree_at(lambda st: (st.dynamics.momentum, st.dynamics.start), state, (jnp.asarray(r), jnp.asarray(r)))
    for rows, noise in zip(batches, noises, strict=True):
        state = step_on(s, posterior, state, jnp.asarray(rows), (jnp.asarray(noise), jnp.asarray(uniform, float)))
    return state


@eqx.filter_jit
def step_on(s, posterior, state, rows, noise):
    """One step on given rows."""
    estimator = ls.Minibatch(2)
    oracle = ls.Oracle(posterior, estimator, (), estimator.fetch(posterior, rows, state.position), state.step)
    return s.transition(state, oracle, noise, jnp.asarray(H), jnp.asarray(T))[0]


def trajectory(seed):
    rng = np.random.default_rng(seed)
    batches = rng.integers(0, 6, size=(NUM_STEPS, 2))
    return rng.normal(size=D), rng.normal(size=D), batches, rng.normal(size=(NUM_STEPS, D))


def check_amagold(dynamics, seed):
    """Taken and refused, against the published algorithm with σ² = 1, on U/T in the dense coordinates."""
    posterior, X, y = linear_regression()
    smoothing = ls.Laplacian(1.0)
    s, B = ls.Sampler(H, dynamics, smoothing, T), dense(lambda v: smoothing.apply((), v))
    x, r, batches, noises = trajectory(seed)

    def energy(rows, ratio):
        """Û/T of some rows, in q with x = B q."""

        def U(q):
            misfit = y[rows] - X[rows] @ B @ q
            return (ratio * misfit @ misfit / 2 + (B @ q) @ (B @ q) / 2) / T

        def gradient(q):
            return B.T @ (B @ q - ratio * X[rows].T @ (y[rows] - X[rows] @ B @ q)) / T

        return U, gradient

    beta, eps = FRICTION / 2 / np.sqrt(T), H * np.sqrt(T)  # unit temperature: r̃ = r/√T, t̃ = √T t
    gradients, etas = [energy(rows, 3.0)[1] for rows in batches], np.sqrt(4 * eps * beta) * noises
    q, p, log_a = zhang_cooper_de_sa(
        energy(np.arange(6), 1.0)[0], gradients, np.linalg.solve(B, x), r / np.sqrt(T), etas, eps, beta, 1.0
    )
    rate = np.exp(min(0, log_a))
    assert 0.02 < rate < 0.98
    taken, refused = (proposal(s, posterior, x, r, batches, noises, u) for u in (0.99 * rate, 1.01 * rate))
    np.testing.assert_allclose(s.statistics(taken)["acceptance_rate"], rate, rtol=1e-9)
    np.testing.assert_allclose(taken.position, B @ q, rtol=1e-9)
    np.testing.assert_allclose(taken.dynamics.momentum, np.sqrt(T) * p, rtol=1e-9)
    np.testing.assert_allclose(refused.position, x, rtol=1e-12)
    np.testing.assert_allclose(refused.dynamics.momentum, -r, rtol=1e-12)


@pytest.mark.usefixtures("x64")
def test_amagold_is_the_published_algorithm():
    check_amagold(AMAGOLD(FRICTION, NUM_STEPS), seed=6)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("seed", [2, 6, 31])
def test_amagold_goes_back_with_the_probability_of_detailed_balance(seed):
    """From (y*, −r*), on the batches in reverse: π p(ε) α there = π p(ε) α back, to rounding."""
    posterior, _, _ = linear_regression()
    s = ls.Sampler(H, AMAGOLD(FRICTION, NUM_STEPS), ls.Laplacian(1.0), T)
    x, r, batches, noises = trajectory(seed)
    there = proposal(s, posterior, x, r, batches, noises, 0.0)
    momenta = [r]
    for count in range(1, NUM_STEPS + 1):  # of the way there, read off longer and longer proposals
        shorter = eqx.tree_at(lambda s: s.dynamics.num_steps, s, jnp.asarray(count, jnp.int32))
        momenta.append(
            np.asarray(proposal(shorter, posterior, x, r, batches[:count], noises[:count], 0.0).dynamics.momentum)
        )
    b, spread = H * FRICTION / 2, np.sqrt(2 * H * FRICTION * T)
    kicks = [
        (1 + b) * after - (1 - b) * before - spread * e
        for before, after, e in zip(momenta[:-1], momenta[1:], noises, strict=True)
    ]
    back = [
        ((1 + b) * -before - (1 - b) * -after - kick) / spread
        for before, after, kick in zip(momenta[:-1], momenta[1:], kicks, strict=True)
    ]
    home = proposal(s, posterior, there.position, -momenta[-1], batches[::-1], back[::-1], 0.0)
    np.testing.assert_allclose(home.position, x, rtol=1e-8, atol=1e-9)
    np.testing.assert_allclose(home.dynamics.momentum, -r, rtol=1e-8, atol=1e-9)

    def log_flow(x, r, noises, state):
        e, U = np.asarray(noises), -float(posterior.log_density(jnp.asarray(x)))
        return -(U + r @ r / 2) / T - np.sum(e**2) / 2 + np.log(float(s.statistics(state)["acceptance_rate"]))

    onward = log_flow(x, r, noises, there)
    np.testing.assert_allclose(onward, log_flow(np.asarray(there.position), momenta[-1], back, home), rtol=1e-9)


class KineticForWork(AMAGOLD):
    """ρ left out: the test of a Hamiltonian without friction or noise."""

    def move(self, state, oracle, noise, step_size, temperature):
        return super().move(
            eqx.tree_at(lambda f: f.work, state, -0.5 * state.work), oracle, noise, step_size, temperature
        )


@pytest.mark.usefixtures("x64")
def test_the_check_of_amagold_fails_where_the_work_is_wrong():
    with pytest.raises(AssertionError):
        check_amagold(KineticForWork(FRICTION, NUM_STEPS), seed=6)


# --- T8: laws at rest stay where they are -----------------------------------------------------------------------------

EXACT = {
    "rwm": lambda h, **o: ls.rwm(5 * h, **o),
    "mala": lambda h, **o: ls.mala(h, **o),
    "ls_mala": lambda h, **o: ls.mala(h, preconditioner=ls.Laplacian(1.0), **o),
    "hmc": lambda h, **o: ls.hmc(h, 5, **o),
    "ls_hmc": lambda h, **o: ls.hmc(h, 5, preconditioner=ls.Laplacian(1.0), **o),
    "nuts": lambda h, **o: ls.nuts(h, max_doublings=6, **o),
    "amagold": lambda h, **o: ls.amagold(h, friction=1.0, num_steps=5, **o),
}
CHAINS = 10_000


def worst_error(sampler, T=1.0, noise_scale=None, steps=20):
    """The largest error of the covariance after some steps from rest, in standard errors, with independent chains."""
    precise = jnp.asarray(np.linalg.inv(SPREAD))
    target = ls.Target(lambda x: -0.5 * x @ precise.astype(x.dtype) @ x, noise_scale)
    start = np.sqrt(T) * np.random.default_rng(0).normal(size=(CHAINS, 3)) @ np.linalg.cholesky(SPREAD).T
    run = ls.sample(sampler, target, init=jnp.asarray(start, float), num_draws=1, thin=steps)
    C = T * SPREAD
    errors = np.cov(run.draws[:, 0].T) - C
    assert (run.draws[:, 0] != start).all(axis=1).mean() > 0.5  # most have moved
    return np.abs(errors / np.sqrt((np.outer(np.diag(C), np.diag(C)) + C**2) / CHAINS)).max()


@pytest.mark.parametrize("name", EXACT)
def test_covariances_stay_within_monte_carlo_error_over_the_range_of_steps(name):
    """Six entries at four settings: 4.5 standard errors have a false alarm in 6,000."""
    for h, T in ((0.02, 1.0), (0.2, 1.0), (0.2, 0.5), (0.8, 1.0)):
        assert worst_error(EXACT[name](h, temperature=T), T, steps=5 if name == "nuts" else 20) < 4.5


def test_amagold_is_exact_with_noisy_gradients_where_sghmc_is_not():
    """Noise of variance 4 and h = 0.5: SGHMC's variance is too large by a half."""
    assert worst_error(ls.amagold(0.5, friction=1.0, num_steps=5), noise_scale=2.0) < 4.5
    assert worst_error(ls.sghmc(0.5, friction=1.0, integrator="symmetric"), noise_scale=2.0) > 20


class Careless(exact.MALA):
    """Accepts all."""

    def kernel(self, key, here, log_density, h, T, tuning):
        _, info = super().kernel(key, here, log_density, h, T, tuning)
        m = -h * T * -here[2] + jnp.sqrt(2 * h * T) * jax.random.normal(jax.random.split(key)[0], here[0].shape)
        value, gradient = jax.value_and_grad(log_density)(m)
        return (m, value, gradient), info


@pytest.mark.parametrize("form", [WrongSign, NoWayBack, Careless])
def test_the_check_of_laws_fails_on_a_wrong_acceptance(form):
    assert worst_error(ls.Sampler(0.4, form())) > 10


def test_amagold_keeps_the_posterior_under_minibatches_of_two():
    """Linear regression, 10,000 chains at rest: mean and variances against the closed form, and its control."""
    posterior, X, y = linear_regression()
    C = np.linalg.inv(np.eye(D) + X.T @ X)
    mean, rng = C @ X.T @ y, np.random.default_rng(1)
    start = jnp.asarray(mean + rng.normal(size=(CHAINS, D)) @ np.linalg.cholesky(C).T, float)

    def worst(sampler, gradient):
        run = ls.sample(sampler, posterior, init=start, num_draws=1, thin=20, gradient=gradient)
        x = run.draws[:, 0]
        off = np.abs(x.mean(0) - mean) / np.sqrt(np.diag(C) / CHAINS)
        wide = np.abs(x.var(0) / np.diag(C) - 1) / np.sqrt(2 / CHAINS)
        return max(off.max(), wide.max())

    for scheme in ("iid", "subset"):
        assert worst(ls.amagold(0.2, friction=2.0, num_steps=4), ls.Minibatch(2, scheme)) < 4.5
    assert worst(ls.sghmc(0.2, friction=2.0, integrator="symmetric"), ls.Minibatch(2)) > 15


def test_nuts_finds_scales_far_apart_from_a_bad_start():
    """Sd 0.01, 1 and 100 from ten sd off: masses, mean and sd, and a step size that has the asked-for acceptance."""
    sd = np.array([0.01, 1.0, 100.0])
    target = ls.Target(lambda x: -0.5 * jnp.sum((x / jnp.asarray(sd, x.dtype)) ** 2))
    start = jnp.asarray(10 * sd, float)
    run = ls.sample(ls.nuts(), target, start, num_draws=2_000, burn_in=1_000, chains=4)
    np.testing.assert_allclose(run.variance(), sd**2, rtol=0.1)
    np.testing.assert_array_less(np.abs(run.mean() / sd), 5 / np.sqrt(ls.diagnostics.ess(run.draws)))
    masses = run.state.sampler.dynamics.tuning.masses.inverse_mass_matrix
    np.testing.assert_allclose(masses, np.tile(sd**2, (4, 1)), rtol=0.5)
    assert (np.ptp(run.statistics["step_size"], axis=1) == 0).all()  # nothing is learned after burn_in
    assert 0.7 < run.statistics["acceptance_rate"].mean() < 0.95
    assert not run.statistics["diverging"].any()


@pytest.mark.parametrize("name", ["nuts", "amagold"])
def test_a_run_on_disk_goes_on_with_what_was_learned_or_with_a_proposal_on_its_way(name, tmp_path):
    """Made longer after 40 steps: NUTS has learned for 30 of them, and AMAGOLD is in the middle of a proposal."""
    posterior, options = small_posterior(), {} if name == "nuts" else {"batch_size": 5}
    options |= {"burn_in": 30, "chains": 2, "seed": 2}
    whole = ls.sample(SAMPLERS[name](0.1), posterior, jnp.zeros(D), num_draws=35, **options)
    ls.sample(SAMPLERS[name](0.1), posterior, jnp.zeros(D), num_draws=10, path=tmp_path / "run", **options)
    rest = ls.sample(SAMPLERS[name](0.1), posterior, jnp.zeros(D), num_draws=35, path=tmp_path / "run", **options)
    assert np.array_equal(whole.draws, rest.draws)
    for key, values in whole.statistics.items():
        assert np.array_equal(values, rest.statistics[key])


# --- what a run says, and what it costs -------------------------------------------------------------------------------


def small_posterior():
    _, X, y = logistic_regression()
    return ls.Posterior(
        lambda x, batch: jax.nn.log_sigmoid(batch[1] * (batch[0] @ x)),
        lambda x: -0.5 * jnp.sum(x**2),
        (X.astype(np.float32), y.astype(np.float32)),
    )


@pytest.mark.parametrize("name", sorted(CORRECTED))
def test_lp_is_the_log_density_of_the_draw(name):
    """Also where a run is continued: U is never that of another point."""
    posterior, options = small_posterior(), {} if name in FULL_DATA else {"batch_size": 5}
    first = ls.sample(SAMPLERS[name](0.1), posterior, jnp.zeros(D), num_draws=20, chains=2, **options)
    second = ls.sample(SAMPLERS[name](0.05), posterior, state=first.state, num_draws=20, **options)
    for run in (first, second):
        assert {"lp", "acceptance_rate"} <= set(run.statistics)
        lp = jax.vmap(jax.vmap(posterior.log_density))(jnp.asarray(run.draws))
        np.testing.assert_allclose(run.statistics["lp"], lp, rtol=1e-5)
        assert ((run.statistics["acceptance_rate"] >= 0) & (run.statistics["acceptance_rate"] <= 1)).all()


@pytest.mark.parametrize("name", ["hmc", "nuts"])
def test_energies_divergences_and_steps_go_to_arviz(name):
    import arviz

    sampler = ls.hmc(0.2, 5, temperature=0.5) if name == "hmc" else ls.nuts(temperature=0.5)
    run = ls.sample(sampler, small_posterior(), jnp.zeros(D), num_draws=4_000, burn_in=200, chains=2)
    stats = run.to_arviz().sample_stats
    assert stats.sizes["chain"] == 2
    assert stats.sizes["draw"] == 4_000
    kinetic = run.statistics["energy"] + run.statistics["lp"] / 0.5
    if name == "hmc":
        assert kinetic.mean() == pytest.approx(D / 2, rel=0.1)  # ½‖r‖²/T ~ Γ(d/2)
    else:
        assert set(stats) == {"acceptance_rate", "diverging", "energy", "lp", "n_steps", "step_size", "tree_depth"}
        assert (run.statistics["n_steps"] < 2 ** run.statistics["tree_depth"].astype(int)).all()
    assert kinetic.min() > 0
    assert (np.asarray(arviz.bfmi(run.to_arviz())) > 0.3).all()


def test_a_proposal_that_explodes_is_a_divergence_of_the_step_and_not_of_the_run():
    target = ls.Target(lambda x: -jnp.sum(x**4))
    run = ls.sample(ls.hmc(2.0, 20), target, jnp.ones(2), num_draws=50)
    assert run.statistics["diverging"].any()
    assert np.isfinite(run.draws).all()
    calm = ls.sample(ls.amagold(2.0, friction=1.0, num_steps=20), target, jnp.ones(2), num_draws=100)
    assert (calm.draws == 1.0).all()


def test_a_start_without_density_is_an_error_and_not_a_chain_that_stays():
    target = ls.Target(lambda x: jnp.sum(jnp.log(x)) - jnp.sum(x))
    for name in ("rwm", "mala", "amagold"):
        with pytest.raises(ls.DivergenceError, match=r"chain 0 left the finite numbers at step 1"):
            ls.sample(SAMPLERS[name](), target, -jnp.ones(2), num_draws=5)


@jax.custom_jvp
def counted(x):
    """X, and a tick for each time that this is computed."""
    return jax.pure_callback(tick, jax.ShapeDtypeStruct(x.shape, x.dtype), x, vmap_method="sequential")


counted.defjvp(lambda primals, tangents: (counted(*primals), *tangents))
TICKS = []


def tick(x):
    TICKS.append(1)
    return np.asarray(x)


COSTS = {
    "lmc": (lambda: ls.lmc(0.1), 60),
    "rwm": (lambda: ls.rwm(0.1), 60),
    "mala": (lambda: ls.mala(0.1), 60),
    "ls_mala": (lambda: ls.mala(0.1, preconditioner=ls.Laplacian(1.0)), 60),
    "hmc": (lambda: ls.hmc(0.1, 3), 180),
    "amagold": (lambda: ls.amagold(0.1, friction=1.0, num_steps=5), 72),
}


@pytest.mark.parametrize("name", COSTS)
def test_no_point_is_evaluated_twice(name):
    """60 steps: one evaluation each, three for three leapfrog steps, a sixth of AMAGOLD's for tests; and the start."""
    form, expected = COSTS[name]
    target = ls.Target(lambda x: -0.5 * jnp.sum(counted(x) ** 2))
    TICKS.clear()
    run = ls.sample(form(), target, jnp.ones(3), num_draws=60)
    assert np.isfinite(run.draws).all()
    assert expected <= len(TICKS) <= expected + 1


# --- bad input --------------------------------------------------------------------------------------------------------


def test_exact_samplers_refuse_what_would_make_them_inexact():
    posterior, start = small_posterior(), jnp.zeros(D)
    for name in ("rwm", "mala", "hmc", "nuts"):
        with pytest.raises(ValueError, match=r"tests every step on all data: leave out batch_size.*ls.amagold"):
            ls.sample(SAMPLERS[name](), posterior, start, num_draws=1, batch_size=4)
        ls.sample(SAMPLERS[name](), posterior, start, num_draws=1, gradient=ls.FullBatch())
    with pytest.raises(ValueError, match=r"needs a batch size: write batch_size=32"):
        ls.sample(SAMPLERS["amagold"](), posterior, start, num_draws=1)
    ls.sample(SAMPLERS["amagold"](), posterior, start, num_draws=1, gradient=ls.ControlVariate(4, start))
    in_passes = (
        ls.Minibatch(4, "epochs"),
        ls.Minibatch(4, "blocks"),
        ls.ControlVariate(ls.Minibatch(4, "epochs"), start),
    )
    for gradient in (*in_passes, ls.SVRG(4)):
        with pytest.raises(ValueError, match=r"(?s)AMAGOLD is exact where.*independently.*Write batch_size=32"):
            ls.sample(SAMPLERS["amagold"](), posterior, start, num_draws=1, gradient=gradient)
    learning = ls.RMSprop(), ls.Laplacian(1.0) @ ls.RMSprop(), {"w": ls.Laplacian(1.0), "b": ls.RMSprop()}
    for preconditioner in learning:
        with pytest.raises(ValueError, match=r"MALA compares a step with the way back.*learns.*ls.Laplacian"):
            ls.mala(0.1, preconditioner=preconditioner)
    with pytest.raises(ValueError, match=r"AMAGOLD compares a step with the way back"):
        ls.amagold(0.1, friction=1.0, num_steps=2, preconditioner=ls.RMSprop())
    with pytest.raises(ValueError, match=r"NUTS learns its own masses.*got Laplacian.*ls.hmc"):
        ls.Sampler(1.0, NUTS(), ls.Laplacian(1.0))


def test_wrong_arguments_are_refused_with_what_to_write():
    target, start = ls.Target(lambda x: -0.5 * jnp.sum(x**2)), jnp.zeros(2)
    with pytest.raises(ValueError, match=r"NUTS finds its step size.*write burn_in=1_000, or give it a step_size"):
        ls.sample(ls.nuts(), target, start, num_draws=1)
    with pytest.raises(ValueError, match=r"MALA needs a temperature above zero.*ls.lmc\(h, temperature=0.0\)"):
        ls.sample(ls.mala(0.1, temperature=0.0), target, start, num_draws=1)
    with pytest.raises(ValueError, match=r"HMC needs a step_size above zero"):
        ls.sample(ls.hmc(0.0, 2), target, start, num_draws=1)
    with pytest.raises(ValueError, match=r"num_steps must be at least 1, got 0"):
        ls.hmc(0.1, 0)
    with pytest.raises(ValueError, match=r"friction must be above zero: nothing else renews the momentum"):
        ls.amagold(0.1, friction=0.0, num_steps=2)
    with pytest.raises(ValueError, match=r"target_acceptance must be a finite number, zero or above and below 1"):
        ls.nuts(target_acceptance=1.5)


@pytest.mark.parametrize("name", sorted(CORRECTED))
def test_a_step_by_hand_takes_an_estimator_s_oracle_and_refuses_a_function(name):
    s, target = SAMPLERS[name](0.3), ls.Target(lambda x: -0.5 * jnp.sum(x**2))
    state = s.init(jnp.ones(2), key=jax.random.key(0))
    with pytest.raises(TypeError, match=r"compares energies.*a function gives the gradient alone.*ls.FullBatch"):
        s.step(state, lambda x: x, key=jax.random.key(0))
    for k in range(6):
        key = jax.random.key(k)
        state, _ = s.step(state, ls.FullBatch().oracle(target, key, state.position), key=key)
        np.testing.assert_allclose(s.statistics(state)["lp"], target.log_density(state.position), rtol=1e-5)
    assert not np.array_equal(state.position, jnp.ones(2))


def test_nuts_by_hand_warms_up_after_being_told_for_how_long():
    s, target = ls.nuts().planned(200, 1, 0), ls.Target(lambda x: -0.5 * jnp.sum((x / 50.0) ** 2))

    def one(state, key):
        state, _ = s.step(state, ls.FullBatch().oracle(target, key, state.position), key=key)
        return state, s.statistics(state)["step_size"]

    start = s.init(jnp.ones(2), key=jax.random.key(0))
    state, lengths = jax.jit(lambda start: jax.lax.scan(one, start, jax.random.split(jax.random.key(1), 300)))(start)
    assert (lengths[200:] == lengths[200]).all()
    assert len(set(lengths[:200].tolist())) > 100
    np.testing.assert_allclose(state.dynamics.tuning.masses.inverse_mass_matrix, 2500.0, rtol=0.6)
