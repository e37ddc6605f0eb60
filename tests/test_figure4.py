"""Figure 4: moments and scores of chains against direct computation, stability limits, verdicts that follow."""

import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from registry import logistic_regression

import lsmcmc as ls
from lsmcmc.experiments import Parts, Verdict, blr, blr_chains, blr_nuts, figure4, figure4_claims
from lsmcmc.experiments.blr_chains import SETTINGS, Setting, SoFar
from lsmcmc.experiments.stability import batch_limit, smoothed_rows, weighted_gram

NORMAL = "N(0, I)"


# The chains


def draws(num=6, seeds=2):
    return np.random.default_rng(0).normal(0, 0.3, (seeds, num, blr.DIM)).astype(np.float32)


@pytest.fixture
def so_far(monkeypatch):
    """Six draws of two seeds in blocks of four and two; the first three are the burn-in, every second is predicted."""
    monkeypatch.setattr(blr_chains, "BURN_IN", 3)
    monkeypatch.setattr(blr_chains, "_THIN", 2)
    made = SoFar()
    made.add(draws()[:, :4], 0)
    made.add(draws()[:, 4:], 4)
    return made


def test_moments_and_scores_are_those_of_the_draws_after_the_burn_in(so_far):
    kept = draws()[:, 3:].astype(np.float64)
    np.testing.assert_allclose(so_far.mean, kept.mean(1), rtol=1e-12)
    np.testing.assert_allclose(so_far.sd, kept.std(1), rtol=1e-6)
    for part, (X, y) in enumerate(ls.data.a3a()):
        p = 1 / (1 + np.exp(-kept.mean(1) @ X.T.astype(np.float64)))
        scores = [(ls.diagnostics.log_loss(own, y), ls.diagnostics.accuracy(own, y)) for own in p]
        np.testing.assert_allclose(so_far.scores()[:, part], scores, rtol=1e-9)


def test_the_predictive_is_the_average_of_probabilities_over_the_thinned_draws(so_far):
    X, y = ls.data.a3a().test
    p = np.mean([1 / (1 + np.exp(-draws()[:, i].astype(np.float64) @ X.T)) for i in (3, 4)], axis=0)
    np.testing.assert_allclose(so_far.probabilities(), p, rtol=1e-4)
    np.testing.assert_allclose(so_far.predictive_loss(), [ls.diagnostics.log_loss(own, y) for own in p], rtol=1e-5)
    at_mean = 1 / (1 + np.exp(-so_far.mean @ X.T))
    assert np.abs(so_far.probabilities() - at_mean).max() > 0.02  # the average of probabilities is another number


def test_before_the_end_of_the_burn_in_the_last_position_is_scored():
    made = SoFar()
    made.add(draws(), 0)
    np.testing.assert_array_equal(made.mean, draws()[:, -1])
    np.testing.assert_array_equal(made.predictive_loss(), made.scores()[:, 1, 0])


def test_chains_scored_on_the_way_are_those_of_one_run(monkeypatch):
    """SGLD, eight steps in blocks of at most three, scored at two and eight; the burn-in is two."""
    for name, value in {"BURN_IN": 2, "_BLOCK": 3, "_THIN": 1}.items():
        monkeypatch.setattr(blr_chains, name, value)
    starts = blr.starts(jax.random.key(0), 2)
    found = blr_chains.chains(Setting("SGLD"), "Γ", starts, (2, 8), seed=3)
    whole = ls.sample(
        ls.sgld(1e-3), blr.posterior(), init=starts, num_draws=8, seed=3, gradient=ls.Minibatch(5, "subset")
    ).draws.astype(np.float64)
    np.testing.assert_allclose(found["mean"], whole[:, 2:].mean(1), rtol=1e-6)
    np.testing.assert_allclose(found["sd"], whole[:, 2:].std(1), rtol=1e-4)
    for k, positions in enumerate((whole[:, 1], whole[:, 2:].mean(1))):
        losses = [np.logaddexp(0, -y * (positions @ X.T)).mean(1) for X, y in ls.data.a3a()]
        np.testing.assert_allclose(found["scores"][:, k, :, 0], np.transpose(losses), rtol=1e-5)


# The two readings of pSGLD


@pytest.mark.parametrize("sigma", [0.0, 1.0])
@pytest.mark.parametrize("gradient", ["∇U", "∇U/N"])
def test_a_preconditioned_step_is_the_formula_of_its_reading(gradient, sigma, x64):
    """x' = x − η B Bᵀ∇U + √(2η) B ε, B = G^{1/2}A^{-1/2}, G = 1/(ε + √V), V = 0.01 g² with g = ∇U or ∇U/N."""
    posterior, *_ = logistic_regression()
    N, d = posterior.num_examples, 6
    setting = Setting("LS-pSGLD" if sigma else "pSGLD", sigma, gradient)
    sampler = setting.make(N)
    x = jnp.linspace(-1.0, 1.0, d)
    oracle = ls.Minibatch(4).oracle(posterior, jax.random.key(1), x)
    state = sampler.init(x, key=jax.random.key(0))
    g, still = np.asarray(oracle.gradient(x)), jnp.zeros(d)
    h, T = (jnp.asarray(v) for v in (sampler.step_size, 1.0))
    new, _ = sampler.transition(state, oracle, still, h, T)
    seen = g if gradient == "∇U" else g / N
    root = np.diag(np.sqrt(1 / (1e-5 + np.sqrt(0.01 * seen**2))))
    G = root @ np.linalg.inv(ls.theory.laplacian_matrix(d, sigma)) @ root
    np.testing.assert_allclose(new.position - x, -setting.step * G @ g, rtol=1e-6)
    noises = [sampler.transition(state, oracle, e, h, T)[0].position - new.position for e in np.eye(d)]
    np.testing.assert_allclose(np.transpose(noises) @ np.array(noises), 2 * setting.step * G, rtol=1e-6)


# Stability


def test_the_batch_limit_is_where_the_second_moment_explodes():
    """The spectral radius of E[(I − hĤ) ⊗ (I − hĤ)] over every subset is 1 at the limit, and not 1 % beside it."""
    from itertools import combinations

    rng = np.random.default_rng(0)
    rows, w = rng.normal(size=(6, 3)), rng.uniform(0.1, 1, 6)
    for batch in (1, 2, 4, 6):
        h = batch_limit(rows, w, batch)
        for factor, radius in ((1.0, 1.0), (0.99, 0.997), (1.01, 1.003)):
            moments = []
            for chosen in map(list, combinations(range(6), batch)):
                step = np.eye(3) - factor * h * 6 / batch * weighted_gram(rows[chosen], w[chosen])
                moments.append(np.kron(step, step))
            found = np.abs(np.linalg.eigvals(np.mean(moments, axis=0))).max()
            assert found == pytest.approx(1, abs=1e-6) if radius == 1 else (found - radius) * (radius - 1) > 0
    assert batch_limit(rows, w, 6) == pytest.approx(ls.theory.stability_limit(weighted_gram(rows, w)))


def test_smoothed_rows_make_the_smoothed_chain_a_plain_one():
    rng = np.random.default_rng(0)
    X, w = rng.normal(size=(9, 5)), rng.uniform(0.1, 1, 9)
    plain = ls.theory.stability_limit(weighted_gram(smoothed_rows(X, 1.0), w))
    assert plain == pytest.approx(ls.theory.stability_limit(weighted_gram(X, w), sigma=1.0))
    np.testing.assert_array_equal(smoothed_rows(X, 0.0), X)


@pytest.mark.parametrize("prior", list(blr.PRIORS))
def test_the_limit_is_that_of_the_hessian_by_differentiation(prior):
    x = 0.2 * np.random.default_rng(1).normal(size=(1, blr.DIM))
    H = -np.asarray(jax.hessian(blr.posterior(prior).log_density)(jnp.asarray(x[0], jnp.float32)), np.float64)
    for setting in (Setting("SGLD"), Setting("LS-SGLD", 2.0)):
        expected = ls.theory.stability_limit(H, sigma=setting.sigma)
        assert figure4_claims.limit(setting, {}, x, prior)[0] == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize(
    "setting", [s for s in SETTINGS if s.gradient and s.sigma in (0.0, 0.5)], ids=lambda s: s.label
)
def test_the_preconditioner_of_a_limit_is_that_of_the_sampler(setting, x64):
    """G η = h B Bᵀ with the library's B at the same V."""
    V = np.random.default_rng(0).uniform(0.1, 1, blr.DIM)
    sampler = setting.make(blr.posterior().num_examples)
    state = sampler.init(jnp.zeros(blr.DIM), key=jax.random.key(0)).preconditioner
    leaves, structure = jax.tree.flatten(state)
    state = jax.tree.unflatten(structure, [jnp.asarray(V), *leaves[1:]])
    B = np.asarray(jax.vmap(lambda e: sampler.preconditioner.apply(state, e))(jnp.eye(blr.DIM))).T
    G = figure4_claims._preconditioner(setting, V)
    np.testing.assert_allclose(setting.step * G, float(sampler.step_size) * B @ B.T, rtol=1e-6, atol=1e-12)


# Verdicts


def made_up(factor=0.8, spread=0.01, seeds=5):
    """Scores and moments; with smoothing the log loss and every distance are `factor` times those without."""
    rng, found = np.random.default_rng(0), {}
    for setting in SETTINGS:
        for prior in blr.PRIORS:
            scale = factor if setting.sigma else 1.0
            noise = np.exp(rng.normal(0, spread, (seeds, 5, 2)))
            scores = np.stack([0.5 * scale * noise, 0.8 + 0.01 * (1 - scale) * noise], axis=-1)
            off = 0.1 * scale * np.exp(rng.normal(0, spread, (seeds, 1)))
            found[setting, prior] = {
                "scores": scores,
                "predictive": scores[..., 1, 0],
                "start": 0.1 * rng.normal(size=(seeds, blr.DIM)),
                "mean": np.ones((seeds, blr.DIM)) * off,
                "sd": np.exp(np.ones((seeds, blr.DIM)) * off),
                "p": 0.5 + off * np.ones((seeds, 30)),
                "V": np.ones((seeds, blr.DIM)),
            }
    return found


def reference(**changes):
    held = {"mean": np.zeros(blr.DIM), "sd": np.ones(blr.DIM), "p": 0.5 * np.ones(30)}
    halves = {f"half_{name}": np.stack([value, value]) for name, value in held.items()}
    numbers = {name: np.array(1.0) for name in ("norm", "rhat", "ess", "divergences", "loss")}
    return held | halves | numbers | changes


COUNTS = (10, 30, 100, 300, 1000)


def verdicts(found, contains):
    references = dict.fromkeys(blr.PRIORS, reference())
    judged = figure4_claims.claims(found, references, COUNTS)
    return [claim.verdict == Verdict.REPRODUCED for claim in judged if contains in claim.claim]


def test_verdicts_follow_the_numbers():
    """Negative controls: the same with smoothing that makes all of it worse, and with none seen."""
    for factor, expected in ((0.8, True), (1.25, False), (1.0, False)):
        found = made_up(factor)
        for contains, count in (("smaller negative", 18), ("higher accuracy", 18), ("reduces the distance", 18)):
            assert verdicts(found, contains) == [expected] * count, (factor, contains)


def test_the_step_is_judged_by_the_limit():
    """At the start the limit of SGLD on a3a is 4e-4, so the paper's 1e-3 is above it; far out it is below."""
    found = made_up()
    assert verdicts(found, "step of SGLD is below its linear stability limit: step ÷ limit at the start") == [False]
    rng = np.random.default_rng(0)
    found[Setting("SGLD"), "Γ"]["start"] = 30 * rng.normal(size=(5, blr.DIM))
    assert verdicts(found, "step of SGLD is below its linear stability limit: step ÷ limit at the start") == [True]


def test_distances_are_zero_from_itself_and_in_posterior_sd():
    held = reference()
    same = {"mean": held["mean"][None], "sd": held["sd"][None], "p": held["p"][None]}
    assert all(value == 0 for value in figure4_claims.apart(same, held).values())
    wide = reference(sd=2 * np.ones(blr.DIM))
    assert figure4_claims.apart(same | {"mean": np.ones((1, blr.DIM))}, wide)["mean"] == pytest.approx(0.5)
    assert figure4_claims.apart(same, wide)["sd"] == pytest.approx(np.log(2))
    halves = figure4_claims.between_halves(reference(half_p=np.stack([np.zeros(30), np.ones(30)])))
    assert halves["predictive"] == pytest.approx(1)


# The whole


@pytest.fixture
def stubbed(monkeypatch):
    """Chains and references made up."""
    found = made_up()
    calls = []

    def chains(setting, prior, starts, counts, seed):
        calls.append((setting, prior))
        return found[setting, prior]

    monkeypatch.setattr(figure4, "chains", chains)
    monkeypatch.setattr(blr_nuts, "reference", lambda *_: reference(mean=0.3 * np.ones(blr.DIM)))
    return calls


def test_the_experiment_has_all_samplers_under_both_priors_and_continues_from_its_parts(stubbed, tmp_path):
    size = figure4.Size(5, 1_000, figure4.SHORT.nuts)
    found = figure4.run(quick=True, seed=0, parts=Parts(tmp_path), size=size)
    assert len(stubbed) == len(SETTINGS) * 2 == 24
    assert len(found.tables["scores"]) == 24 * len(COUNTS)
    assert len(found.tables["distances"]) == 26
    assert set(found.figures) == {"curves-0.5", "curves-1", "curves-2", "distances"}
    assert all(len(claim.interval) == 2 and np.isfinite(claim.measured) for claim in found.claims)
    again = figure4.run(quick=True, seed=0, parts=Parts(tmp_path), size=size)
    assert len(stubbed) == 24
    assert [claim.measured for claim in again.claims] == [claim.measured for claim in found.claims]


@pytest.mark.slow
def test_the_reference_is_that_of_a_longer_run_in_double_precision():
    """N(0, I): that of --quick against tests/reference/a3a_nuts.json, 4 chains of 5,000 draws in other coordinates."""
    long = json.loads((Path(__file__).parent / "reference" / "a3a_nuts.json").read_text())
    key = jax.random.fold_in(jax.random.fold_in(jax.random.key(0), 4), 1)
    found = blr_nuts.reference(NORMAL, figure4.SHORT.nuts[NORMAL], key)
    assert found["rhat"] < 1.05
    assert np.sqrt(np.mean(((found["mean"] - long["mean"]) / long["sd"]) ** 2)) < 0.1
    assert np.sqrt(np.mean(np.log(found["sd"] / long["sd"]) ** 2)) < 0.1
    assert found["loss"] == pytest.approx(long["test_nll"], abs=5e-4)
