"""Replica exchange: the direction of a swap, balance by enumeration and under noise, what moves, what stays, mixing."""

import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from registry import DYNAMICS, D, linear_regression
from scipy.stats import norm

import lsmcmc as ls
from lsmcmc import momentum
from lsmcmc.tempering import Tempering, log_acceptance

T = np.array([1.0, 1.7, 4.0])
QUADRATIC = ls.Target(lambda x: -0.5 * jnp.sum(x**2))


def log_a(energies, variances=0.0, temperatures=T, correction=1.0):
    return log_acceptance(
        jnp.asarray(energies, float),
        jnp.broadcast_to(jnp.asarray(variances, float), (len(temperatures) - 1,)),
        jnp.asarray(temperatures, float),
        correction,
    )


def placed(sampler, positions, key=0):
    """A state whose replicas are at the given positions."""
    state = sampler.init(jnp.asarray(positions[0]), key=jax.random.key(key))
    return eqx.tree_at(lambda s: s.dynamics.hotter, state, jnp.stack([jnp.asarray(p) for p in positions[1:]]))


def after_swap(sampler, positions, uniforms, step, target=QUADRATIC):
    """The state after a step of length 0 under given uniform numbers."""
    state = placed(sampler, positions)
    state = eqx.tree_at(lambda s: s.step, state, jnp.asarray(step, jnp.int32))
    noise = (sampler.noise(jax.random.key(1), state.position)[0], jnp.asarray(uniforms, float))
    oracle = ls.FullBatch().oracle(target, jax.random.key(0), state.position, step)
    return sampler.transition(state, oracle, noise, jnp.asarray(0.0), jnp.asarray(1.0))[0]


def order(state):
    return [float(state.position[0]), *state.dynamics.hotter[:, 0].tolist()]


# --- the direction -------------------------------------------------------------------------------------------------


def check_direction(rule):
    """A hotter replica with less energy comes to the cold end surely; one with more by exp(δ(U − U'))."""
    down = rule([4.5, 0.0], temperatures=T[:2])
    up = rule([0.0, 4.5], temperatures=T[:2])
    assert float(down[0]) > 0
    assert float(up[0]) == pytest.approx(-4.5 * (1 - 1 / 1.7), rel=1e-5)


def test_less_energy_goes_to_the_cold_end():
    check_direction(log_a)
    s = ls.tempering(ls.sgld(0.1), (1.0, 2.0), swap_every=1)
    assert order(after_swap(s, [[3.0], [0.0]], [0.999999], 0)) == [0.0, 3.0]
    threshold = np.exp(-4.5 / 2)
    assert order(after_swap(s, [[0.0], [3.0]], [threshold * 1.001], 0)) == [0.0, 3.0]
    assert order(after_swap(s, [[0.0], [3.0]], [threshold * 0.999], 0)) == [3.0, 0.0]


def test_the_check_of_the_direction_fails_for_the_other_one():
    with pytest.raises(AssertionError):
        check_direction(lambda energies, **options: -log_a(energies, **options))


# --- balance -------------------------------------------------------------------------------------------------------


def check_balance(acceptance):
    """π(s) a(s → s') = π(s') a(s' → s) for every state of three replicas on five energies, and either pair."""
    levels = np.array([0.0, 0.3, 1.1, 2.0, 5.0])
    for state in itertools.product(levels, repeat=3):
        for pair in (0, 1):
            other = list(state)
            other[pair], other[pair + 1] = other[pair + 1], other[pair]
            flow, back = (np.exp(-(np.array(s) / T).sum()) * acceptance(np.array(s))[pair] for s in (state, other))
            np.testing.assert_allclose(flow, back, rtol=1e-9)


@pytest.mark.usefixtures("x64")
def test_swaps_on_full_energies_are_in_detailed_balance():
    check_balance(lambda U: np.exp(np.minimum(log_a(U), 0)))


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize(
    "wrong",
    [
        lambda U: np.exp(np.minimum(-log_a(U), 0)),
        lambda U: np.exp(np.minimum(log_a(U, temperatures=T**2), 0)),
        lambda U: np.exp(np.minimum(0.98 * log_a(U), 0)),
    ],
)
def test_the_check_of_balance_fails_on_wrong_swaps(wrong):
    with pytest.raises(AssertionError):
        check_balance(wrong)


def mean_acceptance(difference, variance, correction=1.0):
    """E[a] and E[min(1, a)] over energies with Gaussian noise, by a fine quadrature of the library's function."""
    z = np.linspace(-12, 12, 40_001)
    weights = norm.pdf(z) / norm.pdf(z).sum()
    noisy = difference + np.sqrt(variance) * z
    a = np.exp([log_a([d, 0.0], variance, T[:2], correction)[0] for d in noisy[::4000]])
    delta = 1 - 1 / T[1]
    curve = np.exp(delta * noisy - correction * delta**2 * variance / 2)
    np.testing.assert_allclose(curve[::4000], a, rtol=1e-10)  # the formula of the library, at some of the points
    return weights @ curve, weights @ np.minimum(curve, 1)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("variance", [0.3, 2.0, 30.0])
@pytest.mark.parametrize("difference", [-2.0, 0.0, 1.3])
def test_under_gaussian_noise_the_corrected_ratio_is_unbiased_and_its_swaps_are_in_balance(difference, variance):
    """E a = exp(δΔ), the estimator of Deng et al.; and E min(1, a) in closed form, whose two ways have that ratio."""
    delta = 1 - 1 / T[1]
    ratio, rate = mean_acceptance(difference, variance)
    assert ratio == pytest.approx(np.exp(delta * difference), rel=1e-9)
    s, m = delta * np.sqrt(variance), delta * difference - delta**2 * variance / 2
    closed = norm.cdf(m / s) + np.exp(m + s**2 / 2) * norm.cdf(-m / s - s)
    assert rate == pytest.approx(closed, rel=1e-6)
    back = mean_acceptance(-difference, variance)[1]
    assert rate / back == pytest.approx(np.exp(delta * difference), rel=1e-6)
    if difference:  # the control: without the correction swaps favour noise
        wrong = mean_acceptance(difference, variance, 0.0)[1] / mean_acceptance(-difference, variance, 0.0)[1]
        assert abs(np.log(wrong) - delta * difference) > 0.01


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("scheme", ["iid", "subset"])
def test_the_variance_of_energies_is_estimated_without_bias(scheme):
    """Every batch of N = 6, B = 2: the mean of the estimates is the variance of Û(x) − Û(x') over all batches."""
    posterior, _, _ = linear_regression()
    rng = np.random.default_rng(0)
    xs, estimator = jnp.asarray(rng.normal(size=(3, D))), ls.Minibatch(2, scheme)
    pairs = itertools.product(range(6), repeat=2) if scheme == "iid" else itertools.combinations(range(6), 2)
    differences, estimates = [], []
    for rows in pairs:
        batch = estimator.fetch(posterior, jnp.asarray(rows), xs[0])
        energies = jax.vmap(lambda x, b=batch: estimator.potential(posterior, (), b, x))(xs)
        differences.append(energies[:-1] - energies[1:])
        estimates.append(estimator.variance_of_differences(posterior, (), batch, xs))
    np.testing.assert_allclose(np.mean(estimates, 0), np.var(differences, axis=0), rtol=1e-10)


# --- what moves and what stays -------------------------------------------------------------------------------------


def test_even_and_odd_pairs_take_turns_every_swap_every_steps():
    s = ls.tempering(ls.sgld(0.1), (1.0, 2.0, 3.0, 4.0), swap_every=3)
    falling = [[4.0], [3.0], [2.0], [1.0]]
    swapped = {step: order(after_swap(s, falling, [0.999] * 3, step)) for step in range(9)}
    assert [step for step, found in swapped.items() if found != [4, 3, 2, 1]] == [2, 5, 8]
    assert swapped[2] == swapped[8] == [3, 4, 1, 2]
    assert swapped[5] == [4, 2, 3, 1]


def test_with_two_replicas_every_turn_is_that_of_the_pair():
    s = ls.tempering(ls.sgld(0.1), (1.0, 2.0), swap_every=2)
    for step in (1, 3, 5):
        assert order(after_swap(s, [[2.0], [1.0]], [0.999], step)) == [1, 2]


@pytest.mark.parametrize("name", ["sghmc", "symmetric", "baoa", "umcmc", "resampled"])
def test_a_momentum_goes_with_its_particle_and_takes_the_new_temperature(name):
    dynamics = DYNAMICS[name]()
    own, other = jnp.asarray([1.0, 2.0]), jnp.asarray([3.0, -4.0])
    moved = dynamics.swapped(own, other, jnp.asarray(0.25))
    np.testing.assert_allclose(moved, [1.5, -2.0])
    s = ls.tempering(ls.Sampler(0.0, momentum.SGHMC(1.0)), (1.0, 4.0), swap_every=1)
    before = placed(s, [[3.0], [0.0]])
    r = before.dynamics.dynamics
    noise = (jax.tree.map(jnp.zeros_like, s.noise(jax.random.key(1), before.position)[0]), jnp.asarray([0.999]))
    oracle = ls.FullBatch().oracle(QUADRATIC, jax.random.key(0), before.position)
    after, _ = s.transition(before, oracle, noise, jnp.asarray(0.0), jnp.asarray(1.0))
    np.testing.assert_allclose(after.dynamics.dynamics, jnp.stack([r[1] / 2, 2 * r[0]]), rtol=1e-6)


def test_replicas_start_with_momenta_of_their_own_temperature():
    s = ls.tempering(ls.sghmc(0.1, friction=1.0), (1.0, 9.0), swap_every=1)
    r = s.init(jnp.zeros(20_000), key=jax.random.key(0)).dynamics.dynamics
    np.testing.assert_allclose(r.std(axis=1), [1, 3], rtol=0.02)


@pytest.mark.parametrize("per_leaf", [False, True])
def test_a_thermostat_stays_at_its_temperature(per_leaf):
    dynamics = momentum.NoseHoover(1.0, per_leaf=per_leaf)
    own = (jnp.ones(2), jnp.asarray(5.0))
    momenta, xi = dynamics.swapped(own, (jnp.asarray([2.0, 4.0]), jnp.asarray(7.0)), jnp.asarray(4.0))
    np.testing.assert_allclose(momenta, [4.0, 8.0])
    assert float(xi) == 5.0


def test_what_a_preconditioner_has_learned_goes_with_the_particle():
    s = ls.tempering(ls.psgld(0.1, decay=0.5), (1.0, 2.0), swap_every=1)
    before = placed(s, [[3.0], [0.0]])
    before = eqx.tree_at(lambda b: b.preconditioner, before, jnp.asarray([[8.0], [2.0]]))
    noise = (s.noise(jax.random.key(1), before.position)[0], jnp.asarray([0.5]))
    oracle = ls.FullBatch().oracle(QUADRATIC, jax.random.key(0), before.position)
    after, _ = s.transition(before, oracle, noise, jnp.asarray(0.0), jnp.asarray(1.0))
    np.testing.assert_allclose(after.preconditioner, [[1.0 + 0.0], [4.0 + 4.5]])


def test_a_round_trip_is_from_the_cold_end_to_the_hot_one_and_back():
    s = ls.tempering(ls.sgld(0.0), (1.0, 2.0), swap_every=1)
    state, swap, stay = s.init(jnp.ones(1), key=jax.random.key(0)), jnp.asarray([1e-9]), jnp.asarray([1.0])
    trips, made = [], []
    for uniform in (swap, stay, swap, swap, swap):
        oracle = ls.FullBatch().oracle(QUADRATIC, jax.random.key(0), state.position)
        noise = s.noise(jax.random.key(1), state.position)[0]
        state = eqx.tree_at(lambda x: x.dynamics.hotter, state, state.position[None] + jnp.round(uniform))
        state, _ = s.transition(state, oracle, (noise, uniform), jnp.asarray(0.0), jnp.asarray(1.0))
        trips.append(int(s.statistics(state)["round_trips"]))
        made.append(float(s.statistics(state)["swap_rate_0_1"]))
    assert trips == [0, 0, 1, 2, 3]  # of two replicas, whichever is hot goes back
    np.testing.assert_allclose(made, [1, 1 / 2, 2 / 3, 3 / 4, 4 / 5], rtol=1e-6)


class Marked(ls.FullBatch):
    """Energies whose program can be told from that of the gradient."""

    def estimate(self, target, state, batch, position):
        return position, state

    def potential(self, target, state, batch, position):
        return jnp.sum(jnp.arctan(position))


@pytest.mark.parametrize("of_the_loop", [True, False])
def test_energies_are_computed_at_swaps_alone(of_the_loop):
    """Under vmap over chains a swap stays one branch where the step is the loop's, and (the control) not otherwise."""
    s = ls.tempering(ls.sgld(0.1), (1.0, 2.0), swap_every=10)
    states = jax.vmap(lambda x: s.init(x, key=jax.random.key(0)))(jnp.ones((2, 1)))

    def step(state, count):
        oracle = Marked().oracle(QUADRATIC, jax.random.key(0), state.position, count)
        oracle = oracle if of_the_loop else eqx.tree_at(lambda o: o.step, oracle, None)
        return s.step(state, oracle, key=jax.random.key(1))[0]

    program = jax.make_jaxpr(lambda states, count: jax.vmap(lambda x: step(x, count))(states))(states, 3)
    assert "atan" in str(program)
    assert any("atan" in str(eqn) for eqn in program.eqns if eqn.primitive.name != "cond") is not of_the_loop


# --- mixing --------------------------------------------------------------------------------------------------------

SHARE, NARROW = 0.8, 0.5


def bimodal(x):
    """0.8 N(−3, 0.5²) + 0.2 N(3, 0.5²)."""
    left = jnp.log(SHARE) - 0.5 * ((x + 3) / NARROW) ** 2
    return jnp.logaddexp(left, jnp.log(1 - SHARE) - 0.5 * ((x - 3) / NARROW) ** 2)


def share_at_rest():
    """Of mass at x < 0, by quadrature."""
    x = np.linspace(-8, 8, 20_001)
    p = np.exp(np.asarray(bimodal(jnp.asarray(x))))
    return p[x < 0].sum() / p.sum()


def left_share(sampler, num_draws=1_000, chains=40, **options):
    """Share of draws at x < 0, with its standard error over the chains, all of which start at the right mode."""
    run = ls.sample(sampler, ls.Target(bimodal), jnp.asarray(3.0), num_draws=num_draws, chains=chains, **options)
    shares = (run.draws < 0).mean(axis=1)
    return shares.mean(), shares.std(ddof=1) / np.sqrt(chains), run


LADDER = (1.0, 3.0, 9.0, 27.0)


@pytest.mark.parametrize("base", [ls.sgld(0.01), ls.baoab(0.1, friction=1.0), ls.sgnht(0.1, friction=1.0)])
def test_the_cold_replica_visits_both_modes_by_their_mass(base):
    """Within four standard errors, the error below 0.03: a false alarm in 16,000 runs. Off: h's bias, below 0.002."""
    found, error, run = left_share(ls.tempering(base, LADDER, swap_every=5), burn_in=2_000, thin=20)
    assert error < 0.03
    assert abs(found - share_at_rest()) < 4 * error
    assert run.statistics["round_trips"][:, -1].min() > 10
    for pair in range(3):
        assert 0.1 < run.statistics[f"swap_rate_{pair}_{pair + 1}"][:, -1].min() < 1


def test_without_swaps_the_mode_that_is_found_is_the_first():
    found, _, _ = left_share(ls.sgld(0.01), burn_in=2_000, thin=20)
    assert found == 0.0
    never = ls.tempering(ls.sgld(0.01), LADDER, swap_every=2**30)
    found, _, run = left_share(never, burn_in=2_000, thin=20)
    assert found == 0.0
    assert np.isnan(run.statistics["swap_rate_0_1"]).all()


def test_every_replica_has_the_law_of_its_temperature_when_swaps_are_corrected():
    """A Gaussian with noisy energies, some 20,000 independent draws: a variance within five standard errors, 0.05."""
    rng = np.random.default_rng(0)
    data = jnp.asarray(rng.normal(size=(200, 1)) * 3, float)
    posterior = ls.Posterior(lambda x, d: -0.5 * jnp.sum((d - x) ** 2, axis=-1) / 200, lambda x: 0.0, data)
    s = ls.tempering(ls.sgld(0.02), (1.0, 2.0), swap_every=2)
    run = ls.sample(s, posterior, jnp.zeros(1), num_draws=250, thin=20, burn_in=500, chains=400, batch_size=20)
    cold, mean = run.draws[..., 0], float(data.mean())
    # gradient noise: variance 200·9/20/200² per step, h/2 of it in the variance
    expected = (1 + 0.02 / 2 * float(data.var()) / 20) / (1 - 0.02 / 2)
    assert cold.var() == pytest.approx(expected, rel=0.05)
    assert cold.mean() == pytest.approx(mean, abs=0.05)
    assert run.statistics["swap_rate_0_1"][:, -1].mean() > 0.3


# --- by hand, with other pieces, and refused -----------------------------------------------------------------------


def test_it_goes_through_cycles_too():
    cycles = ls.cyclical(ls.sgld(0.05), num_cycles=2, exploration=0.5, exploration_temperature=1.0)
    run = ls.sample(ls.tempering(cycles, (1.0, 2.0), swap_every=3), QUADRATIC, jnp.zeros(2), num_draws=10)
    assert run.draws.shape == (1, 10, 2)
    assert run.num_steps == 20


def test_what_replica_exchange_cannot_be_is_refused():
    base = ls.sgld(0.1)
    for wrong in ((1.0,), (2.0, 1.0), (1.0, 1.0), (1.0, np.inf)):
        with pytest.raises(ValueError, match="temperatures must be two or more ascending numbers"):
            ls.tempering(base, wrong, 1)
    with pytest.raises(ValueError, match=r"temperatures must begin with the sampler's own, 0\.5, and above 0, got 1"):
        ls.tempering(ls.sgld(0.1, temperature=0.5), (1.0, 2.0), 1)
    with pytest.raises(ValueError, match="temperatures must begin with 1, as multiples of the sampler's schedule"):
        ls.tempering(ls.sgld(0.1, temperature=lambda k: 0.5), (0.5, 2.0), 1)
    with pytest.raises(TypeError, match="temperatures must be numbers such as"):
        ls.tempering(base, "hot", 1)
    with pytest.raises(ValueError, match="swap_every must be at least 1, got 0"):
        ls.tempering(base, (1.0, 2.0), 0)
    with pytest.raises(TypeError, match=r"ls.tempering takes a sampler such as ls.sgld\(1e-4\), got Tempering"):
        Tempering(ls.tempering(base, (1.0, 2.0), 1), (1.0, 2.0), 1, None, 1.0)
    s = ls.tempering(base, (1.0, 2.0), 1)
    with pytest.raises(TypeError, match="compares energies, and a plain function gives only gradients"):
        s.step(s.init(jnp.zeros(2), key=jax.random.key(0)), lambda x: x, key=jax.random.key(1))
    cold = ls.tempering(ls.cyclical(base, 1), (1.0, 2.0), 1)
    with pytest.raises(ValueError, match=r"a temperature is 0 at some step.*exploration_temperature=1.0"):
        ls.sample(cold, QUADRATIC, jnp.zeros(2), num_draws=5)
    posterior, _, _ = linear_regression()
    with pytest.raises(ValueError, match="a batch of one row does not show how noisy energies are"):
        ls.sample(s, posterior, jnp.zeros(D), num_draws=5, batch_size=1)
    given = ls.tempering(base, (1.0, 2.0), 1, energy_variance=3.0)
    assert np.isfinite(ls.sample(given, posterior, jnp.zeros(D), num_draws=5, batch_size=1).draws).all()


class Remembers(ls.Dynamics):
    """A dynamics with a state and without a rule for swaps."""

    def init(self, position, key, temperature):
        return position

    def move(self, state, oracle, noise, step_size, temperature):
        return noise, state


def test_a_dynamics_without_a_rule_for_swaps_is_refused():
    s = ls.tempering(ls.Sampler(0.1, Remembers()), (1.0, 2.0), 1)
    with pytest.raises(TypeError, match="Remembers has no rule for swaps of particles between temperatures"):
        ls.sample(s, QUADRATIC, jnp.zeros(2), num_draws=1)
    energetic = ls.recipe(np.ones(4), np.ones(2), step_size=0.1, auxiliary=jnp.zeros_like, energy=lambda x, a: 0.0)
    with pytest.raises(ValueError, match="knows how an auxiliary with the energy ½‖a‖² changes"):
        ls.sample(ls.tempering(energetic, (1.0, 2.0), 1), QUADRATIC, jnp.zeros(2), num_draws=1)
