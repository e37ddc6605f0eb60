"""The largest stable step: limits of known Gaussians, explosions where they should be, verdicts that follow."""

import numpy as np
import pytest

import lsmcmc as ls
from lsmcmc.experiments import Parts, Verdict, blr, figure1, largest_step, stable_steps
from lsmcmc.experiments.stable_steps import GRID, GUESSING, SIGMAS, crossing, gaussians, stiff


def test_limits_of_gaussians_are_the_known_factors():
    """1 + 2σ for Figure 1's stiff direction (1, −1), 1 along (1, …, 1) and for N(0, I), √(1+4σ) on average."""
    found = {case: limits / limits[:, :1] for case, limits in gaussians(40, 0).items()}
    sigmas = np.array(SIGMAS)
    first, other, plain, constant, one, many = found.values()
    np.testing.assert_allclose(first[0], 1 + 2 * sigmas)
    for ratio in (other, plain, constant):
        np.testing.assert_allclose(ratio[0], 1, rtol=1e-6)
    mean, error = one.mean(0), one.std(0) / np.sqrt(40)
    assert (abs(mean - np.sqrt(1 + 4 * sigmas)) < 4 * error + 0.02).all()
    assert many.shape == (40, len(SIGMAS))


def test_one_stiff_direction_is_the_limit_of_a_rank_one_curvature():
    u = np.random.default_rng(0).normal(size=7)
    u /= np.linalg.norm(u)
    found = [ls.theory.stability_limit(np.outer(u, u), sigma=sigma) for sigma in SIGMAS]
    np.testing.assert_allclose(stiff(7, 3 * u), found, rtol=1e-9)


def test_a_crossing_is_found_between_two_steps_and_a_grid_without_one_is_an_error():
    losses = GUESSING * np.exp(np.linspace(-1, 2, len(GRID)))[None, :, None] * np.ones((2, 1, 3))
    found = crossing(losses)
    assert found.shape == (3, 2)
    third = GRID[0] * (GRID[-1] / GRID[0]) ** (1 / 3)
    np.testing.assert_allclose(found, third, rtol=1e-6)
    with pytest.raises(RuntimeError, match="the grid of steps does not hold the largest stable one"):
        crossing(losses / 10)


def test_chains_explode_at_the_exact_limit(monkeypatch):
    """Bisected thrice to ± 1.3 %, 4,000 steps: 2 % above the limit a chain grows by e¹⁶⁰."""
    for name, value in {"FINITE": 4_000, "TRIES": 3}.items():
        monkeypatch.setattr(stable_steps, name, value)
    limit = ls.theory.stability_limit(figure1.PRECISION)
    assert stable_steps._explosion(0.0, 0, limit) / limit == pytest.approx(1, abs=0.03)
    assert not stable_steps._explodes(0.0, 0.95 * limit, 0)
    assert stable_steps._explodes(0.0, 1.05 * limit, 0)


@pytest.fixture
def stubbed(monkeypatch):
    """What chains would measure, made up: every step √(1+4σ) times as large."""
    factor = np.sqrt(1 + 4 * np.array(SIGMAS))
    noise = np.exp(np.random.default_rng(0).normal(0, 0.01, (5, 1)))
    calls = []

    def losses_at(sigma, starts, seed):
        calls.append(sigma)
        largest = 1e-3 * np.sqrt(1 + 4 * sigma) * noise.T
        return {"losses": GUESSING * np.array(GRID)[:, None] / largest}

    monkeypatch.setattr(largest_step, "losses_at", losses_at)
    monkeypatch.setattr(largest_step, "explosions", lambda *_: {"ratio": np.ones((5, 3)) + np.array([0, 1e-3, 2e-3])})
    both = dict.fromkeys(("full", "batches"), 0.001 * factor * noise)
    monkeypatch.setattr(largest_step, "linearised", lambda *_: both)
    return calls


def test_the_claims_follow_the_limits_and_parts_are_kept(stubbed, tmp_path):
    found = largest_step.run(quick=True, seed=0, parts=Parts(tmp_path))
    assert found.claims[0].verdict == Verdict.REPRODUCED
    verdict = {claim.claim.rpartition(", ")[2]: claim.verdict == Verdict.REPRODUCED for claim in found.claims[1:]}
    good = {claim.claim: claim.verdict == Verdict.REPRODUCED for claim in found.claims[1:]}
    assert len(good) == 9 * 3
    assert all(v for claim, v in good.items() if "a3a" in claim)
    assert not any(v for claim, v in good.items() if "N(0, I)" in claim or "correlation −0.9" in claim)
    assert verdict
    for row in found.tables["limits"]:
        if row["case"].startswith("a3a, chains"):
            assert row["ratio"] == pytest.approx(np.sqrt(1 + 4 * row["sigma"]), rel=0.02)
    assert len(stubbed) == len(SIGMAS)
    largest_step.run(quick=True, seed=0, parts=Parts(tmp_path))
    assert len(stubbed) == len(SIGMAS)


def test_a_factor_below_the_papers_is_not_reproduced():
    """Negative control: a tenth less than (1+4σ)^{1/4}; and one that is inside of the interval."""
    factor = np.array([blr.larger(sigma) for sigma in SIGMAS])
    noise = np.exp(np.random.default_rng(0).normal(0, 0.01, (5, 1)))
    for scale, verdict in ((0.9, Verdict.NOT_REPRODUCED), (1.0, Verdict.NOT_REPRODUCED), (1.1, Verdict.REPRODUCED)):
        limits = factor * np.where(np.array(SIGMAS) > 0, scale * noise, 1)
        assert largest_step._larger("made up", limits, 3).verdict == verdict


def test_smoothing_allows_larger_steps_on_a3a_linearised(monkeypatch):
    """Two positions: limits grow with σ, those of batches are the smaller ones."""
    for name, value in {"PATH": 20, "SIGMAS": (0.0, 1.0)}.items():
        monkeypatch.setattr(stable_steps, name, value)
    found = stable_steps.linearised(2, 0)
    assert found["full"].shape == (2, 2)
    for limits in found.values():
        assert (limits[:, 1] > limits[:, 0]).all()
    assert (found["batches"] < found["full"]).all()
