"""What a run gives back: summaries against NumPy, predictions, ArviZ, progress."""

import io
import subprocess
import sys

import jax.numpy as jnp
import numpy as np
import optax
import pytest

import lsmcmc as ls
from lsmcmc import progress

TARGET = ls.Target(lambda x: -0.5 * sum(jnp.sum(leaf**2) for leaf in x.values()))
START = {"w": jnp.zeros((2, 2)), "b": jnp.array(0.0)}


@pytest.fixture(scope="module")
def run():
    sampler = ls.sgld(optax.exponential_decay(0.2, 100, 0.5))
    return ls.sample(sampler, TARGET, START, num_draws=300, chains=3, burn_in=20, thin=2, seed=1)


def test_a_summary_has_a_row_for_every_component(run):
    table = run.summary()
    assert list(table.index) == ["b", "w[0, 0]", "w[0, 1]", "w[1, 0]", "w[1, 1]"]
    assert list(table.columns) == ["mean", "sd", "5%", "50%", "95%", "ess_bulk", "ess_tail", "r_hat"]
    draws = run.draws["w"][:, :, 0, 1].astype(np.float64)
    row = table.loc["w[0, 1]"]
    np.testing.assert_allclose(
        row[["mean", "sd", "5%", "95%"]], [draws.mean(), draws.std(), *np.quantile(draws, [0.05, 0.95])], rtol=1e-6
    )


def test_a_weighted_summary_weighs_draws_by_their_step_size(run):
    """φ̂ = Σ hₜ φ(xₜ) / Σ hₜ."""
    h = run.step_sizes
    assert h[0] / h[-1] > 2
    draws = run.draws["b"].astype(np.float64)
    mean = (h * draws).sum() / (3 * h.sum())
    variance = (h * (draws - mean) ** 2).sum() / (3 * h.sum())
    row = run.summary(weighted=True).loc["b"]
    np.testing.assert_allclose(row[["mean", "sd"]], [mean, np.sqrt(variance)], rtol=1e-6)
    np.testing.assert_allclose(run.mean(weighted=True)["b"], mean, rtol=1e-6)
    below = h[np.newaxis] * (draws <= row["50%"])
    assert abs(below.sum() / (3 * h.sum()) - 0.5) < 0.01


def test_ess_and_rhat_are_those_of_arviz(run):
    from lsmcmc.diagnostics._arrays import load_arviz

    arviz = load_arviz()
    b = run.draws["b"].astype(np.float64)
    table = run.summary()
    np.testing.assert_allclose(table.loc["b", "ess_bulk"], np.asarray(arviz.ess(b)), rtol=1e-6)
    np.testing.assert_allclose(table.loc["b", "r_hat"], np.asarray(arviz.rhat(b)), rtol=1e-6)


def test_chains_that_disagree_have_a_large_rhat():
    draws = np.random.default_rng(0).normal(size=(4, 200))
    assert ls.diagnostics.rhat(draws) < 1.02
    assert ls.diagnostics.rhat(draws + 3 * np.arange(4)[:, None]) > 1.5


def test_predictions_are_averages_over_draws(run):
    inputs = jnp.array([1.0, 2.0])
    predicted = run.predict(lambda x, z: {"line": x["w"] @ z, "positive": x["b"] > 0}, inputs)
    np.testing.assert_allclose(predicted["line"], (run.draws["w"] @ np.array([1.0, 2.0])).mean((0, 1)), atol=1e-5)
    np.testing.assert_allclose(predicted["positive"], (run.draws["b"] > 0).mean(), rtol=1e-5)
    weights = run.step_sizes / run.step_sizes.sum() / 3
    np.testing.assert_allclose(
        run.predict(lambda x: x["b"], weighted=True), (weights * run.draws["b"]).sum(), rtol=1e-4, atol=1e-6
    )


def test_arviz_data_hold_the_draws_by_name(run):
    posterior = run.to_arviz()["posterior"]
    assert dict(posterior.sizes)["chain"] == 3
    assert dict(posterior.sizes)["draw"] == 300
    np.testing.assert_array_equal(posterior["w"].values, run.draws["w"])


def test_arviz_data_hold_the_pointwise_log_likelihood_on_request():
    data = np.linspace(-1, 1, 7).astype(np.float32)
    posterior = ls.Posterior(lambda x, batch: -0.5 * (batch - x) ** 2, lambda x: -0.5 * x**2, data, chunk_size=3)
    run = ls.sample(ls.sgld(0.05), posterior, jnp.array(0.0), num_draws=40, chains=2, batch_size=3)
    values = run.to_arviz(log_likelihood=True)["log_likelihood"]["y"].values
    np.testing.assert_allclose(values, -0.5 * (data - run.draws[..., None]) ** 2, rtol=1e-5)
    with pytest.raises(ValueError, match=r"log_likelihood=True needs an ls\.Posterior"):
        ls.sample(ls.sgld(0.1), TARGET, START, num_draws=5).to_arviz(log_likelihood=True)


def test_a_run_of_moments_alone_has_a_summary_and_says_what_it_lacks():
    options = {"num_draws": 500, "chains": 4, "burn_in": 20}
    stored = ls.sample(ls.sgld(0.2), TARGET, START, **options)
    run = ls.sample(ls.sgld(0.2), TARGET, START, keep="moments", **options)
    table = run.summary()
    assert list(table.columns) == ["mean", "sd", "r_hat"]
    np.testing.assert_allclose(table["mean"], stored.summary()["mean"], atol=1e-5)
    np.testing.assert_allclose(table["sd"], stored.summary()["sd"], rtol=1e-4)
    means, variances = stored.draws["b"].mean(1), stored.draws["b"].var(1)
    classic = np.sqrt(499 / 500 + means.var(ddof=1) / variances.mean())
    np.testing.assert_allclose(table.loc["b", "r_hat"], classic, rtol=1e-4)
    for call in (lambda: run.predict(lambda x: x), run.to_arviz):
        with pytest.raises(ValueError, match="this run kept moments alone"):
            call()
    with pytest.raises(
        ValueError, match=r"kept moments with weighted=False; sample with keep=ls\.Moments\(weighted=True\)"
    ):
        run.summary(weighted=True)


def test_times_and_steps_are_counted_apart(run):
    assert run.num_steps == 620
    assert run.seconds > 0
    assert run.compile_seconds > 0
    assert "3 chains, 300 draws each, 620 steps" in repr(run)


def test_statistics_of_too_few_draws_are_not_a_number():
    table = ls.sample(ls.sgld(0.2), TARGET, START, num_draws=2).summary()
    assert table["r_hat"].isna().all()
    assert table["mean"].notna().all()


def test_a_summary_says_nothing_of_what_is_not_defined():
    """One chain, frozen chains, no draws, empty leaves, no weights: NaN, and no warning."""
    one = ls.sample(ls.sgld(0.2), TARGET, START, num_draws=10).summary()
    assert one["r_hat"].isna().all()
    assert one["ess_bulk"].notna().all()
    frozen = ls.sample(ls.sgld(0.0), TARGET, START, num_draws=10, chains=2)
    assert (frozen.summary()["sd"] == 0).all()
    assert frozen.summary(weighted=True)["mean"].isna().all()
    many = ls.sample(ls.sgld(0.2), TARGET, START, num_draws=10, chains=50).summary()
    assert many["r_hat"].notna().all()
    empty = ls.sample(
        ls.sgld(0.2), ls.Target(lambda x: -jnp.sum(x["w"] ** 2)), {"w": jnp.ones(1), "e": jnp.ones(0)}, num_draws=10
    )
    assert list(empty.summary().index) == ["w[0]"]
    wall = ls.Target(lambda x: jnp.sum(jnp.sqrt(x - 1.0)))
    with pytest.raises(ls.DivergenceError) as e:
        ls.sample(ls.sgld(0.1), wall, jnp.zeros(2), num_draws=5)
    assert e.value.run.summary()["mean"].isna().all()
    with pytest.raises(ValueError, match="stopped before its first draw"):
        e.value.run.predict(lambda x: x)


def test_a_bar_is_shown_on_request_and_after_a_second_only(monkeypatch):
    monkeypatch.setattr(progress, "_QUIET_SECONDS", 0.0)
    shown = io.StringIO()
    monkeypatch.setattr(sys, "stderr", shown)
    with progress.Progress(10, show=None) as bar:  # a pipe
        bar.advance(10)
    assert shown.getvalue() == ""
    with progress.Progress(10, show=True) as bar:
        bar.advance(4)
        bar.advance(6)
    assert "sampling" in shown.getvalue()


def test_importing_is_silent_and_loads_no_plots_or_tables():
    code = (
        "import sys, lsmcmc; "
        "heavy = {'arviz', 'matplotlib', 'pandas', 'scipy', 'optax', 'rich', 'pooch'} & set(sys.modules); "
        "assert not heavy, heavy"
    )
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
