"""Figure 2 and Table 2: the chains behind them, the grid search, verdicts that follow from numbers, resuming."""

import threading
from concurrent.futures import CancelledError
from dataclasses import replace

import jax
import numpy as np
import pytest

from lsmcmc.experiments import (
    Parts,
    Verdict,
    figure2,
    mixture,
    mixture_chains,
    mixture_steps,
    result,
    table2,
    table2_claims,
    table2_plots,
)
from lsmcmc.experiments.mixture_chains import BEST, SETTINGS, Size
from lsmcmc.experiments.mixture_steps import Search
from lsmcmc.experiments.table2_claims import Cell, Law, Scale

TINY = Size(3, 20, 3, 200, 20, False, 3, 20, (10, 30, 40), False)
ORDINARY = (100_000, 500_000, 900_000)
CACHED = (mixture.reference, mixture_chains.walk, mixture_chains.floor, mixture_steps._pilots)


@pytest.fixture
def small(monkeypatch):
    """Short chains, four steps in the grid, and a reference of 4,000 draws in a second."""
    names = {"WALKERS": 100, "KEPT": 40, "BURN_IN": 200, "THIN": 20}
    patches = [(mixture, name, value) for name, value in names.items()]
    patches += [(mixture_chains, "STOPS", (200, 400, 600, 800)), (mixture_chains, "WINDOW", 100)]
    patches += [(mixture_chains, "TRAIL", 10), (mixture_chains, "HELD", 50), (mixture_steps, "GRID", (0.001, 0.4))]
    patches += [(figure2, "STOPS", (200, 400, 800)), (figure2, "_SIDE", 10)]
    printed = {name: dict(zip((200, 400, 600), (0.5, 0.5, 9.0), strict=True)) for name in table2_claims.PRINTED}
    for module in (table2, table2_claims, table2_plots):
        patches += [(module, "STOPS", (200, 400, 600)), (module, "PRINTED", printed)]
    for module, name, value in patches:
        monkeypatch.setattr(module, name, value)
    forget()
    yield
    forget()


def forget():
    for cached in CACHED:
        cached.cache_clear()


# Chains


def test_a_walk_holds_iterates_of_one_long_run(small):
    walk = mixture_chains.walk("density", "LS-SGLD", 0.3, 2, (200, 500), 0)
    start = mixture_chains.at_zero(2, mixture_chains.key(0, 1))
    draws = mixture_chains.advance("density", "LS-SGLD", 0.3, 0, start, 500, 1).draws
    np.testing.assert_array_equal(walk["trail"], draws[:, 9::10])
    for i, stop in enumerate((200, 500)):
        np.testing.assert_array_equal(walk["windows"][i], draws[:, stop - 100 : stop][:, 1::2])
        np.testing.assert_array_equal(walk["first"][i], draws[0, stop - 100 : stop])


def test_the_pieces_that_a_walk_is_made_in_change_nothing(small, monkeypatch):
    whole = mixture_chains.walk("density", "SGLD", 0.3, 2, (400,), 0)
    mixture_chains.walk.cache_clear()
    monkeypatch.setattr(mixture_chains, "_PIECE", 70)
    for name, values in mixture_chains.walk("density", "SGLD", 0.3, 2, (400,), 0).items():
        np.testing.assert_array_equal(values, whole[name])


def test_after_an_interrupt_the_chains_that_run_end_at_their_next_piece(small):
    begun, ended = threading.Event(), []

    def endless():
        begun.set()
        start = mixture_chains.at_zero(2, mixture_chains.key(0, 1))
        try:
            while True:
                mixture_chains.advance("density", "SGLD", 0.3, 0, start, 10, 1)
        except CancelledError:
            ended.append(True)
            raise

    def interrupted():
        begun.wait(timeout=20)  # not for ever, on a machine with one core
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        mixture_chains.in_threads([interrupted, endless], "test")
    assert ended == [True] * begun.is_set()
    assert mixture_chains.in_threads([lambda: 1, lambda: 2], "test") == [1, 2]


def test_samplers_share_start_batches_and_noise_by_chain(small, monkeypatch):
    """Without smoothing LS-SGLD is SGLD; of another chain, or at another temperature of the key, it is not."""
    plain = mixture_chains.walk("density", "SGLD", 0.3, 2, (200,), 0)["trail"]
    monkeypatch.setattr(mixture, "SIGMA", 0.0)
    smoothed = mixture_chains.walk("density", "LS-SGLD", 0.3, 2, (200,), 0)["trail"]
    np.testing.assert_allclose(smoothed, plain, atol=1e-3)
    assert np.abs(plain[0] - plain[1]).max() > 0.1


def test_the_law_of_x_k_is_that_of_the_iterates_of_its_chains(small):
    points = mixture_chains.law("SGLD", 0.3, TINY, 1, 0)
    start = mixture_chains.at_zero(20, mixture_chains.key(0, 2, 1))
    draws = mixture_chains.advance("density", "SGLD", 0.3, 0, start, 40, 1).draws
    np.testing.assert_array_equal(points, np.moveaxis(draws[:, [9, 29, 39]], 1, 0))
    assert np.abs(points - mixture_chains.law("SGLD", 0.3, TINY, 2, 0)).max() > 0.1


def test_pilots_walks_and_laws_have_chains_of_their_own(small, monkeypatch):
    """A step chosen on the chains that are judged would flatter them."""
    used = []
    monkeypatch.setattr(mixture_chains, "at_zero", lambda chains, key: used.append(jax.random.key_data(key).tolist()))
    monkeypatch.setattr(mixture_chains, "advance", stop)
    for begin in (
        lambda: mixture_steps._pilots("SGLD", 0.4, TINY, 0),
        lambda: mixture_chains.walk("density", "SGLD", 0.4, 3, (200,), 0),
        lambda: mixture_chains.law("SGLD", 0.4, TINY, 0, 0),
        lambda: mixture_chains.law("SGLD", 0.4, TINY, 1, 0),
    ):
        with pytest.raises(KeyboardInterrupt):
            begin()
    assert len(np.unique(used, axis=0)) == 4


def stop(*_):
    raise KeyboardInterrupt


# Distances


def test_the_distance_is_to_a_reference_of_each_clouds_own(small):
    """Its own block is at distance 0, and a block moved by v at |v|, exactly; another block is not."""
    own = mixture_chains.blocks(50, 0)[:3]
    np.testing.assert_allclose(mixture_chains.distances(own, 50, 0), 0, atol=1e-6)
    np.testing.assert_allclose(mixture_chains.distances(own + np.float32([3, 4]), 50, 0), 5, rtol=1e-5)
    assert (mixture_chains.distances(own[::-1], 50, 0)[[0, 2]] > 0.1).all()
    assert (mixture_chains.floor(50, 3, 0) > 0.1).all()


def test_points_of_a_cloud_are_evenly_spaced(small):
    """Twice as many points, every second of another law: only the first of each pair are seen."""
    blocks = mixture_chains.blocks(50, 0)[:2]
    twice = np.stack([blocks, blocks + 100], axis=2).reshape(2, 100, 2)
    np.testing.assert_allclose(mixture_chains.distances(twice, 50, 0), 0, atol=1e-6)


def test_a_window_is_in_one_mode_below_one_percent():
    half = np.repeat([[1.0, 1.0]], 200, axis=0)
    clouds = np.stack([half, half * np.where(np.arange(200) < 4, -1, 1)[:, None], -half])
    assert mixture_chains.in_one_mode(clouds).tolist() == [True, False, True]


def test_a_small_step_leaves_every_chain_in_one_mode_and_a_larger_one_none():
    """5,000 iterates, six chains: at η = 0.4 a chain changes modes about 80 times, at 1e-4 about once in 200,000."""
    trapped = {}
    for eta in (0.4, mixture_chains.SMALL / 10):
        start = {"init": np.full((6, 2), 2.0, np.float32), "seed": 0}
        draws = mixture_chains.advance("density", "SGLD", eta, 0, start, 5_000, 5).draws
        trapped[eta] = mixture_chains.in_one_mode(draws)
    assert not trapped[0.4].any()
    assert trapped[mixture_chains.SMALL / 10].all()


# The grid search


def test_the_best_step_is_that_of_the_smallest_mean_distance(monkeypatch):
    monkeypatch.setattr(mixture_steps, "GRID", (0.1, 0.2, 0.4))
    distance = np.array([[1.0, 1.2], [0.1, 1.0], [0.5, 0.9]])
    search = Search("SGLD", distance, np.array([[True, False], [False, False], [False, False]]))
    assert search.best == 0.2
    rows = search.rows()
    assert [row["best"] for row in rows] == ["", "best", ""]
    assert [row["chains_in_one_mode"] for row in rows] == [0.5, 0, 0]
    assert rows[0]["w2"] == pytest.approx(1.1)
    assert rows[0]["w2_low"] < 1.1 < rows[0]["w2_high"]


# Verdicts


def noisy(level, num=20, spread=0.05, seed=0):
    return level * np.exp(np.random.default_rng(seed).normal(0, spread, num))


def found(levels):
    """Figure 2 with these mean distances at its three stops, alike for all samplers but LS-SGLD at half."""
    made = []
    for s, sampler in enumerate(mixture.SAMPLERS):
        factor = 0.5 if sampler == "LS-SGLD" else 1.0
        distance = np.stack([noisy(factor * level, seed=10 * s + i) for i, level in enumerate(levels)])
        trail = np.zeros((1, 2), np.float32)
        made += [figure2.Found(setting, sampler, 0.3, figure2.STOPS, distance, distance, trail) for setting in SETTINGS]
    return made


@pytest.mark.parametrize(
    ("level", "far", "near", "note"),
    [
        (4.0, Verdict.REPRODUCED, Verdict.NOT_REPRODUCED, "Above 1.5."),
        (1.0, Verdict.NOT_REPRODUCED, Verdict.REPRODUCED, "Below 1.5."),
        (1.5, Verdict.NOT_REPRODUCED, Verdict.NOT_REPRODUCED, "Undecided: the interval contains 1.5."),
    ],
)
def test_matching_well_and_a_large_discrepancy_follow_from_the_ratio_to_the_floor(level, far, near, note):
    claims = figure2.claims(found((level, level, level)), noisy(1.0, seed=99))
    assert len(claims) == len(SETTINGS) * 8
    sgld = [claim for claim in claims if claim.claim.startswith("SGLD:")]
    assert {c.verdict for c in sgld if "1E5" in c.claim} == {far}
    assert {c.verdict for c in sgld if "1E6" in c.claim} == {near}
    assert all(c.note.startswith(note) for c in sgld)
    stays = {c.claim for c in claims if "another law" in c.note}
    assert len(stays) == (3 if level == 4.0 else 0)
    for claim in claims:
        assert claim.interval[0] < claim.measured < claim.interval[1]
    closer = [claim for claim in claims if "5E5" in claim.claim]
    assert {claim.verdict for claim in closer} == {Verdict.REPRODUCED}
    assert [claim.measured for claim in closer] == pytest.approx([0.5] * 6, rel=0.1)


def test_the_interval_of_the_ratio_to_the_floor_covers_it_95_times_in_a_hundred():
    rng = np.random.default_rng(0)
    pairs = [figure2._over_floor(rng.gamma(9, 2 / 9, 20), rng.gamma(9, 1 / 9, 20)) for _ in range(2000)]
    covered = np.mean([low < 2 < high for _, low, high in pairs])
    assert covered == pytest.approx(0.955, abs=0.015)


def scale(**changes):
    one = {"floor": 0.3, "smaller": 4.0, "larger": 2.6, "opposite": 5.4, "law_floor": 0.4, "pilot_floor": 0.5}
    made = {name: noisy(value, spread=0.02) for name, value in one.items()}
    share = np.random.default_rng(1).normal(0.349, 0.05, 400)
    made |= {"share": share, "exact_share": np.array(0.349), "large": np.zeros(0)}
    return Scale(**(made | changes))


def cells(levels):
    """Table 2 at one stop with these mean distances by sampler."""
    return [
        Cell(
            setting,
            sampler,
            0.3,
            stop,
            noisy(level, 40, seed=i),
            np.arange(40) < 10,
            np.full(40, 0.3),
            noisy(level, 40, seed=i + 9),
            1_000,
            np.nan,
        )
        for setting in SETTINGS
        for i, (sampler, level) in enumerate(levels.items())
        for stop in ORDINARY
    ]


def laws(ours, other):
    return [
        Law(sampler, eta, eta == 0.4, (30, 300), np.stack([noisy(2.0), noisy(level)]), np.full((2, 20), 0.35))
        for sampler, level in (("LS-SGLD", ours), ("SGLD", other))
        for eta in (0.4, 1.0)
    ]


def pilots(trapped=4.0):
    """Three steps: all chains in one mode, some, none."""
    distance = np.stack([np.full(6, trapped), np.array([0.6, 1.0, 1.5, 2.0, 2.5, 3.0]), np.full(6, 0.6)])
    return {sampler: Search(sampler, distance, distance > 3) for sampler in mixture.SAMPLERS}


@pytest.mark.parametrize("trapped", [4.0, 7.0])
def test_a_row_is_inconsistent_if_no_step_gives_its_smallest_and_its_largest_number(trapped):
    """Chains that are always trapped may score 7, but not near the floor as well."""
    levels = dict.fromkeys(mixture.SAMPLERS, 0.5)
    rows = table2_claims.claims(cells(levels), laws(0.5, 1.0), pilots(trapped), scale())[1:4]
    assert [claim.verdict for claim in rows] == [Verdict.INCONSISTENT, Verdict.INCONSISTENT, Verdict.REPRODUCED]
    assert {(claim.measured, claim.interval) for claim in rows} == {(3.0, (0.6, 3.0))}
    assert "all 12 pilot chains at these 2 steps" in rows[0].note


def test_a_number_that_only_a_lower_floor_could_give_is_undecided():
    levels = {"SGLD": 0.36, "pSGLD": 0.5, "LS-SGLD": 0.418, "LS-pSGLD": 0.5}
    claims = table2_claims.claims(cells(levels), laws(0.5, 1.0), pilots(), scale())
    claim = next(claim for claim in claims if claim.claim == "W₂ of SGLD at 9E5 (best step)")
    assert claim.verdict == Verdict.NOT_REPRODUCED
    assert claim.note.startswith("Below, but by no more than the floor of 1,000 points, where the paper has 10 K: und")


def test_a_row_is_not_inconsistent_where_one_step_gives_both():
    """Negative control of the test above."""
    search = pilots()["SGLD"]
    both = {"SGLD": replace(search, distance=np.array([[0.6, 7.0]])), "pSGLD": search, "LS-SGLD": search}
    levels = dict.fromkeys(mixture.SAMPLERS, 0.5)
    assert table2_claims.claims(cells(levels), laws(0.5, 1.0), both, scale())[1].verdict == Verdict.REPRODUCED


def test_a_printed_number_is_judged_by_what_one_chain_may_score():
    levels = {"SGLD": 0.695, "pSGLD": 0.5, "LS-SGLD": 0.418, "LS-pSGLD": 0.5}
    claims = table2_claims.claims(cells(levels), laws(0.5, 1.0), pilots(), scale())
    numbers = {claim.claim: claim for claim in claims if claim.claim.startswith("W₂ of")}
    assert len(numbers) == len(SETTINGS) * 9
    verdicts = {name: claim.verdict for name, claim in numbers.items() if "(best step)" in name}
    assert verdicts["W₂ of SGLD at 1E5 (best step)"] == Verdict.REPRODUCED
    assert verdicts["W₂ of SGLD at 5E5 (best step)"] == Verdict.NOT_REPRODUCED  # 6.726
    assert verdicts["W₂ of SGLD at 9E5 (best step)"] == Verdict.NOT_REPRODUCED  # 0.285
    assert verdicts["W₂ of pSGLD at 1E5 (best step)"] == Verdict.NOT_REPRODUCED
    assert verdicts["W₂ of LS-SGLD at 9E5 (best step)"] == Verdict.REPRODUCED
    claim = numbers["W₂ of SGLD at 5E5 (best step)"]
    assert claim.note == "Above. In one mode: 25 % of the chains."
    assert claim.interval[0] < claim.measured < claim.interval[1]
    below = numbers["W₂ of SGLD at 9E5 (best step)"].note
    assert below.startswith("Below. In")  # by more than the floor of 0.3


@pytest.mark.parametrize(("level", "verdict"), [(0.3, Verdict.REPRODUCED), (0.9, Verdict.NOT_REPRODUCED)])
def test_consistently_closer_is_judged_against_both_at_every_stop(level, verdict):
    levels = {"SGLD": 0.5, "pSGLD": 0.6, "LS-SGLD": level, "LS-pSGLD": 0.5}
    claims = table2_claims.claims(cells(levels), laws(0.5, 1.0), pilots(), scale())
    closer = [claim for claim in claims if "is closer to the reference than" in claim.claim]
    assert len(closer) == len(SETTINGS) * 6
    assert {claim.verdict for claim in closer} == {verdict}


@pytest.mark.parametrize(("ours", "verdict"), [(0.5, Verdict.REPRODUCED), (1.5, Verdict.NOT_REPRODUCED)])
def test_the_law_of_x_k_is_judged_once_settled(ours, verdict):
    claims = table2_claims.claims(cells(dict.fromkeys(mixture.SAMPLERS, 0.5)), laws(ours, 1.0), pilots(), scale())
    settled = [claim for claim in claims if "law of x_K" in claim.claim]
    assert [claim.verdict for claim in settled] == [verdict] * 2
    assert [claim.measured for claim in settled] == pytest.approx([ours] * 2)


@pytest.mark.parametrize(("ours", "verdict"), [(0.55, Verdict.REPRODUCED), (1.5, Verdict.NOT_REPRODUCED)])
def test_the_rate_of_changing_modes_is_similar_within_a_factor(ours, verdict):
    levels = {"SGLD": 0.5, "pSGLD": 0.5, "LS-SGLD": ours, "LS-pSGLD": 0.5}
    claim = table2_claims.claims(cells(levels), laws(0.5, 1.0), pilots(), scale())[-1]
    assert claim.verdict == verdict
    assert claim.measured == pytest.approx(ours / 0.5, rel=0.05)


def test_the_autocorrelation_time_of_the_mode_is_in_iterates(small):
    """A mode that changes with probability p from draw to draw has τ = (1 − p)/(2p) draws; two iterates a draw."""
    rng, p = np.random.default_rng(0), 0.05
    side = np.cumprod(np.where(rng.uniform(size=(50, 4000)) < p, -1, 1), axis=1)
    tau = table2._tau(np.stack([side, side], axis=-1))
    assert tau.shape == (50,)
    assert tau.mean() == pytest.approx((1 - p) / p, rel=0.06)


def test_a_trapped_reference_is_noticed():
    levels = dict.fromkeys(mixture.SAMPLERS, 0.5)
    good, bad = (
        table2_claims.claims(cells(levels), laws(0.5, 1.0), pilots(), scale(share=share))[0]
        for share in (scale().share, scale().share - 0.02)
    )
    assert good.verdict == Verdict.REPRODUCED
    assert bad.verdict == Verdict.NOT_REPRODUCED


def test_the_kernel_density_has_x_along_its_columns_and_sums_to_one():
    points = np.random.default_rng(0).normal([2.0, -1.0], 0.5, (500, 2)).astype(np.float32)
    axis = np.linspace(-6, 6, 61)
    density = figure2.kernel_density(points, axis)
    row, column = np.unravel_index(density.argmax(), density.shape)
    assert abs(axis[column] - 2) < 0.5
    assert abs(axis[row] + 1) < 0.5
    assert density.sum() * 0.2**2 == pytest.approx(1, abs=0.01)


# The whole experiments


def test_figure_2_has_its_claims_tables_and_pictures(small):
    made = figure2.run(quick=True, seed=0, size=TINY)
    assert len(made.claims) == 8 + 2 * 3
    assert len(made.tables["distances"]) == 4 * (3 + 1 + 1)
    assert len(made.tables["grid"]) == 4 * 2
    assert all(np.isfinite([claim.measured, *claim.interval]).all() for claim in made.claims)
    panels = {name: len(figure.axes) for name, figure in made.figures.items()}
    assert panels == {"densities-density-best": 16, "densities-density-small": 8, "densities-printed-best": 8}


def test_table_2_has_its_claims_tables_and_pictures(small, tmp_path):
    size = replace(TINY, all_stops=True, large=True)
    made = table2.run(quick=False, seed=0, size=size)
    assert len(made.claims) == 1 + 3 + 3 * (9 + 6) + 3
    assert len(made.tables["distances"]) == 3 * 4 * 3
    assert all(np.isfinite(row["once"]) for row in made.tables["distances"])
    assert {row["w2 of"] for row in made.tables["scale"]} >= {"two references", "two references of 10 K points"}
    assert len(made.tables["law"]) == 4 * 2 * 3
    assert {claim.verdict for claim in made.claims if claim.paper == "9.000"} == {Verdict.NOT_REPRODUCED}
    assert all(np.isfinite([claim.measured, *claim.interval]).all() for claim in made.claims)
    result.write(made, tmp_path)
    assert len(list((tmp_path / "table2").glob("*.svg"))) == 3


def test_in_quick_there_is_no_large_transport_and_the_other_settings_have_one_stop(small):
    made = table2.run(quick=True, seed=0, size=TINY)
    assert all(np.isnan(row["once"]) for row in made.tables["distances"])
    stops = [row["iterates"] for row in made.tables["distances"] if row["setting"] != BEST.label]
    assert set(stops) == {200}
    assert len(made.claims) == 1 + 3 + (9 + 6) + 2 * (3 + 2) + 3


def test_a_killed_experiment_goes_on_with_what_is_missing(small, tmp_path, monkeypatch):
    parts = Parts.of(tmp_path, "figure2", quick=True, seed=0)
    true, calls = mixture_chains.walk, []

    def walk(*arguments):
        calls.append(arguments)
        if len(calls) == 4:
            raise KeyboardInterrupt
        return true(*arguments)

    monkeypatch.setattr(mixture_chains, "walk", walk)
    with pytest.raises(KeyboardInterrupt):
        figure2.run(quick=True, seed=0, size=TINY, parts=parts)
    kept = len(list(parts.folder.glob("*-*.npz"))) - len(list(parts.folder.glob("grid-*.npz")))
    assert 1 <= kept < 12
    before = len(calls)
    calls += [None] * 4  # past the kill
    resumed = figure2.run(quick=True, seed=0, size=TINY, parts=parts)
    assert len(calls) - before - 4 == 12 - kept
    whole = figure2.run(quick=True, seed=0, size=TINY)
    assert resumed.tables == whole.tables
    assert resumed.claims == whole.claims
