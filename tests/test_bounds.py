"""Truth against bound: exact distances, verdicts that follow them, chains against the exact law."""

import numpy as np
import pytest

import lsmcmc as ls
from lsmcmc.experiments import Parts, Verdict, bounds, bounds_claims, gaussian_distances
from lsmcmc.experiments.gaussian_distances import CASES, COUNTS, JUDGED, RESCALED, SIGMAS, WHAT, curve


@pytest.fixture
def few(monkeypatch):
    """Four random Gaussians at five K, and no simulation."""
    counts = (1, 10, 1_000, 30_000, 300_000)
    for module in (gaussian_distances, bounds, bounds_claims):
        monkeypatch.setattr(module, "COUNTS", counts)
    monkeypatch.setattr(bounds, "QUICK_REPLICATIONS", 4)
    monkeypatch.setattr(bounds, "_simulate", lambda seed: {"ratio": np.random.default_rng(0).normal(1, 0.01, (2, 20))})


@pytest.mark.parametrize("case", list(CASES))
@pytest.mark.parametrize("sigma", [0.0, 1.0])
def test_the_distance_is_within_the_sum_of_its_two_terms(case, sigma):
    """The triangle inequality of the proof, and each term against its definition at one K."""
    gaussian = CASES[case][0](np.random.default_rng(0))
    values = dict(zip(WHAT, curve(gaussian, sigma).T, strict=True))
    assert (values["total"] <= values["discretisation"] + values["ergodicity"] + 1e-7).all()
    assert (abs(values["total"] - values["ergodicity"]) <= values["discretisation"] + 1e-7).all()
    k = 10
    law = ls.theory.diffusion_law(gaussian.precision, COUNTS[k] * gaussian.step, -gaussian.mean, sigma=sigma)
    zero, C = np.zeros(len(gaussian.mean)), np.linalg.inv(gaussian.precision)
    assert values["ergodicity"][k] == pytest.approx(ls.theory.gaussian_w2(*law, zero, C))


def test_the_constants_are_those_of_the_density():
    """Λ = ∫exp(−f) by the trapezoidal rule, f(0), and dissipativity at random points."""
    gaussian = gaussian_distances.Gaussian(np.array([[2.0, 0.5], [0.5, 1.0]]), np.array([0.3, -0.2]))
    axis = np.linspace(-12, 12, 801)
    x = np.stack(np.meshgrid(axis, axis, indexing="ij"), axis=-1) - gaussian.mean
    f = 0.5 * np.einsum("...i,ij,...j->...", x, gaussian.precision, x)
    constants = gaussian.constants()
    assert constants["log_normalizer"] == pytest.approx(np.log(np.exp(-f).sum() * (axis[1] - axis[0]) ** 2))
    m, M = gaussian.curvatures
    assert constants["smoothness"] == M
    assert constants["log_sobolev"] == 2 / m
    points = np.random.default_rng(0).normal(0, 2, (1000, 2))
    pull = np.einsum("ni,ni->n", (points - gaussian.mean) @ gaussian.precision, points)
    assert (pull >= m / 2 * (points**2).sum(1) - gaussian.dissipativity() - 1e-12).all()


def test_the_claims_follow_the_distances_and_results_are_kept(few, tmp_path):
    found = bounds.run(quick=True, seed=0, parts=Parts(tmp_path))
    verdict = {claim.claim: claim.verdict == Verdict.REPRODUCED for claim in found.claims}
    of_bounds = {claim: good for claim, good in verdict.items() if "bounds W₂" in claim}
    assert len(of_bounds) == 3 * len(CASES)
    assert {claim for claim, good in of_bounds.items() if not good} == {
        claim for claim in of_bounds if RESCALED in claim and "Theorem 1" in claim
    }
    assert all(good for claim, good in verdict.items() if "discretisation" in claim)
    mixing = [good for claim, good in verdict.items() if "similar rate" in claim]
    assert mixing == [False, True, False]  # N(0, I), Figure 1's, random ones
    assert len(found.tables["distances"]) == len(CASES) * len(SIGMAS) * 5
    again = bounds.run(quick=True, seed=0, parts=Parts(tmp_path))
    assert [c.measured for c in again.claims] == [c.measured for c in found.claims]


def test_the_claims_change_with_the_distances(few):
    """Negative controls: bounds that are a third, discretisation that grows with σ."""
    found = {case: gaussian_distances.measure([make(np.random.default_rng(0))]) for case, (make, _) in CASES.items()}
    sabotaged = {case: values.copy() for case, values in found.items()}
    for values in sabotaged.values():
        values[..., WHAT.index("proof")] /= 3
        values[:, SIGMAS.index(JUDGED), :, WHAT.index("discretisation")] *= 3
    ratio = np.ones((2, 20)) + np.random.default_rng(0).normal(0, 0.01, (2, 20))
    for values, expected in ((found, True), (sabotaged, False)):
        claims = bounds_claims.claims(values, ratio)
        proof = [
            c.verdict == Verdict.REPRODUCED for c in claims if "as its proof" in c.claim and RESCALED not in c.claim
        ]
        smaller = [c.verdict == Verdict.REPRODUCED for c in claims if "discretisation" in c.claim]
        assert proof == [expected] * 3
        assert smaller == [expected] * 3
    assert bounds_claims.claims(found, ratio)[0].verdict == Verdict.REPRODUCED
    assert bounds_claims.claims(found, ratio + 0.05)[0].verdict == Verdict.NOT_REPRODUCED


def test_chains_have_the_exact_second_moment():
    """8 seeds of 200 chains, 50 steps: a standard error near 1.5 %. Negative control: 20 % more."""
    ratio = bounds._simulate(0, seeds=8, chains=200, steps=50)["ratio"]
    error = ratio.std(1, ddof=1) / np.sqrt(8)
    assert (abs(ratio.mean(1) - 1) < 5 * error).all()
    assert (abs(ratio.mean(1) - 1.2) > 5 * error).all()
