"""Cyclical SG-MCMC: the schedule as published, which steps are kept, phases, and runs put together from cycles."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from registry import DYNAMICS, logistic_regression

import lsmcmc as ls
from lsmcmc.cyclical import check

TARGET = ls.Target(lambda x: -0.5 * jnp.sum(x**2))
LENGTHS = list(itertools.product((1, 3, 4), (0.0, 0.3, 0.8), (4, 7, 12), (1, 3), (0, 5)))


def planned(num_cycles, exploration, num_draws, thin, burn_in, first=0):
    s = ls.cyclical(ls.sgld(1.0), num_cycles, exploration)
    return s.planned(burn_in, thin, num_draws, first)


def zhang_et_al(k, K, M, beta, alpha):
    """The paper's α_k and whether step k = 1 … K explores."""
    length = -(-K // M)
    share = np.mod(k - 1, length) / length
    return alpha / 2 * (np.cos(np.pi * share) + 1), share < beta - 1e-12


def check_schedule(s, num_cycles, exploration, burn_in):
    """Our step sizes and temperatures against the published ones."""
    total = s.timetable.total
    h, temperature = s.timetable.values(np.arange(total), np.ones(total), np.ones(total))
    alpha, explores = zhang_et_al(np.arange(1, total - burn_in + 1), total - burn_in, num_cycles, exploration, 1.0)
    np.testing.assert_allclose(h, np.r_[np.ones(burn_in), alpha], atol=1e-12)
    np.testing.assert_array_equal(temperature, np.r_[np.ones(burn_in), 1.0 - explores])


@pytest.mark.parametrize(("num_cycles", "exploration", "num_draws", "thin", "burn_in"), LENGTHS)
def test_the_schedule_is_the_published_one_at_every_step(num_cycles, exploration, num_draws, thin, burn_in):
    check_schedule(planned(num_cycles, exploration, num_draws, thin, burn_in), num_cycles, exploration, burn_in)


def test_the_check_of_the_schedule_fails_for_a_cycle_that_is_a_step_off():
    s = planned(4, 0.5, 8, 2, 0, first=1)  # as if the run had begun at step 1
    with pytest.raises(AssertionError):
        check_schedule(s, 4, 0.5, 0)


@pytest.mark.parametrize(("num_cycles", "exploration", "num_draws", "thin", "burn_in"), LENGTHS)
def test_draws_are_thin_apart_in_the_sampling_phases_and_their_number_is_what_was_asked(
    num_cycles, exploration, num_draws, thin, burn_in
):
    s = planned(num_cycles, exploration, num_draws, thin, burn_in)
    table = s.timetable
    steps = np.arange(table.total + 1)
    made = np.asarray([table.made(int(k)) for k in steps])
    np.testing.assert_array_equal(table.made(steps), made)
    kept = 1 + np.flatnonzero(np.diff(made))
    assert set(np.diff(made)) <= {0, 1}
    assert made[-1] == num_draws
    np.testing.assert_array_equal(kept, [table.at(n) for n in range(1, num_draws + 1)])
    _, temperature = table.values(np.arange(table.total), np.ones(table.total), np.ones(table.total))
    assert (temperature[kept - 1] == 1).all()
    cycle = (kept - 1 - burn_in) // table.length
    counts = np.bincount(cycle, minlength=num_cycles)
    assert counts.max() - counts.min() <= 1
    assert set(np.diff(kept)[np.diff(cycle) == 0]) <= {thin}
    assert ((kept - burn_in) % table.length == 0).sum() == num_cycles  # the last step of every cycle


@pytest.mark.parametrize(("num_cycles", "exploration", "num_draws", "thin", "burn_in"), LENGTHS)
def test_a_cycle_is_no_longer_than_its_draws_need(num_cycles, exploration, num_draws, thin, burn_in):
    table = planned(num_cycles, exploration, num_draws, thin, burn_in).timetable
    needed = thin * -(-num_draws // num_cycles)
    sampling = [sum(k / C >= exploration - 1e-12 for k in range(C)) for C in (table.length - 1, table.length)]
    assert sampling[1] == needed
    assert sampling[0] < needed
    assert table.total == burn_in + num_cycles * table.length


@pytest.mark.parametrize("chunk", [None, 1, 7])
def test_a_run_keeps_the_steps_of_the_timetable_however_it_is_cut(chunk):
    s = ls.cyclical(ls.sgld(0.3), num_cycles=3, exploration=0.6)
    run = ls.sample(s, TARGET, jnp.ones(2), num_draws=7, burn_in=4, thin=2, chains=2, chunk=chunk)
    table = s.planned(4, 2, 7).timetable
    assert run.draws.shape == (2, 7, 2)
    assert run.num_steps == table.total == 4 + 3 * 15

    by_hand, kept, h = s.planned(4, 2, 7), [], []
    keys = jax.random.split(jax.random.fold_in(jax.random.key(0), 0), 4)
    state = by_hand.init(jnp.ones(2), key=keys[1])
    for k in range(run.num_steps):
        h.append(float(by_hand.values(state.step)[0]))
        state, _ = by_hand.step(state, lambda x: x, key=jax.random.fold_in(keys[2], k))
        if table.made(k + 1) > table.made(k):
            kept.append(k)
            np.testing.assert_allclose(run.draws[0, len(kept) - 1], state.position, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(run.step_sizes, np.asarray(h)[kept], rtol=1e-5, atol=1e-9)


def test_the_moments_of_a_cyclical_run_are_those_of_its_draws():
    s = ls.cyclical(ls.sgld(0.3), num_cycles=3, exploration=0.6)
    options = {"num_draws": 50, "chains": 2, "thin": 2}
    run = ls.sample(s, TARGET, jnp.ones(2), **options)
    for weighted in (False, True):
        running = ls.sample(s, TARGET, jnp.ones(2), keep=ls.Moments(weighted=weighted), **options)
        np.testing.assert_allclose(running.mean(weighted), run.mean(weighted), rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(running.variance(weighted), run.variance(weighted), rtol=1e-4)
    held = ls.sample(s, TARGET, jnp.ones(2), keep=ls.Moments(rank=4), **options)
    assert held.covariance().rank >= 8


def test_two_runs_of_two_cycles_are_one_of_four():
    def run(num_cycles, num_draws, start=None, **state):
        s = ls.cyclical(ls.sghmc(0.2, friction=1.0), num_cycles=num_cycles)
        return ls.sample(s, TARGET, start, num_draws=num_draws, thin=2, **state)

    whole = run(4, 12, jnp.ones(2))
    first = run(2, 6, jnp.ones(2))
    second = run(2, 6, state=first.state)
    np.testing.assert_array_equal(whole.draws, np.concatenate([first.draws, second.draws], axis=1))


@pytest.mark.parametrize("name", DYNAMICS)
def test_exploration_adds_no_noise_and_sampling_does(name):
    """Chains from one point and without momentum stay together to the end of the exploration, whatever the dynamics."""
    dynamics = DYNAMICS[name]()
    if dynamics.is_exact:
        with pytest.raises(ValueError, match="has a Metropolis test"):
            ls.cyclical(ls.Sampler(0.05, dynamics), num_cycles=1)
        return
    s = ls.cyclical(ls.Sampler(0.05, dynamics), num_cycles=1, exploration=0.5)
    length = s.planned(0, 1, 20).timetable.length
    options = {"init": jnp.ones((2, 3)), "num_draws": 20}
    run = ls.sample(s, TARGET, **options)
    assert np.abs(run.draws[0, 0] - run.draws[1, 0]).min() > 0
    exploring = ls.Sampler(lambda k: s.planned(0, 1, 20).values(k)[0], DYNAMICS[name](), temperature=0.0)
    still = ls.sample(exploring, TARGET, init=jnp.ones((2, 3)), num_draws=length // 2)
    np.testing.assert_array_equal(still.draws[0], still.draws[1])
    assert np.abs(still.draws[0, -1]).max() < 1  # it goes downhill


def test_a_thermostat_rests_while_there_is_no_temperature_to_hold():
    for integrator in ("euler", "symmetric"):
        s = ls.sgnht(0.1, friction=1.0, integrator=integrator, temperature=0.0)
        run = ls.sample(s, TARGET, jnp.full(3, 5.0), num_draws=50)
        assert float(run.state.sampler.dynamics[1][0]) == 1.0


def test_the_temperature_of_exploration_can_be_another():
    s = ls.cyclical(ls.sgld(0.1, temperature=0.5), num_cycles=2, exploration=0.5, exploration_temperature=3.0)
    s = s.planned(0, 1, 4)
    assert [float(s.values(jnp.asarray(k))[1]) for k in range(8)] == [3, 3, 0.5, 0.5] * 2


def test_a_schedule_of_the_users_is_multiplied_by_the_cosine():
    schedule = optax.exponential_decay(0.1, 20, 0.5)
    s = ls.cyclical(ls.sgld(schedule), num_cycles=2, exploration=0.5)
    run = ls.sample(s, TARGET, jnp.ones(1), num_draws=10)
    plain = ls.sample(ls.cyclical(ls.sgld(0.1), num_cycles=2, exploration=0.5), TARGET, jnp.ones(1), num_draws=10)
    steps = np.r_[np.arange(5, 10), np.arange(15, 20)]
    expected = plain.step_sizes * np.asarray([schedule(k) for k in steps]) / 0.1
    np.testing.assert_allclose(run.step_sizes, expected, rtol=1e-5)


def test_another_number_of_cycles_length_or_share_is_no_new_trace():
    posterior, _, _ = logistic_regression()
    traced = []

    def log_likelihood(x, batch):
        traced.append(1)
        return posterior.log_likelihood(x, batch)

    counted = ls.Posterior(log_likelihood, posterior.log_prior, jax.tree.map(np.float32, posterior.data))
    options = {"batch_size": 4, "chains": 2}
    ls.sample(ls.cyclical(ls.sgld(1e-2), num_cycles=2), counted, jnp.zeros(6), num_draws=10, **options)
    before = len(traced)
    other = ls.cyclical(ls.sgld(1e-3), num_cycles=5, exploration=0.3, exploration_temperature=0.1)
    ls.sample(other, counted, jnp.zeros(6), num_draws=23, thin=2, burn_in=3, **options)
    ls.sample(ls.sgld(1e-2), counted, jnp.zeros(6), num_draws=10, **options)  # the same program as without cycles
    assert len(traced) == before


def test_cycles_find_modes_that_one_phase_of_the_same_length_does_not():
    """25 narrow modes in the plane, as in §5.1 of the paper: distinct modes with draws in them, of one chain."""
    centres = jnp.asarray(list(itertools.product(range(-4, 5, 2), repeat=2)), float)

    def log_density(x):
        return jax.scipy.special.logsumexp(-0.5 * jnp.sum((x - centres) ** 2, axis=1) / 0.03)

    target, options = ls.Target(log_density), {"num_draws": 1_000, "thin": 10, "chains": 4, "seed": 1}

    def found(run):
        near = ((run.draws[:, :, None] - np.asarray(centres)) ** 2).sum(-1).argmin(-1)
        return np.mean([len(np.unique(chain)) for chain in near])

    cycles = ls.cyclical(ls.sgld(0.05), 25, 0.25, exploration_temperature=4.0)
    run = ls.sample(cycles, target, jnp.zeros(2), **options)
    flat = ls.sample(ls.sgld(0.0125), target, jnp.zeros(2), burn_in=run.num_steps - 10_000, **options)
    assert run.num_steps == flat.num_steps
    assert found(run) > 12  # 25 modes found with equal chances, 25 times, are 16 different ones
    assert found(flat) < 3


def test_what_a_cyclical_run_cannot_be_is_refused():
    s = ls.cyclical(ls.sgld(0.1), num_cycles=4)
    with pytest.raises(ValueError, match="num_draws is 3 and num_cycles 4: a cycle without a draw"):
        ls.sample(s, TARGET, jnp.ones(1), num_draws=3)
    with pytest.raises(ValueError, match=r"needs to know the length of the run: by hand, write"):
        s.init(jnp.ones(1), key=jax.random.key(0))
    with pytest.raises(ValueError, match="num_cycles must be at least 1, got 0"):
        ls.cyclical(ls.sgld(0.1), num_cycles=0)
    with pytest.raises(ValueError, match="exploration must be a finite number, zero or above and below 1, got 1"):
        ls.cyclical(ls.sgld(0.1), num_cycles=2, exploration=1.0)
    with pytest.raises(TypeError, match=r"ls.cyclical takes a sampler such as ls.sgld\(1e-4\), got 0.1"):
        check(0.1)
    with pytest.raises(ValueError, match=r"a run ends before step 2\*\*31"):
        ls.sample(ls.cyclical(ls.sgld(0.1), 2, 0.999), TARGET, jnp.ones(1), num_draws=10**8)
