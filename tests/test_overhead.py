"""The overhead experiment: what it measures with made-up clocks, and that its smoothing is the paper's."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from registry import circulant

import lsmcmc as ls
from lsmcmc.experiments import Verdict, overhead, result
from lsmcmc.layout import Axes


@pytest.mark.parametrize(
    ("interval", "verdict", "note"),
    [
        ((0.98, 1.05), Verdict.REPRODUCED, "3 µs a step."),
        ((0.98, 1.2), Verdict.NOT_REPRODUCED, "Undecided"),
        ((1.3, 1.4), Verdict.NOT_REPRODUCED, "Above"),
    ],
)
def test_negligible_is_judged_by_the_upper_end_of_the_interval(interval, verdict, note):
    row = {"case": "a", "method": "filter", "microseconds": 3.0}
    row |= {"time_ratio": float(np.mean(interval)), "time_low": interval[0], "time_high": interval[1]}
    claim = overhead._time_claim(row)
    assert claim.verdict == verdict
    assert claim.note.startswith(note)
    assert claim.interval == interval


def test_memory_is_judged_without_an_interval_to_be_wrong_about():
    row = {"case": "a", "method": "Fourier", "memory_ratio": 1.5, "vectors_of_d": 6.0}
    claim = overhead._memory_claim(row)
    assert claim.verdict == Verdict.NOT_REPRODUCED
    assert claim.interval == (1.5, 1.5)
    assert overhead._memory_claim(row | {"memory_ratio": 1.1}).verdict == Verdict.REPRODUCED


def test_the_paired_ratio_is_that_of_steps_that_take_so_long():
    """Clocks with a drift that is common to a round, 10 % more for one of them, and the count in it."""
    calls = []

    def clock(factor):
        def timer(count):
            calls.append(count)
            return factor * count * 1e-4 * (1 + len(calls) / 1e4)

        return timer

    size = overhead.Size(rounds=8, seconds=0.01, dimensions=())
    seconds = overhead._interleaved({"none": clock(1.0), "filter": clock(1.1), "Fourier": clock(2.0)}, size)
    assert {name: len(values) for name, values in seconds.items()} == {"none": 8, "filter": 8, "Fourier": 8}
    case = overhead.Case("a", jnp.zeros(5), None, overhead._quadratic, 1e-3)
    memory = {"none": 100, "filter": 120, "Fourier": 300}
    rows = {name: overhead._row(case, name, seconds, memory) for name in overhead.METHODS}
    assert rows["filter"]["time_low"] < 1.1 < rows["filter"]["time_high"]
    assert rows["Fourier"]["time_ratio"] == pytest.approx(2.0, rel=0.01)
    assert rows["none"]["microseconds"] == pytest.approx(100, rel=0.05)
    assert [rows[name]["memory_ratio"] for name in rows] == [1.0, 1.2, 3.0]
    assert rows["filter"]["vectors_of_d"] == 6.0


@pytest.mark.parametrize("a_step", [1e-7, 1e-4, 1.0])
def test_a_timing_is_long_enough_and_has_a_step_at_least(a_step):
    count = overhead._count(lambda count: count * a_step, 0.01)
    assert 1 <= count <= 30_000
    assert count == 30_000 or 0.01 <= count * a_step <= max(0.1, a_step)


@pytest.mark.parametrize("method", ["filter", "Fourier"])
def test_both_forms_of_smoothing_are_a_root_of_the_same_matrix(method):
    d = 7
    B = overhead.METHODS[method](None)
    columns = jnp.eye(d)
    matrix = np.stack([B.apply((), B.apply_transpose((), column)) for column in columns])
    np.testing.assert_allclose(matrix, np.linalg.inv(circulant(d, overhead.SIGMA)), atol=1e-6)
    assert overhead.METHODS["none"](None).apply((), columns) is columns


def test_the_fourier_form_smooths_in_the_order_of_the_axes():
    v = jax.random.normal(jax.random.key(0), (3, 4))
    turned = overhead.Fourier(Axes((1, 0))).apply((), v)
    np.testing.assert_allclose(turned.T, overhead.Fourier(Axes(None)).apply((), v.T), atol=1e-6)
    assert np.abs(turned - overhead.Fourier(Axes(None)).apply((), v)).max() > 0.01


def test_a_step_is_measured_with_the_position_and_not_hoisted_out_of_the_loop():
    """The compiled loop makes real steps: its position is that of stepping by hand."""
    case = overhead.Case("a", jnp.ones(50), jnp.ones(50), overhead._quadratic, 1e-3)
    sampler = ls.sgld(case.step_size, preconditioner=overhead.METHODS["filter"](None))
    timer, program = overhead._compile(case, sampler)
    state, key = sampler.init(case.position, key=jax.random.key(0)), jax.random.key(0)
    for i in range(3):
        state, _ = sampler.step(state, lambda x: x, key=jax.random.fold_in(key, i))
    np.testing.assert_allclose(program(case.position, case.data, jnp.array(3)), state.position, rtol=1e-5)
    assert timer(3) > 0
    assert overhead._memory(case, program) > 0


def test_the_experiment_has_a_claim_of_time_and_of_memory_for_each_form(monkeypatch, tmp_path):
    monkeypatch.setattr(overhead, "SHORT", overhead.Size(3, 1e-4, (50,)))
    vectors = [overhead.Case("a vector of 50", jnp.zeros(50), jnp.ones(50), overhead._quadratic, 1e-3)]
    monkeypatch.setattr(overhead, "_cases", lambda size, seed: vectors)
    found = overhead.run(quick=True, seed=0)
    assert len(found.claims) == 4
    assert [row["method"] for row in found.tables["steps"]] == ["none", "filter", "Fourier"]
    assert all(claim.interval[0] <= claim.measured <= claim.interval[1] for claim in found.claims)
    result.write(found, tmp_path)
    assert (tmp_path / "overhead/ratios.svg").is_file()


def test_a3a_is_timed_in_the_loop_of_sample():
    model = ls.models.logistic(3)
    X = np.random.default_rng(0).normal(size=(40, 3)).astype(np.float32)
    case = overhead._with_data("a", model, (X, np.ones(40, np.float32)), 5, 1e-3, jax.random.key(0))
    assert case.batch_size == 5
    seconds = overhead._loop_of_sample(case, ls.sgld(1e-3))(20)
    assert 0 < seconds < 10
