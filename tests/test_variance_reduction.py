"""SVRG, its recursive form, SAGA and control variates: unbiased batch by batch, transcribed, as cheap as they say."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from registry import D, linear_regression, logistic_regression

import lsmcmc as ls
from lsmcmc import _memory
from lsmcmc.anchored import Anchor, anchor_at
from lsmcmc.glm import combined
from lsmcmc.saga import Table, first_of_each

SCHEMES = {
    "iid": list(itertools.product(range(6), repeat=2)),
    "subset": list(itertools.combinations(range(6), 2)),
    "epochs": list(itertools.combinations(range(6), 2)),
    "blocks": [(i, (i + 1) % 6) for i in range(6)],
}


def targets():
    """One posterior in four forms, each with a position: as an array, as a GLM, by leaves, and with a leaf held."""
    posterior, X, y = linear_regression()
    glm = ls.GLM(lambda z, y: -0.5 * (y - z) ** 2, posterior.log_prior, (X, y), chunk_size=4)
    leaves = {"a": jnp.linspace(-1.0, 0.0, 4), "b": jnp.linspace(0.3, 1.0, 2)}
    by_leaves = ls.GLM(
        lambda z, y: -0.5 * (y - z) ** 2,
        lambda x: -0.5 * sum(jnp.sum(leaf**2) for leaf in x.values()),
        ({"a": X[:, :4], "b": X[:, 4:]}, y),
    )
    held = by_leaves.freeze(leaves, {"a": True, "b": False})
    return {
        "array": (posterior, jnp.linspace(-1.0, 1.0, D)),
        "glm": (glm, jnp.linspace(-1.0, 1.0, D)),
        "leaves": (by_leaves, leaves),
        "held leaf": (held, {"a": leaves["a"], "b": None}),
    }


def elsewhere(x, seed=0):
    """Another position of the same shapes."""
    keys = iter(jax.random.split(jax.random.key(seed), 10))
    return jax.tree.map(lambda leaf: leaf + jax.random.normal(next(keys), leaf.shape, leaf.dtype), x)


def full_gradient(target, x):
    return jax.grad(lambda z: -target.log_density(z))(x)


def anchored_state(estimator, target, x):
    """An anchor that is not at x."""
    return anchor_at(target, elsewhere(x))


def table_state(estimator, target, x):
    """A table whose rows were read at six different places."""
    tables = [estimator.init(target, elsewhere(x, seed)).scores for seed in range(6)]
    table = jax.tree.map(lambda *rows: jnp.stack([row[i] for i, row in enumerate(rows)]), *tables)
    total = combined(target, x, target.data, table)
    return Table(table, total, jax.tree.map(jnp.zeros_like, total), jnp.asarray(0, jnp.int32))


FAMILY = {
    "svrg": (lambda scheme: ls.SVRG(ls.Minibatch(2, scheme), 5), anchored_state),
    "srvr": (lambda scheme: ls.SVRG(ls.Minibatch(2, scheme), 5, recursive=True), anchored_state),
    "saga": (lambda scheme: ls.SAGA(ls.Minibatch(2, scheme)), table_state),
    "control variate": (lambda scheme: ls.ControlVariate(ls.Minibatch(2, scheme)), anchored_state),
}


def check_unbiased(estimator, state, target, x, batches):
    """The average over all batches is U and its gradient, whatever the state."""

    def answer(rows):
        oracle = ls.Oracle(target, estimator, state, estimator.fetch(target, rows, x))
        return oracle.gradient(x), oracle.potential(x), jax.grad(oracle.potential)(x)

    gradients, potentials, slopes = jax.vmap(answer)(jnp.asarray(batches))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-12), gradients, slopes)
    exact = full_gradient(target, x)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a.mean(0), b, rtol=1e-10, atol=1e-12), gradients, exact)
    np.testing.assert_allclose(potentials.mean(), -target.log_density(x), rtol=1e-10)
    return gradients


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("form", ["array", "glm", "leaves", "held leaf"])
@pytest.mark.parametrize(("name", "scheme"), list(itertools.product(FAMILY, SCHEMES)))
def test_the_mean_over_every_batch_is_the_full_gradient_whatever_is_remembered(name, scheme, form):
    target, x = targets()[form]
    estimator, state = FAMILY[name][0](scheme), FAMILY[name][1]
    check_unbiased(estimator, state(estimator, target, x), target, x, SCHEMES[scheme])


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("name", FAMILY)
def test_the_estimate_has_no_noise_where_the_state_was_made(name):
    target, x = targets()["leaves"]
    estimator = FAMILY[name][0]("iid")
    state = estimator.begin(target, estimator.init(target, x), None, x, jnp.asarray(0))
    exact = full_gradient(target, x)
    for rows in [(0, 0), (1, 4), (5, 2)]:
        oracle = ls.Oracle(target, estimator, state, estimator.fetch(target, jnp.asarray(rows), x))
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-11), oracle.gradient(x), exact)
        if name != "saga":  # whose energies have noise, the same at every point
            np.testing.assert_allclose(oracle.potential(x), -target.log_density(x), rtol=1e-11)


@pytest.mark.usefixtures("x64")
def test_an_anchor_from_some_rows_is_unbiased_over_every_choice_of_them():
    posterior, x = targets()["array"]
    estimator, far = ls.SVRG(2, 5, anchor=3), elsewhere(x)
    anchors, chosen = [], itertools.combinations(range(6), 3)
    for rows in chosen:
        data = jax.tree.map(lambda leaf, rows=rows: leaf[jnp.asarray(rows)], posterior.data)
        some = ls.Posterior(posterior.log_likelihood, posterior.log_prior, data)
        anchors.append(anchor_at(some, far, 2.0))
    mean = jax.tree.map(lambda *leaves: jnp.stack(leaves).mean(0), *anchors)
    exact = anchor_at(posterior, far)
    np.testing.assert_allclose(mean.gradient, exact.gradient, rtol=1e-12)
    np.testing.assert_allclose(mean.potential, exact.potential, rtol=1e-12)
    batch = estimator.fetch(posterior, estimator.plan(jax.random.key(0), jnp.asarray(5), 6), x)
    found = estimator.begin(posterior, estimator.init(posterior, far), batch, far, jnp.asarray(5))
    assert sum(np.allclose(found.gradient, anchor.gradient, rtol=1e-12) for anchor in anchors) == 1


def test_anchors_take_other_rows_at_other_renewals_and_in_other_chains():
    posterior, x = targets()["array"]
    estimator = ls.SVRG(2, 5, anchor=3)

    def gradient(chain, step):
        batch = estimator.fetch(posterior, estimator.plan(jax.random.key(chain), jnp.asarray(step), 6), x)
        anchor = estimator.begin(posterior, estimator.init(posterior, x), batch, x, jnp.asarray(step))
        return tuple(anchor.gradient.tolist())

    assert len({gradient(chain, step) for chain in range(4) for step in range(0, 40, 5)}) > 12  # of 20 that there are


# --- negative controls -----------------------------------------------------------------------------------------------


class NoFullGradient(ls.SVRG):
    """The anchor's full gradient forgotten."""

    def seen_from(self, target, anchor, batch, position):
        forgotten = Anchor(anchor.position, jax.tree.map(jnp.zeros_like, anchor.gradient), anchor.potential)
        return super().seen_from(target, forgotten, batch, position)


class NoWeight(ls.SAGA):
    """N/B missing."""

    def estimate(self, target, state, batch, position):
        g, after = super().estimate(target, state, batch, position)
        full = jax.grad(target.prior_potential)(position) - state.total
        return full + (g - full) * len(batch[0]) / target.num_examples, after


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize(("wrong", "state"), [(NoFullGradient(2, 5), anchored_state), (NoWeight(2), table_state)])
def test_the_enumeration_fails_on_a_wrong_estimator(wrong, state):
    target, x = targets()["array"]
    with pytest.raises(AssertionError):
        check_unbiased(wrong, state(wrong, target, x), target, x, SCHEMES["iid"])


# --- T6: whole runs against NumPy -------------------------------------------------------------------------------------


def grad_log_likelihood(x, X, y, rows):
    """∇log p(dᵢ|x) of those rows."""
    return (y[rows] - X[rows] @ x)[:, None] * X[rows]


def rows_of_run(estimator, steps, seed=0, chain=0):
    """The rows that the loop plans for one chain."""
    key = jax.random.split(jax.random.fold_in(jax.random.key(seed), chain), 4)[3]
    return [np.asarray(estimator.rows.plan(key, jnp.asarray(k), 6)) for k in range(steps)]


def numpy_svrg(X, y, x, batches, h, every, recursive):
    """Zou, Xu and Gu's epochs, with the prior outside: SVRG, or the recursive form, at temperature 0."""
    path = []
    for k, rows in enumerate(batches):
        if k % every == 0:
            anchor, v = x.copy(), -grad_log_likelihood(x, X, y, np.arange(6)).sum(0)
        change = grad_log_likelihood(x, X, y, rows) - grad_log_likelihood(anchor, X, y, rows)
        data = v - 6 / len(rows) * change.sum(0)
        if recursive:
            anchor, v = x.copy(), data
        x = x - h * (x + data)
        path.append(x)
    return np.stack(path)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("recursive", [False, True])
def test_svrg_and_its_recursive_form_are_their_transcriptions_over_a_run(recursive):
    posterior, X, y = linear_regression()
    x, estimator = np.linspace(-1, 1, D), ls.SVRG(2, 4, recursive=recursive)
    run = ls.sample(ls.sgld(0.02, temperature=0.0), posterior, x, num_draws=11, gradient=estimator)
    expected = numpy_svrg(X, y, x, rows_of_run(estimator, 11), 0.02, 4, recursive)
    np.testing.assert_allclose(run.draws[0], expected, rtol=1e-10)
    other = numpy_svrg(X, y, x, rows_of_run(estimator, 11), 0.02, 4, not recursive)
    assert not np.allclose(run.draws[0], other, rtol=1e-6)


def numpy_saga(X, y, x, batches, h):
    """Algorithm 1 of Dubey et al. (2016) at temperature 0, the table written row by row."""
    table, path = grad_log_likelihood(x, X, y, np.arange(6)), []
    for rows in batches:
        new = grad_log_likelihood(x, X, y, rows)
        data = 6 / len(rows) * (new - table[rows]).sum(0) + table.sum(0)
        for row, gradient in zip(rows, new, strict=True):
            table[row] = gradient
        x = x - h * (x - data)
        path.append(x)
    return np.stack(path), table


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("scheme", ["iid", "epochs"])
@pytest.mark.parametrize("form", ["array", "glm"])
def test_saga_and_its_table_are_algorithm_1_of_dubey_et_al_over_a_run(form, scheme):
    (posterior, _), (_, X, y) = targets()[form], linear_regression()
    x, estimator = np.linspace(-1, 1, D), ls.SAGA(ls.Minibatch(4, scheme))
    run = ls.sample(ls.sgld(0.02, temperature=0.0), posterior, x, num_draws=25, gradient=estimator)
    batches = rows_of_run(estimator, 25)
    assert any(len(set(rows.tolist())) < 4 for rows in batches) == (scheme == "iid")  # a row twice in a batch
    expected, table = numpy_saga(X, y, x, batches, 0.02)
    np.testing.assert_allclose(run.draws[0], expected, rtol=1e-9)
    held = np.asarray(run.state.estimator.scores[0])
    np.testing.assert_allclose(held if form == "array" else held[:, None] * X, table, rtol=1e-9)
    np.testing.assert_allclose(run.state.estimator.total[0], table.sum(0), rtol=1e-9)


@pytest.mark.parametrize("form", ["array", "glm"])
def test_the_sum_is_that_of_the_table_after_many_steps_in_float32(form):
    """Changes of 1e6 come and go in a sum that stays small: kept by changes alone its rounding would pile up."""
    _, X, y = linear_regression()
    X, y = X.astype(np.float32), y.astype(np.float32)
    glm = ls.GLM(lambda z, y: -0.5 * (y - z) ** 2, lambda x: 0 * jnp.sum(x), (X, y))
    target = glm if form == "glm" else ls.Posterior(lambda x, b: glm.log_likelihood(x, b), glm.log_prior, (X, y))
    estimator = ls.SAGA(2)

    def step(state, k):
        x = jnp.where(k % 100 < 50, 1e6, 1.0) * jax.random.normal(jax.random.fold_in(jax.random.key(1), k), (D,))
        batch = estimator.fetch(target, estimator.plan(jax.random.key(0), k, 6), x)
        return estimator.estimate(target, state, batch, x)[1], None

    state = jax.jit(lambda s: jax.lax.scan(step, s, jnp.arange(4_000))[0])(estimator.init(target, jnp.zeros(D)))
    scores = np.asarray(state.scores, float)
    gradients = scores[:, None] * X if form == "glm" else scores
    np.testing.assert_allclose(state.total, gradients.sum(0), atol=1e-5 * np.abs(gradients).max())


def test_rows_that_come_again_in_a_batch_are_told_from_the_first():
    rows = jnp.asarray([3, 1, 3, 3, 0, 1])
    assert first_of_each(rows).tolist() == [True, True, False, False, True, False]
    assert first_of_each(jnp.asarray([2])).tolist() == [True]


@pytest.mark.usefixtures("x64")
def test_the_table_check_fails_when_a_row_counts_twice_in_the_sum(monkeypatch):
    posterior, *_ = linear_regression()
    monkeypatch.setattr("lsmcmc.saga.first_of_each", lambda rows: jnp.ones(rows.shape, bool))
    estimator, x = ls.SAGA(4), jnp.linspace(-1.0, 1.0, D)
    state = estimator.init(posterior, elsewhere(x))
    batch = estimator.fetch(posterior, jnp.asarray([1, 1, 2, 0]), x)
    after = estimator.estimate(posterior, state, batch, x)[1]
    assert not np.allclose(after.total, after.scores.sum(0))
    monkeypatch.undo()
    after = estimator.estimate(posterior, state, batch, x)[1]
    np.testing.assert_allclose(after.total, after.scores.sum(0), rtol=1e-12)


@pytest.mark.usefixtures("x64")
def test_the_error_of_the_recursive_form_is_a_martingale_over_every_sequence_of_batches():
    """Along a fixed path, the mean over all pairs of batches after a renewal is the full gradient at each step."""
    posterior, *_ = linear_regression()
    estimator, path = ls.SVRG(2, 5, recursive=True), [jnp.linspace(-1.0, 1.0, D) + 0.1 * k for k in range(3)]
    batches = jnp.asarray(SCHEMES["iid"])
    start = anchor_at(posterior, path[0])

    def estimates(first, second):
        _, state = estimator.estimate(posterior, start, estimator.fetch(posterior, first, path[1]), path[1])
        return estimator.estimate(posterior, state, estimator.fetch(posterior, second, path[2]), path[2])[0]

    found = jax.vmap(jax.vmap(estimates, (None, 0)), (0, None))(batches, batches).mean((0, 1))
    np.testing.assert_allclose(found, full_gradient(posterior, path[2]), rtol=1e-11)


# --- T3: laws at rest -----------------------------------------------------------------------------------------------


def moments_at_rest(maps, noise):
    """Mean and covariance of x' = M x + c + N ε, (M, c) drawn from `maps` at every step."""
    Ms, cs = maps
    mean = np.linalg.solve(np.eye(D) - Ms.mean(0), cs.mean(0))
    lift = np.mean([np.kron(M, M) for M in Ms], axis=0)
    source = np.mean([np.outer(s, s) for s in Ms @ mean + cs - mean], axis=0) + noise
    return mean, np.linalg.solve(np.eye(D * D) - lift, source.reshape(-1)).reshape(D, D)


def affine_maps(estimator, state, posterior, h):
    """M and c of x ↦ x − h ∇Û(x), read off the implementation for every batch."""

    def move(x, rows):
        return x - h * ls.Oracle(posterior, estimator, state, estimator.fetch(posterior, rows, x)).gradient(x)

    batches, zero = jnp.asarray(SCHEMES["iid"]), jnp.zeros(D)
    cs = np.asarray(jax.vmap(move, (None, 0))(zero, batches))
    columns = jax.vmap(jax.vmap(move, (0, None)), (None, 0))(jnp.eye(D), batches)
    return np.swapaxes(np.asarray(columns) - cs[:, None], 1, 2), cs


@pytest.mark.usefixtures("x64")
def test_the_law_at_rest_of_sgld_cv_is_the_exact_one_and_closer_to_lmc_than_sgld():
    posterior, X, y = linear_regression()
    h, mode = 0.03, np.linalg.solve(np.eye(D) + X.T @ X, X.T @ y)
    estimator = ls.ControlVariate(2, center=mode)
    state = estimator.init(posterior, jnp.zeros(D))
    found = moments_at_rest(affine_maps(estimator, state, posterior, h), 2 * h * np.eye(D))
    batches = [list(batch) for batch in SCHEMES["iid"]]
    # at the mode ∇U = 0, so ∇Û(x) = (I + 3 X_bᵀX_b)(x − mode)
    Ms = np.stack([np.eye(D) - h * (np.eye(D) + 3 * X[b].T @ X[b]) for b in batches])
    exact = moments_at_rest((Ms, mode - Ms @ mode), 2 * h * np.eye(D))
    np.testing.assert_allclose(found[0], exact[0], rtol=1e-9)
    np.testing.assert_allclose(found[1], exact[1], rtol=1e-8, atol=1e-12)
    np.testing.assert_allclose(found[0], mode, rtol=1e-9)
    K = np.eye(D) + X.T @ X
    lmc = np.linalg.inv(K - h * K @ K / 2)
    plain = moments_at_rest(affine_maps(ls.Minibatch(2), (), posterior, h), 2 * h * np.eye(D))
    assert np.trace(plain[1] - lmc) > np.trace(found[1] - lmc) > 0  # N = 6: the posterior is not narrow


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("recursive", [False, True])
def test_an_anchor_renewed_at_every_step_is_langevin_monte_carlo(recursive):
    posterior, *_ = logistic_regression()
    options = {"num_draws": 20, "chains": 2}
    svrg = ls.sample(ls.sgld(0.02), posterior, np.zeros(D), gradient=ls.SVRG(3, 1, recursive=recursive), **options)
    lmc = ls.sample(ls.lmc(0.02), posterior, np.zeros(D), **options)
    np.testing.assert_allclose(svrg.draws, lmc.draws, rtol=1e-10)


# --- cost -------------------------------------------------------------------------------------------------------------


def counting_posterior():
    """A posterior that counts the rows whose likelihood is really computed, and how often it is traced."""
    _, X, y = logistic_regression()
    counts = {"rows": [], "traces": 0}

    def add(num):
        counts["rows"].append(int(num))  # += would lose some, as callbacks come from several threads

    def log_likelihood(x, batch):
        rows, labels = batch
        counts["traces"] += 1
        jax.debug.callback(add, jnp.asarray(labels.shape[0]) + 0 * jnp.isnan(x[0]).astype(int))
        return jax.nn.log_sigmoid(labels * (rows @ x))

    data = X.astype(np.float32), y.astype(np.float32)
    return ls.Posterior(log_likelihood, lambda x: -0.5 * jnp.sum(x**2), data), counts


def rows_read(estimator, steps, chains):
    posterior, counts = counting_posterior()
    ls.sample(ls.sgld(1e-2), posterior, np.zeros(D, np.float32), num_draws=steps, chains=chains, gradient=estimator)
    jax.effects_barrier()
    return sum(counts["rows"])


@pytest.mark.parametrize("recursive", [False, True])
def test_chains_pay_a_full_gradient_when_the_anchor_is_renewed_and_at_no_other_step(recursive):
    """40 rows, 3 chains, 21 steps of two gradients on 4 rows; the anchor is renewed at steps 0, 10 and 20."""
    assert rows_read(ls.SVRG(4, 10, recursive=recursive), 21, 3) == 3 * (21 * 2 * 4 + 3 * 40)


def test_chains_pay_for_the_rows_of_a_smaller_anchor():
    assert rows_read(ls.SVRG(4, 10, anchor=15), 21, 3) == 3 * (21 * 2 * 4 + 3 * 15)


def test_a_minibatch_is_read_once_a_step():
    assert rows_read(ls.Minibatch(4), 21, 3) == 3 * 21 * 4


def test_control_variates_read_all_data_before_the_first_step_alone():
    center = np.zeros(D, np.float32)
    assert rows_read(ls.ControlVariate(4, center=center), 21, 3) == 40 + 3 * 21 * 2 * 4


class EachChainItsOwn(ls.SVRG):
    """The trap: a condition that is not the same for all chains becomes a select, which computes both sides."""

    def begin(self, target, state, batch, position, step):
        own = step + jnp.isnan(position[0]).astype(step.dtype)
        return super().begin(target, state, batch, position, own)


def test_the_count_sees_chains_that_pay_a_full_gradient_at_every_step():
    assert rows_read(EachChainItsOwn(4, 10), 21, 3) == 3 * 21 * (2 * 4 + 40)


def test_another_number_of_steps_between_anchors_is_no_other_trace():
    posterior, counts = counting_posterior()
    traces = []
    for every in (5, 7):
        ls.sample(ls.sgld(1e-2), posterior, np.zeros(D, np.float32), num_draws=9, gradient=ls.SVRG(4, every))
        traces.append(counts["traces"])
    assert traces[0] == traces[1]


@pytest.mark.parametrize("glm", [False, True])
def test_a_step_of_saga_does_not_copy_its_table(glm):
    """Temporary memory of a compiled step in a loop, against the table's."""
    num, dim = 20_000, 16
    X, y = np.ones((num, dim), np.float32), np.ones(num, np.float32)
    model = ls.models.logistic(dim)
    fn = model.log_likelihood if glm else lambda x, batch: jax.nn.log_sigmoid(batch[1] * (batch[0] @ x))
    posterior, estimator = ls.Posterior(fn, model.log_prior, (X, y), chunk_size=100), ls.SAGA(4)
    position = jnp.zeros(dim)
    state = estimator.init(posterior, position)

    def loop(posterior, state):
        def one(k, inner):
            x, state = inner
            batch = estimator.fetch(posterior, estimator.plan(jax.random.key(0), k, num), x)
            oracle, state = ls.Oracle.of_step(posterior, estimator, state, batch, x, k)
            return x - 1e-4 * oracle.gradient(x), state

        return jax.lax.fori_loop(0, 10, one, (position, state))

    memory = jax.jit(loop, donate_argnums=1).lower(posterior, state).compile().memory_analysis()
    table = state.scores.size * 4
    assert table == num * (1 if glm else dim) * 4
    assert memory.temp_size_in_bytes < 0.5 * table


# --- hygiene ----------------------------------------------------------------------------------------------------------


def test_the_table_of_a_glm_has_a_number_per_row_and_the_draws_are_those_of_the_table_of_gradients():
    _, X, y = logistic_regression()
    data = X.astype(np.float32), y.astype(np.float32)
    model = ls.models.logistic(D)
    plain = ls.Posterior(lambda x, batch: model.log_likelihood(x, batch), model.log_prior, data)
    short = ls.Posterior(model.log_likelihood, model.log_prior, data)
    runs = [
        ls.sample(ls.sgld(1e-2), target, np.zeros(D, np.float32), num_draws=30, chains=2, gradient=ls.SAGA(4))
        for target in (plain, short)
    ]
    assert [run.state.estimator.scores.shape for run in runs] == [(2, 40, D), (2, 40)]
    np.testing.assert_allclose(runs[0].draws, runs[1].draws, rtol=1e-4, atol=1e-5)


def test_a_glm_of_several_predictors_keeps_one_number_for_each():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(30, 4)).astype(np.float32), rng.integers(0, 3, 30)

    def log_likelihood(z, y):
        return jnp.take_along_axis(jax.nn.log_softmax(z), y[:, None], 1)[:, 0]

    glm = ls.GLM(log_likelihood, lambda x: -0.5 * jnp.sum(x**2), (X, y))
    x = jnp.full((4, 3), 0.1)
    assert ls.SAGA(5).init(glm, x).scores.shape == (30, 3)
    run = ls.sample(ls.sgld(1e-2), glm, x, num_draws=20, gradient=ls.SAGA(5))
    assert np.isfinite(run.draws).all()


ALL = {
    "svrg": lambda: ls.SVRG(4, 5),
    "subsampled svrg": lambda: ls.SVRG(ls.Minibatch(4, "epochs"), 5, anchor=9),
    "srvr": lambda: ls.SVRG(ls.Minibatch(4, "subset"), 5, recursive=True),
    "saga": lambda: ls.SAGA(4),
    "control variate": lambda: ls.ControlVariate(ls.Minibatch(4, shared=True)),
}


@pytest.mark.parametrize("name", ALL)
def test_leaves_keep_their_dtypes_with_one_in_half_precision_and_one_held(name):
    _, X, y = logistic_regression()

    def log_likelihood(x, batch):
        rows, labels = batch
        half = (rows[:, :4].astype(jnp.bfloat16) @ x["half"]).astype(jnp.float32)
        return jax.nn.log_sigmoid(labels * (half + rows[:, 4:5] @ x["b"] + rows[:, 5:] @ x["held"]))

    def log_prior(x):
        return -0.5 * sum(jnp.sum(leaf.astype(jnp.float32) ** 2) for leaf in x.values())

    posterior = ls.Posterior(log_likelihood, log_prior, (X.astype(np.float32), y.astype(np.float32)))
    start = {"half": jnp.zeros(4, jnp.bfloat16), "b": jnp.zeros(1), "held": jnp.ones(1)}
    mask = {"half": True, "b": True, "held": False}
    options = {"num_draws": 200, "chains": 2, "gradient": ALL[name](), "trainable": mask}
    run = ls.sample(ls.sgld(1e-2), posterior, start, **options)
    assert run.draws["half"].dtype == jnp.bfloat16
    assert run.draws["b"].dtype == np.float32
    assert run.draws["held"] is None
    assert np.isfinite(run.draws["half"].astype(float)).all()
    assert run.draws["b"].std() > 0.05


@pytest.mark.parametrize("name", ALL)
def test_the_draws_of_many_chains_are_finite_and_their_batches_their_own(name):
    posterior, *_ = logistic_regression()
    cold = ls.sgld(1e-2, temperature=0.0)
    run = ls.sample(cold, posterior, np.zeros(D), num_draws=8, chains=40, gradient=ALL[name]())
    ends = {tuple(end) for end in run.draws[:, -1].tolist()}
    assert len(ends) == (1 if name == "control variate" else 40)  # which shares its batches here


def test_rmsprop_is_shown_the_estimate_and_learns_that_it_has_less_noise():
    posterior, *_ = logistic_regression()
    options = {"num_draws": 400, "burn_in": 200, "keep": "last"}
    V = [
        ls.sample(ls.psgld(1e-4), posterior, np.zeros(D), gradient=gradient, **options).state.sampler.preconditioner
        for gradient in (ls.Minibatch(2), ls.ControlVariate(2))
    ]
    assert all(np.all(a > 3 * b) for a, b in zip(jax.tree.leaves(V[0]), jax.tree.leaves(V[1]), strict=True))


@pytest.mark.parametrize("name", ALL)
def test_by_hand_the_state_goes_from_one_oracle_to_the_next(name):
    posterior, *_ = logistic_regression()
    estimator, x, state = ALL[name](), jnp.zeros(D), None
    run = ls.sample(
        ls.sgld(0.02, temperature=0.0),
        posterior,
        x,
        num_draws=7,
        gradient=ls.ControlVariate(estimator.rows, x) if name == "control variate" else estimator,
    )
    key = jax.random.split(jax.random.fold_in(jax.random.key(0), 0), 4)[3]
    for k in range(7):
        oracle = estimator.oracle(posterior, key, x, k, state)
        state = oracle.next_state(x)
        x = x - 0.02 * oracle.gradient(x)
    np.testing.assert_allclose(run.draws[0, -1], x, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", ALL)
def test_a_run_on_disk_goes_on_to_the_last_bit_with_what_the_estimator_remembers(name, tmp_path):
    posterior, *_ = logistic_regression()
    options = {"gradient": ALL[name](), "chains": 2}
    whole = ls.sample(ls.sgld(1e-2), posterior, np.zeros(D), num_draws=23, **options)
    ls.sample(ls.sgld(1e-2), posterior, np.zeros(D), num_draws=12, path=tmp_path / "run", **options)
    longer = ls.sample(ls.sgld(1e-2), posterior, np.zeros(D), num_draws=23, path=tmp_path / "run", **options)
    np.testing.assert_array_equal(longer.draws, whole.draws)


# --- refusals ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ALL)
def test_a_target_without_data_is_refused(name):
    target = ls.Target(lambda x: -0.5 * jnp.sum(x**2), noise_scale=1.0)
    with pytest.raises(TypeError, match="a Target has no data to draw minibatches from"):
        ls.sample(ls.sgld(0.1), target, np.zeros(2), num_draws=3, gradient=ALL[name]())


@pytest.mark.parametrize("sampler", [ls.lmc(0.1)])
def test_a_sampler_that_reads_all_data_refuses_them(sampler):
    posterior, *_ = logistic_regression()
    with pytest.raises(ValueError, match="this sampler reads all data at every step"):
        ls.sample(sampler, posterior, np.zeros(D), num_draws=3, gradient=ls.SVRG(4))


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: ls.SVRG(0), ValueError, "batch_size must be at least 1, got 0"),
        (lambda: ls.SVRG(4, 0), ValueError, "every must be at least 1, got 0"),
        (lambda: ls.SVRG(4, 5, anchor=0), ValueError, "anchor must be at least 1, got 0"),
        (lambda: ls.SAGA(ls.FullBatch()), TypeError, "batch_size must be a whole number or an ls.Minibatch, got Full"),
        (lambda: ls.SAGA(2.5), TypeError, "batch_size must be a whole number, got 2.5"),
        (lambda: ls.ControlVariate(2, center=[np.nan]), ValueError, "NaN or infinite entries"),
    ],
)
def test_what_an_estimator_cannot_be_made_of_is_refused(make, error, message):
    with pytest.raises(error, match=message):
        make()


@pytest.mark.parametrize(
    ("gradient", "message"),
    [
        (
            ls.SVRG(4, anchor=41),
            "anchor is 41 but the data have 40 rows. Leave anchor out for",
        ),
        (ls.SAGA(41), "batch_size is 41 but the data have 40 rows"),
        (ls.ControlVariate(4, center=np.zeros(3)), r"center must look like a position, float32\[6\], got float32\[3\]"),
    ],
)
def test_an_estimator_that_does_not_fit_the_data_or_the_position_is_refused(gradient, message):
    posterior, *_ = logistic_regression()
    with pytest.raises(ValueError, match=message):
        ls.sample(ls.sgld(0.1), posterior, np.zeros(D), num_draws=3, gradient=gradient)


def test_a_table_that_does_not_fit_in_memory_is_refused_and_the_short_one_is_not(monkeypatch):
    _, X, y = logistic_regression()
    model = ls.models.logistic(D)
    monkeypatch.setattr(_memory, "available", lambda: 4_000)
    plain = ls.Posterior(lambda x, batch: model.log_likelihood(x, batch), model.log_prior, (X, y))
    message = r"SAGA's table of 40 × 6 numbers for each of 3 chains needs 0.0 GB with its copy"
    with pytest.raises(ValueError, match=message):
        ls.sample(ls.sgld(0.1), plain, np.zeros(D), num_draws=3, chains=3, gradient=ls.SAGA(4))
    short = ls.Posterior(model.log_likelihood, model.log_prior, (X, y))
    ls.sample(ls.sgld(0.01), short, np.zeros(D), num_draws=3, chains=3, gradient=ls.SAGA(4))


@pytest.mark.parametrize("name", ALL)
def test_streamed_data_are_refused(name, tmp_path):
    np.save(tmp_path / "rows.npy", np.ones((50, 2), np.float32))
    stream = ls.data.stream(tmp_path / "rows.npy", num_examples=50)
    posterior = ls.Posterior(lambda x, rows: rows @ x, lambda x: -0.5 * jnp.sum(x**2), stream)
    with pytest.raises(ValueError, match=r"the data are streamed.* and ls\.\w+ needs all of them in compiled code"):
        ls.sample(ls.sgld(0.1), posterior, np.zeros(2), num_draws=3, gradient=ALL[name]())


def test_a_glm_without_a_pair_of_data_is_refused():
    with pytest.raises(TypeError, match=r"ls.GLM needs data=\(X, y\), X with one row per example, got ndarray"):
        ls.GLM(lambda z, y: z, lambda x: x, np.zeros((3, 2)))


def test_a_glm_that_sums_over_its_rows_is_told_so_by_every_estimator():
    _, X, y = logistic_regression()
    glm = ls.GLM(
        lambda z, y: jnp.sum(z * y), lambda x: -0.5 * jnp.sum(x**2), (X.astype(np.float32), y.astype(np.float32))
    )
    for gradient in (ls.SAGA(4), ls.SVRG(4), ls.ControlVariate(4), ls.Minibatch(4)):
        with pytest.raises(ValueError, match="log_likelihood must return one value per example"):
            ls.sample(ls.sgld(0.1), glm, np.zeros(D, np.float32), num_draws=3, gradient=gradient)


# --- the mode ---------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("chunk_size", [4, 2048])
def test_the_mode_of_a_linear_regression_is_that_of_the_normal_equations(chunk_size):
    whole, X, y = linear_regression(50)
    posterior = ls.Posterior(whole.log_likelihood, whole.log_prior, (X, y), chunk_size=chunk_size)
    K = np.eye(D) + X.T @ X
    found = np.asarray(ls.find_mode(posterior, np.full(D, 3.0)))
    away = found - np.linalg.solve(K, X.T @ y)
    assert away @ K @ away < 1e-4  # in standard deviations of the posterior, squared
    np.testing.assert_array_equal(found, ls.find_mode(posterior, np.full(D, 3.0)))


def test_a_log_density_without_a_greatest_value_is_told_from_one():
    with pytest.raises(ValueError, match=r"U is -inf after .* steps of the search for the mode"):
        ls.find_mode(ls.Target(lambda x: jnp.sum(jnp.exp(x))), jnp.ones(2))
    with pytest.raises(ValueError, match="U is nan after 0 steps"):
        ls.find_mode(ls.Target(lambda x: jnp.sum(jnp.log(x))), -jnp.ones(2))


def test_a_search_that_ends_before_its_time_warns():
    def banana(x):
        return -((1 - x[0]) ** 2) - 100 * (x[1] - x[0] ** 2) ** 2

    with pytest.warns(UserWarning, match=r"after most_steps=5 U still falls.*find_mode\(…, most_steps=50\)"):
        ls.find_mode(ls.Target(banana), jnp.asarray([-1.2, 1.0]), most_steps=5)
    np.testing.assert_allclose(ls.find_mode(ls.Target(banana), jnp.asarray([-1.2, 1.0])), 1.0, atol=0.01)


def test_a_run_goes_on_from_its_state_without_looking_for_the_mode_again(monkeypatch):
    posterior, *_ = logistic_regression()
    options = {"gradient": ls.ControlVariate(4)}
    whole = ls.sample(ls.sgld(1e-2), posterior, np.zeros(D), num_draws=15, **options)
    first = ls.sample(ls.sgld(1e-2), posterior, np.zeros(D), num_draws=6, **options)
    monkeypatch.setattr("lsmcmc.anchored.find_mode", None)
    rest = ls.sample(ls.sgld(1e-2), posterior, state=first.state, num_draws=9, **options)
    np.testing.assert_array_equal(np.concatenate([first.draws, rest.draws], axis=1), whole.draws)
