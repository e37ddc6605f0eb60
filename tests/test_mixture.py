"""The mixture of Figures 2, 3 and Table 2: its two readings, its reference, and verdicts that follow from numbers."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lsmcmc as ls
from lsmcmc.experiments import Verdict, figure3, mixture, result

POINTS = np.random.default_rng(3).normal(0, 3, (40, 2))


@pytest.fixture
def small(monkeypatch):
    """Fewer walkers, so that a reference takes a second."""
    for name, value in {"WALKERS": 200, "KEPT": 50, "BURN_IN": 200, "THIN": 20}.items():
        monkeypatch.setattr(mixture, name, value)
    mixture.reference.cache_clear()
    yield
    mixture.reference.cache_clear()


def paper_log_component(x, a):
    """−fᵢ of every row of a, as the paper defines it."""
    near, far = (np.exp(-((x - sign * a) ** 2).sum(1) / 2) for sign in (1, -1))
    return np.log(2 / 3 * near + 1 / 3 * far)


def gradients(reading, x, a):
    """∇fᵢ of every row, by automatic differentiation of the code."""
    return -jax.vmap(lambda row: jax.grad(lambda x: mixture.READINGS[reading](x, row[None])[0])(x))(a)


# The target


def test_the_density_is_that_of_the_paper_up_to_a_constant():
    a = mixture.centres(0)
    ours = np.array([mixture.log_component(jnp.float32(x), jnp.asarray(a)) for x in POINTS])
    paper = np.array([paper_log_component(x, a.astype(np.float64)) for x in POINTS])
    off = ours - paper
    np.testing.assert_allclose(off, np.broadcast_to(off[0], off.shape), atol=2e-4)


def test_the_gradient_of_the_density_is_that_of_the_printed_density_and_not_the_printed_one():
    a = mixture.centres(0)[:50]
    furthest = 0.0
    for x in POINTS:
        s = a.astype(np.float64) @ x
        true = x - a + 2 * a / (1 + 2 * np.exp(2 * s))[:, None]
        printed = x - a + 2 * a / (2 + np.exp(2 * s))[:, None]
        np.testing.assert_allclose(gradients("density", jnp.float32(x), a), true, atol=1e-4)
        np.testing.assert_allclose(gradients("printed gradient", jnp.float32(x), a), printed, atol=1e-4)
        furthest = max(furthest, abs(true - printed).max())
    assert furthest > 1.0


def test_gradients_are_right_at_the_kink_of_the_absolute_value_and_far_out():
    a = jnp.array([[2.0, 1.0]])
    for s in (-mixture.HALF_LOG_2, mixture.HALF_LOG_2, -2000.0, 2000.0):
        x = jnp.asarray(s * a[0] / 5, jnp.float32)
        found = {reading: np.asarray(gradients(reading, x, a)[0] - x) for reading in mixture.READINGS}
        np.testing.assert_allclose(found["density"], -np.tanh(s + mixture.HALF_LOG_2) * a[0], atol=1e-3)
        np.testing.assert_allclose(
            found["printed gradient"], -0.5 * (1 + np.tanh(s - mixture.HALF_LOG_2)) * a[0], atol=1e-3
        )


def test_quadrature_puts_a_third_of_the_density_and_a_fiftieth_of_the_printed_law_in_the_smaller_half():
    density, printed = (mixture.quadrature(reading, 0) for reading in mixture.READINGS)
    assert density.share == pytest.approx(0.349, abs=0.001)
    assert printed.share == pytest.approx(0.0176, abs=0.001)
    for law in (density, printed):
        assert law.weights.sum() == pytest.approx(1, abs=1e-12)
        edge = np.abs(law.grid).max(1) > 9.9
        assert law.weights[edge].sum() < 1e-12


def test_quadrature_does_not_depend_on_the_grid():
    """Against a grid of its own, in float64, from the formula of the paper."""
    a = mixture.centres(1).astype(np.float64)
    axis = np.linspace(-8.03, 8.03, 120)
    grid = np.stack(np.meshgrid(axis, axis), -1).reshape(-1, 2)
    s = grid @ a.T
    log_density = (np.logaddexp(np.log(2) + s, -s).mean(1)) - (grid**2).sum(1) / 2
    weights = np.exp(log_density - log_density.max())
    weights /= weights.sum()
    law = mixture.quadrature("density", 1)
    np.testing.assert_allclose(law.mean, weights @ grid, atol=1e-4)
    assert law.share == pytest.approx(weights[grid.sum(1) < 0].sum(), abs=0.002)  # a grid line is not on the border


def test_the_centres_have_the_law_of_the_paper_and_follow_the_seed():
    many = np.concatenate([mixture.centres(seed) for seed in range(20)])
    np.testing.assert_allclose(many.mean(0), 2, atol=5 * np.sqrt(2 / len(many)))
    np.testing.assert_allclose(np.cov(many.T), 2 * np.eye(2), atol=0.15)
    assert (mixture.centres(0) != mixture.centres(1)).all()


# The Metropolis reference


@pytest.mark.parametrize("reading", list(mixture.READINGS))
def test_the_reference_is_the_law_of_quadrature(small, reading):
    """200 walkers are independent: the means over walkers have a known standard error; beyond 4.5 is one in 10⁵."""
    law, found = mixture.quadrature(reading, 0), mixture.reference(reading, 0)
    assert found.draws.shape == (200, 50, 2)
    shares, means = mixture.share(found.draws), found.draws.mean(1, dtype=np.float64)
    assert abs(shares.mean() - law.share) < 4.5 * result.standard_error(shares)
    assert (abs(means.mean(0) - law.mean) < 4.5 * result.standard_error(means.T)).all()
    assert 0.1 < found.acceptance < 0.5


def test_the_reference_is_not_the_law_of_the_other_reading(small):
    """Negative control of the test before."""
    shares = mixture.share(mixture.reference("density", 0).draws)
    other = mixture.quadrature("printed gradient", 0)
    assert abs(shares.mean() - other.share) > 20 * result.standard_error(shares)


# The samplers


@pytest.mark.parametrize("name", list(mixture.SAMPLERS))
def test_a_step_is_that_of_the_paper_on_the_mean_of_the_components(name):
    """x' = x − ηPg + √(2η) P^{1/2}ε with g = (1/n) Σ ∇fᵢ, and pSGLD's V of that g."""
    eta, x, eps = 0.3, np.array([1.0, -0.5]), np.array([0.7, -1.1])
    a = mixture.centres(0).astype(np.float64)
    g = (x - a * np.tanh(a @ x + mixture.HALF_LOG_2)[:, None]).mean(0)
    root = np.diag(1 / np.sqrt(1e-5 + np.sqrt(0.01) * abs(g))) if "pSGLD" in name else np.eye(2)
    if name.startswith("LS"):
        values, vectors = np.linalg.eigh(ls.theory.laplacian_matrix(2, 1.0))
        root = root @ (vectors / np.sqrt(values)) @ vectors.T
    expected = x - eta * root @ root.T @ g + np.sqrt(2 * eta) * root @ eps
    sampler, target = mixture.SAMPLERS[name](eta), mixture.posterior("density", 0)
    state = sampler.init(jnp.asarray(x, jnp.float32), key=jax.random.key(0))
    oracle = ls.FullBatch().oracle(target, jax.random.key(0), state.position)
    noise = jnp.asarray(eps, jnp.float32)
    new, _ = sampler.transition(state, oracle, noise, sampler.step_size, sampler.temperature)
    np.testing.assert_allclose(new.position, expected, atol=1e-5)  # of moves up to 5, in float32


def test_at_a_small_step_the_law_of_the_density_stays():
    """LS-SGLD, 2,000 chains from that law, 200 steps of η = 0.05.

    The share has a standard error of 1.1 %, the entries of the covariance one of 0.13, their bias is below 0.2. Of the
    printed gradient the share falls by a tenth, the negative control.
    """
    law = mixture.quadrature("density", 0)
    start = law.grid[np.random.default_rng(0).choice(len(law.grid), 2000, p=law.weights)].astype(np.float32)
    now = {}
    for reading in mixture.READINGS:
        estimator = ls.Minibatch(mixture.BATCH, "subset")
        target = mixture.posterior(reading, 0)
        run = ls.sample(mixture.ls_sgld(0.05), target, init=start, num_draws=1, burn_in=199, gradient=estimator)
        now[reading] = run.draws[:, 0].astype(np.float64)
    assert mixture.share(now["density"]) == pytest.approx(law.share, abs=0.045)
    assert mixture.share(now["printed gradient"]) < law.share - 0.1
    covariance = (law.weights * (law.grid - law.mean).T) @ (law.grid - law.mean)
    np.testing.assert_allclose(np.cov(now["density"].T), covariance, atol=0.6)


# Figure 3


@pytest.fixture
def short(monkeypatch):
    """Figure 3 on short runs."""
    for name, value in {"RUNS": 60, "QUICK_DRAWS": 1000, "JUDGED": (300, 1000)}.items():
        monkeypatch.setattr(figure3, name, value)


def test_figure_3_lies_on_the_exact_curve_and_judges_every_length(short):
    found = figure3.run(quick=True, seed=0)
    assert found.claims[0].verdict == Verdict.REPRODUCED
    assert len(found.claims) == 1 + 2 * 2
    assert len(found.tables["errors"]) == 2 * 2 * 3
    gaussian = [row for row in found.tables["errors"] if row["target"] == "Gaussian"]
    assert all(row["mse_low"] < row["mse_exact"] * 1.3 and row["mse_exact"] * 0.7 < row["mse_high"] for row in gaussian)
    assert all(row["mse_exact"] is None for row in found.tables["errors"] if row["target"] == "mixture")
    assert found.settings["runs"] == 120


def test_a_sampler_of_another_smoothing_is_off_figure_3s_curve(short, monkeypatch):
    """Negative control: the curve is that of σ = 3."""
    monkeypatch.setattr(figure3, "QUICK_BATCHES", 5)
    monkeypatch.setattr(figure3, "TARGETS", ("Gaussian",))
    curves = figure3._curves((100, 1000), 5, 0, figure3.Parts())
    assert figure3._on_the_curve(curves).verdict == Verdict.REPRODUCED
    true = figure3.exact
    monkeypatch.setattr(figure3, "exact", lambda sampler, counts: [1.4 * v for v in true(sampler, counts)])
    assert figure3._on_the_curve(curves).verdict == Verdict.NOT_REPRODUCED


def test_on_the_gaussian_smoothing_doubles_the_error_of_a_long_mean_exactly():
    for n, ratio in ((1_000, 1.13), (200_000, 2.0)):
        smoothed, plain = (figure3.exact(sampler, (n,))[0] for sampler in ("LS-LD", "LD"))
        assert smoothed / plain == pytest.approx(ratio, rel=0.02)


# Judging


@pytest.mark.parametrize(
    ("factor", "num", "verdict", "note"),
    [
        (1.0, 1000, "reproduced", "Within a factor 1.5."),
        (2.0, 1000, "not reproduced", "Outside a factor 1.5."),
        (0.5, 1000, "not reproduced", "Outside a factor 1.5."),
        (1.0, 5, "not reproduced", "Perhaps outside a factor 1.5."),
    ],
)
def test_similar_needs_the_whole_interval_within_the_factor(factor, num, verdict, note):
    rng = np.random.default_rng(0)
    ours, other = factor * rng.exponential(size=num), rng.exponential(size=num)
    claim = result.judge_similar("ours ≈ other", "similar", ours, other, 1.5)
    assert (claim.verdict, claim.note) == (verdict, note)
    assert claim.interval[0] < claim.measured < claim.interval[1]


def test_the_interval_of_a_ratio_of_means_covers_it_95_times_in_a_hundred():
    """Of paired exponential draws, ratio 2: 2,000 intervals, whose share has a standard error of 0.5 %."""
    rng = np.random.default_rng(0)
    common = rng.exponential(size=(2000, 200))
    ours, other = 2 * common + 2 * rng.exponential(size=common.shape), common + rng.exponential(size=common.shape)
    intervals = np.array([result.ratio_of_means(a, b) for a, b in zip(ours, other, strict=True)])
    covered = np.mean((intervals[:, 1] < 2) & (intervals[:, 2] > 2))
    assert covered == pytest.approx(0.95, abs=0.02)
