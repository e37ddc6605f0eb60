"""T7: the loop's hygiene over the registry of samplers, and what `ls.sample` promises."""

import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from registry import CORRECTED, ESTIMATORS, FULL_DATA, SAMPLERS, D, logistic_regression

import lsmcmc as ls

START = [jnp.full(4, 0.1), jnp.full(2, -0.1)]  # a position of two leaves
STOCHASTIC = [name for name in SAMPLERS if name not in FULL_DATA]
MOVING = [name for name in STOCHASTIC if name not in CORRECTED]  # at every step


def counting_posterior():
    """A posterior over START that counts how often it is traced."""
    _, X, y = logistic_regression()
    traced = []

    def log_likelihood(x, batch):
        traced.append(1)
        rows, labels = batch
        return jax.nn.log_sigmoid(labels * (rows[:, :4] @ x[0] + rows[:, 4:] @ x[1]))

    data = (X.astype(np.float32), y.astype(np.float32))
    return ls.Posterior(log_likelihood, lambda x: -0.5 * sum(jnp.sum(p**2) for p in x), data), traced


POSTERIOR, _ = counting_posterior()


def draw(name, **options):
    options = {"num_draws": 12, "seed": 3, **({} if name in FULL_DATA else {"batch_size": 4}), **options}
    return ls.sample(SAMPLERS[name](), POSTERIOR, START, **options)


def equal(a, b):
    return all(np.array_equal(x, y) for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True))


@pytest.mark.parametrize("name", SAMPLERS)
def test_every_sampler_is_the_same_whatever_the_chunk_length(name):
    whole = draw(name, chains=2, burn_in=5, thin=3)
    for chunk in (1, 7, 41):
        assert equal(whole.draws, draw(name, chains=2, burn_in=5, thin=3, chunk=chunk).draws)


@pytest.mark.parametrize("name", SAMPLERS)
def test_every_sampler_resumed_is_the_same_as_uninterrupted(name):
    whole = draw(name, chains=2, num_draws=20)
    first = draw(name, chains=2, num_draws=7)
    options = {} if name in FULL_DATA else {"batch_size": 4}
    second = ls.sample(SAMPLERS[name](), POSTERIOR, state=first.state, num_draws=13, **options)
    assert equal(whole.draws, jax.tree.map(lambda a, b: np.concatenate([a, b], axis=1), first.draws, second.draws))
    assert int(second.state.step) == 20


@pytest.mark.parametrize("name", SAMPLERS)
def test_every_sampler_in_the_loop_is_its_steps_by_hand(name):
    """`ls.sample` against `step` called one by one, with the loop's own noise and batches."""
    run = draw(name, chains=2, num_draws=6)
    s, estimator = SAMPLERS[name](), ls.FullBatch() if name in FULL_DATA else ls.Minibatch(4)

    @jax.jit
    def step(posterior, state, keys, k):
        oracle = estimator.oracle(posterior, keys[3], state.position, k)
        return s.step(state, oracle, key=jax.random.fold_in(keys[2], k))[0]

    for chain in range(2):
        keys = jax.random.split(jax.random.fold_in(jax.random.key(3), chain), 4)
        state = s.init(START, key=keys[1])
        for k in range(6):
            state = step(POSTERIOR, state, keys, k)
            for held, leaf in zip(run.draws, state.position, strict=True):
                np.testing.assert_allclose(held[chain, k], leaf, rtol=2e-5, atol=1e-6)


@pytest.mark.parametrize("name", MOVING)
def test_chains_and_seeds_differ_and_a_seed_repeats(name):
    run = draw(name, chains=3)
    leaf = run.draws[0]
    assert all(np.abs(leaf[a] - leaf[b]).min() > 0 for a, b in itertools.combinations(range(3), 2))
    assert equal(run.draws, draw(name, chains=3).draws)
    assert not equal(run.draws, draw(name, chains=3, seed=4).draws)


@pytest.mark.parametrize("name", sorted(CORRECTED))
def test_chains_that_may_stay_where_they_are_differ_as_well(name):
    run = draw(name, chains=3, num_draws=40)
    last = run.draws[0][:, -1]
    assert all(np.abs(last[a] - last[b]).min() > 0 for a, b in itertools.combinations(range(3), 2))
    assert equal(run.draws, draw(name, chains=3, num_draws=40).draws)
    assert not equal(run.draws, draw(name, chains=3, num_draws=40, seed=4).draws)


def test_chain_k_does_not_depend_on_the_number_of_chains():
    few, many = draw("ls_sgld", chains=2), draw("ls_sgld", chains=5)
    np.testing.assert_allclose(few.draws[0], many.draws[0][:2], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("sampler", "estimator"), list(itertools.product(["sgld", "ls_psgld"], ESTIMATORS)))
def test_estimators_serve_every_sampler(sampler, estimator):
    options = {"num_draws": 8, "chains": 2, "gradient": ESTIMATORS[estimator]()}
    run = ls.sample(SAMPLERS[sampler](), POSTERIOR, START, **options)
    again = ls.sample(SAMPLERS[sampler](), POSTERIOR, START, chunk=3, **options)
    assert equal(run.draws, again.draws)
    assert np.isfinite(run.draws[0]).all()


def test_shared_batches_are_the_same_for_all_chains_and_others_are_not():
    """At T = 0 chains differ only through their batches."""
    for shared in (True, False):
        gradient = ls.Minibatch(2, shared=shared)
        run = ls.sample(ls.sgld(1e-2, temperature=0.0), POSTERIOR, START, num_draws=5, chains=2, gradient=gradient)
        assert np.array_equal(run.draws[0][0], run.draws[0][1]) is shared


@pytest.mark.parametrize("name", SAMPLERS)
def test_a_second_call_does_not_trace_again(name):
    posterior, traced = counting_posterior()
    options = {"num_draws": 10, "chains": 2, **({} if name in FULL_DATA else {"batch_size": 4})}
    ls.sample(SAMPLERS[name](), posterior, START, **options)
    before = len(traced)
    ls.sample(SAMPLERS[name](), posterior, START, **options)
    ls.sample(
        SAMPLERS[name](2e-3), posterior, START, **{**options, "seed": 9, "num_draws": 17, "burn_in": 5, "thin": 2}
    )
    ls.sample(SAMPLERS[name](optax.exponential_decay(1e-2, 10, 0.9)), posterior, START, **options)
    assert len(traced) == before


def test_another_sigma_temperature_or_schedule_does_not_trace_again():
    posterior, traced = counting_posterior()
    options = {"num_draws": 10, "batch_size": 4}
    ls.sample(ls.ls_sgld(1e-2, sigma=1.0), posterior, START, **options)
    before = len(traced)
    ls.sample(ls.ls_sgld(1e-2, sigma=0.7), posterior, START, **options)
    ls.sample(ls.ls_sgld(1e-2, sigma=1.0, temperature=0.3), posterior, START, **options)
    ls.sample(
        ls.ls_sgld(lambda k: 1e-2 if k < 5 else 1e-3, temperature=lambda k: 1 / (1 + k)), posterior, START, **options
    )
    assert len(traced) == before
    ls.sample(ls.ls_sgld(1e-2, sigma=500.0), posterior, START, **options)
    assert len(traced) > before  # the control: a longer filter is another form, and tracing is seen


def test_step_is_jittable_vmappable_and_scannable():
    s = ls.ls_psgld(1e-2)
    keys = jax.random.split(jax.random.key(0), 10)
    estimator = ls.Minibatch(4)

    def one(state, key):
        data_key, noise_key = jax.random.split(key)
        return s.step(state, estimator.oracle(POSTERIOR, data_key, state.position), key=noise_key)[0], state.position

    start = s.init(START, key=keys[0])
    scanned, _ = jax.lax.scan(one, start, keys)
    jitted, looped = jax.jit(one), start
    for key in keys:
        looped = jitted(looped, key)[0]
    np.testing.assert_allclose(scanned.position[0], looped.position[0], rtol=1e-5)
    both = jax.vmap(lambda key: one(start, key)[0].position)(keys[:2])
    np.testing.assert_allclose(both[0][1], one(start, keys[1])[0].position[0], rtol=1e-5)


@pytest.mark.parametrize("name", STOCHASTIC)
@pytest.mark.parametrize("dtype", [jnp.float16, jnp.bfloat16, jnp.float32])
def test_dtypes_are_kept(name, dtype):
    start = [leaf.astype(dtype) for leaf in START]
    posterior = ls.Target(lambda x: -0.5 * sum(jnp.sum(p.astype(jnp.float32) ** 2) for p in x))
    run = ls.sample(SAMPLERS[name](), posterior, start, num_draws=5)
    assert [leaf.dtype for leaf in run.draws] == [dtype] * 2
    assert [leaf.dtype for leaf in run.state.sampler.position] == [dtype] * 2


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("name", SAMPLERS)
def test_float64_positions_stay_float64_beside_float32_ones(name):
    start = [jnp.full(4, 0.1, jnp.float64), jnp.full(2, -0.1, jnp.float32)]
    target = ls.Target(lambda x: -0.5 * (jnp.sum(x[0] ** 2) + jnp.sum(x[1].astype(jnp.float64) ** 2)))
    run = ls.sample(SAMPLERS[name](), target, start, num_draws=5)
    assert [leaf.dtype for leaf in run.draws] == [jnp.float64, jnp.float32]


def test_burn_in_and_thinning_pick_the_stated_steps():
    every = draw("sgld", num_draws=35).draws[0]
    thinned = draw("sgld", num_draws=10, burn_in=5, thin=3)
    np.testing.assert_array_equal(thinned.draws[0], every[:, 5 + 3 - 1 :: 3])
    assert thinned.num_steps == 35


def test_schedules_are_followed_step_by_step():
    schedule = optax.polynomial_schedule(1e-2, 1e-3, 1, 20)
    run = ls.sample(ls.sgld(schedule), POSTERIOR, START, num_draws=5, batch_size=4, burn_in=3, thin=2)
    np.testing.assert_allclose(run.step_sizes, [schedule(step) for step in (4, 6, 8, 10, 12)], rtol=1e-6)
    cold = ls.sgld(lambda step: 0.1 / (1 + step), temperature=lambda step: 0.0 * step)
    target = ls.Target(lambda x: -0.5 * jnp.sum(x**2))
    path = ls.sample(cold, target, jnp.ones(1), num_draws=4).draws[0, :, 0]
    np.testing.assert_allclose(path, np.cumprod(1 - 0.1 / (1 + np.arange(4))), rtol=1e-6)


def test_init_gives_each_chain_its_own_start():
    target = ls.Target(lambda x: -0.5 * jnp.sum(x**2))
    still = ls.sgld(0.0)
    run = ls.sample(still, target, init=lambda key: jax.random.normal(key, (3,)), num_draws=1, chains=4)
    assert len(np.unique(run.draws[:, 0, 0])) == 4


def test_a_seed_may_be_a_key_of_either_kind():
    for key in (jax.random.key(3), jax.random.PRNGKey(3)):
        assert equal(draw("sgld").draws, draw("sgld", seed=key).draws)


@pytest.mark.parametrize("weighted", [False, True])
def test_running_moments_are_those_of_the_draws(weighted):
    s = ls.ls_sgld(optax.exponential_decay(1e-1, 20, 0.5))
    options = {"num_draws": 50, "batch_size": 4, "chains": 3, "burn_in": 4, "thin": 2}
    stored = ls.sample(s, POSTERIOR, START, **options)
    running = ls.sample(s, POSTERIOR, START, keep=ls.Moments(weighted=weighted), **options)
    assert running.draws is None
    for what in ("mean", "variance"):
        for a, b in zip(getattr(stored, what)(weighted), getattr(running, what)(weighted), strict=True):
            np.testing.assert_allclose(a, b, rtol=2e-5, atol=1e-7)
    assert equal(stored.state.sampler.position, running.state.sampler.position)


def test_keep_stores_a_function_of_the_draws_and_their_moments():
    stored = draw("sgld", chains=2)
    kept = draw("sgld", chains=2, keep=lambda x: {"norm": jnp.sum(x[0] ** 2)})
    np.testing.assert_allclose(kept.draws["norm"], (stored.draws[0] ** 2).sum(-1), rtol=1e-5)


def test_a_run_continues_with_moments_kept_before():
    """A continued run keeps the moments of its own draws."""
    first = draw("sgld", keep="moments", num_draws=10)
    second = ls.sample(SAMPLERS["sgld"](), POSTERIOR, state=first.state, num_draws=10, batch_size=4, keep="moments")
    whole = draw("sgld", num_draws=20)
    np.testing.assert_allclose(second.mean()[0], whole.draws[0][:, 10:].mean((0, 1)), rtol=1e-4, atol=1e-6)


def test_moments_of_long_runs_far_from_zero_keep_their_digits():
    """Several blocks, a mean of a hundred sd: sums in float32 alone would stop moving."""
    target = ls.Target(lambda x: -0.5 * jnp.sum((x - 100.0) ** 2))
    options = {"num_draws": 3 * 4096 + 100, "chains": 2, "seed": 1}
    start = jnp.full(2, 97.0)
    stored = ls.sample(ls.sgld(0.01), target, start, **options)
    running = ls.sample(ls.sgld(0.01), target, start, keep="moments", **options)
    np.testing.assert_allclose(running.mean(), stored.mean(), atol=2e-4)
    np.testing.assert_allclose(running.variance(), stored.variance(), rtol=2e-3)
    assert running._totals.count.tolist() == [options["num_draws"]] * 2


def test_moments_do_not_depend_on_the_chunks_to_the_last_bit():
    options = {"num_draws": 5000, "chains": 2, "keep": "moments", "burn_in": 3, "thin": 2}
    target = ls.Target(lambda x: -0.5 * jnp.sum(x**2))
    runs = [ls.sample(ls.sgld(0.1), target, jnp.ones(2), chunk=chunk, **options) for chunk in (None, 777)]
    assert equal(runs[0].mean(), runs[1].mean())
    assert equal(runs[0].variance(), runs[1].variance())


class Anchored(ls.GradientEstimator):
    """∇Û(x) − ∇Û(x̃) + ∇U(x̃), the anchor x̃ renewed every five steps: an estimator with a state."""

    def init(self, target, position):
        return position, jax.tree.map(jnp.zeros_like, position)

    def begin(self, target, state, batch, position, step):
        def renew():
            return position, jax.grad(lambda x: -target.log_density(x))(position)

        return jax.lax.cond(step % 5 == 0, renew, lambda: state)

    def plan(self, key, step, num_examples):
        return ls.Minibatch(4).plan(key, step, num_examples)

    def fetch(self, target, rows, like):
        return ls.Minibatch(4).fetch(target, rows, like)

    def estimate(self, target, state, batch, position):
        anchor, full = state
        here, there = (jax.grad(lambda x: target.potential(x, batch))(x) for x in (position, anchor))
        return jax.tree.map(lambda a, b, c: a - b + c, here, there, full), state


def test_an_estimator_with_a_state_is_carried_chunked_and_resumed():
    options = {"gradient": Anchored(), "chains": 2}
    whole = ls.sample(ls.ls_sgld(1e-2), POSTERIOR, START, num_draws=17, **options)
    first = ls.sample(ls.ls_sgld(1e-2), POSTERIOR, START, num_draws=8, chunk=3, **options)
    rest = ls.sample(ls.ls_sgld(1e-2), POSTERIOR, state=first.state, num_draws=9, gradient=Anchored())
    assert equal(whole.draws, jax.tree.map(lambda a, b: np.concatenate([a, b], axis=1), first.draws, rest.draws))
    cold = ls.sample(ls.sgld(1e-2, temperature=0.0), POSTERIOR, START, num_draws=1, gradient=Anchored())
    full = ls.sample(ls.lmc(1e-2, temperature=0.0), POSTERIOR, START, num_draws=1)
    np.testing.assert_allclose(cold.draws[0], full.draws[0], rtol=1e-4)  # at the anchor the estimate is exact


def test_schedules_may_be_numpy_or_a_table():
    table = [0.1, 0.05, 0.02, 0.01]
    target = ls.Target(lambda x: -0.5 * jnp.sum(x**2))
    for schedule in (lambda k: table[k], lambda k: np.asarray(table)[k], lambda k: 0.1 * np.exp(-0.1 * k)):
        run = ls.sample(ls.sgld(schedule), target, jnp.ones(1), num_draws=4)
        np.testing.assert_allclose(run.step_sizes, [schedule(k) for k in range(4)], rtol=1e-6)


def test_an_interrupted_run_carries_what_was_drawn(monkeypatch):
    from lsmcmc import driver

    honest, calls = driver.advance, []

    def interrupted(given, sums):
        calls.append(1)
        if len(calls) == 4:
            raise KeyboardInterrupt
        return honest(given, sums)

    monkeypatch.setattr(driver, "advance", interrupted)
    with pytest.raises(KeyboardInterrupt) as e:
        draw("sgld", num_draws=50, chunk=10)
    monkeypatch.undo()
    assert e.value.run.draws[0].shape[:2] == (1, 20)
    assert equal(e.value.run.draws, draw("sgld", num_draws=20).draws)


def test_a_run_and_its_divergence_can_be_pickled_and_copied():
    import copy
    import pickle

    run = draw("sgld")
    run.target = None  # a posterior is its functions, which here are local
    run.state = None
    assert equal(pickle.loads(pickle.dumps(run)).draws, run.draws)
    error = copy.copy(ls.DivergenceError(run, 1, 7, 0.5))
    assert (error.chain, error.step, error.step_size) == (1, 7, 0.5)


def diverging():
    """A Gaussian but for a wall at x₀ = 1, beyond which the gradient is not a number."""
    return ls.Target(lambda x: -0.5 * jnp.sum(x**2) + 1e-9 * jnp.sqrt(1.0 - x[0]))


def test_a_diverged_chain_stops_the_run_and_leaves_what_was_drawn():
    s = ls.sgld(0.05)
    with pytest.raises(
        ls.DivergenceError, match=r"chain \d left the finite numbers at step \d+, at step size 0.05"
    ) as e:
        ls.sample(s, diverging(), jnp.zeros(2), num_draws=5_000, chains=3)
    run, step = e.value.run, e.value.step
    assert run.draws.shape == (3, step - 1, 2)
    assert np.isfinite(run.draws).all()
    assert np.array_equal(run.state.sampler.position, run.draws[:, -1])
    beyond = run.draws[:, :, 0] > 1.0
    assert beyond[e.value.chain, -1]
    assert not beyond[:, :-1].any()
    calm = ls.sample(s, ls.Target(lambda x: -0.5 * jnp.sum(x**2)), jnp.zeros(2), num_draws=step - 1, chains=3)
    np.testing.assert_allclose(run.draws, calm.draws, rtol=1e-5, atol=1e-6)


def test_a_divergence_leaves_the_moments_of_what_was_finite():
    with pytest.raises(ls.DivergenceError) as e:
        ls.sample(ls.sgld(0.05), diverging(), jnp.zeros(2), num_draws=5_000, chains=3, keep="moments")
    run = e.value.run
    assert np.isfinite(run.mean()).all()
    assert run._totals.count[e.value.chain] == e.value.step - 1
    assert run._totals.count.min() > 0


def test_the_step_of_a_divergence_does_not_depend_on_the_chunks():
    found = set()
    for chunk in (None, 10, 333):
        with pytest.raises(ls.DivergenceError) as e:
            ls.sample(
                ls.sgld(0.05), diverging(), jnp.zeros(2), num_draws=500, chains=3, thin=10, burn_in=3, chunk=chunk
            )
        found.add((e.value.chain, e.value.step, e.value.run.num_draws))
    assert len(found) == 1


def test_a_step_needs_few_vectors_beside_the_position():
    """At a size where memory matters: state twice (the one before is kept), noise, gradient, displacement."""
    from lsmcmc import driver

    d = 2_000_000
    target = ls.Target(lambda x: -0.5 * jnp.sum(x**2))
    captured = {}
    advance = driver.advance

    def spy(given, sums):
        captured["call"] = (given, sums)
        return advance(given, sums)

    driver.advance = spy
    try:
        ls.sample(ls.ls_sgld(0.1), target, jnp.zeros(d), num_draws=1, keep="moments")
    finally:
        driver.advance = advance
    given, _ = captured["call"]
    sums = jax.vmap(ls.keeping.Sums.zero)(given[1].sampler.position)
    memory = advance.lower(given, sums).compile().compiled.memory_analysis()
    vectors = memory.temp_size_in_bytes / (4 * d)
    outputs = (memory.output_size_in_bytes - memory.alias_size_in_bytes) / (4 * d)
    assert outputs < 1.1  # the new position; moments are updated in place
    assert vectors + outputs < 4.5


def test_the_information_of_a_step_is_its_gradient_and_displacement():
    s = ls.sgld(0.1, temperature=0.0)
    _, info = s.step(s.init(jnp.ones(3), key=jax.random.key(0)), lambda x: 2 * x, key=jax.random.key(1))
    np.testing.assert_allclose(info.gradient, 2.0)
    np.testing.assert_allclose(info.displacement, -0.2, rtol=1e-6)


def test_samplers_and_targets_cross_a_plain_jit_as_arguments():
    state = SAMPLERS["ls_psgld"]().init(START, key=jax.random.key(0))
    step = jax.jit(
        lambda s, posterior, state, key: s.step(state, ls.Minibatch(4).oracle(posterior, key, START), key=key)
    )
    new, _ = step(SAMPLERS["ls_psgld"](), POSTERIOR, state, jax.random.key(1))
    assert eqx.tree_equal(jax.tree.structure(new), jax.tree.structure(state))


def test_the_size_of_the_toy_position_is_that_of_the_data():
    assert sum(leaf.size for leaf in START) == D
