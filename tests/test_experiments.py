"""The experiments: values against closed forms, verdicts that follow from numbers, results that survive a kill."""

import json
from html.parser import HTMLParser

import numpy as np
import pytest

import lsmcmc as ls
from lsmcmc.experiments import EXPERIMENTS, Claim, Parts, Result, Verdict, figure1, report, result, table1


@pytest.fixture
def small(monkeypatch):
    """Figure 1 at two step sizes, on short chains."""
    for name, value in {"NUM_DRAWS": 4000, "BURN_IN": 200, "QUICK_SEEDS": 12, "FACTORS": (1.0, 0.8)}.items():
        monkeypatch.setattr(figure1, name, value)


def made_up(verdict=Verdict.REPRODUCED, **changes):
    """A result without an experiment."""
    claim = Claim("a < b & c", '"<1>"', 0.5, (0.25, float("nan")), verdict, "<script>alert(1)</script>")
    settings = {"quick": True, "seed": 0, "sizes": np.array([1, 2]), "step": np.float32(0.5)}
    fields = {"name": "table1", "title": "A <title>", "settings": settings, "claims": [claim]}
    fields["tables"] = {"rows": [{"a": 1.5, "b": None}, {"a": float("inf"), "b": "x,y"}]}
    return Result(**(fields | changes))


def figure():
    from matplotlib.figure import Figure

    drawn = Figure(figsize=(2, 1))
    drawn.subplots().plot([0, 1])
    return drawn


# Table 1


def test_both_readings_of_table_1_have_their_closed_forms():
    rows = table1.run(quick=True, seed=0).tables["gamma2"]
    assert len(rows) == 15
    for row in rows:
        sigma = row["sigma"]
        assert row["mean_inverse"] == pytest.approx(1 / np.sqrt(1 + 4 * sigma), rel=1e-6)
        assert row["mean_inverse_square"] == pytest.approx((1 + 2 * sigma) / (1 + 4 * sigma) ** 1.5, rel=1e-6)
        assert row["mean_inverse_closed"] == pytest.approx(row["mean_inverse"], rel=1e-6)


def test_table_1_prints_another_quantity_than_theorem_1_defines():
    *claims, same = table1.run(quick=True, seed=0).claims
    assert {claim.verdict for claim in claims} == {Verdict.INCONSISTENT}
    assert [round(claim.measured, 3) for claim in claims] == [0.447, 0.333, 0.277, 0.243, 0.218]
    assert same.verdict == Verdict.REPRODUCED


@pytest.mark.parametrize(
    ("printed", "verdict"),
    [(0.447, Verdict.REPRODUCED), (0.268, Verdict.INCONSISTENT), (0.3, Verdict.NOT_REPRODUCED)],
)
def test_the_verdict_of_table_1_follows_the_printed_value(monkeypatch, printed, verdict):
    monkeypatch.setitem(table1.PRINTED, 1, printed)
    assert table1.run(quick=True, seed=0).claims[0].verdict == verdict


# Judging


def test_the_interval_of_a_mean_is_that_of_students_t():
    from scipy.stats import t

    x = np.random.default_rng(0).normal(size=9)
    interval = t.interval(0.95, 8, loc=x.mean(), scale=x.std(ddof=1) / 3)
    np.testing.assert_allclose(result.interval_of_mean(x), (x.mean(), *interval))


def test_the_interval_of_a_mean_covers_it_95_times_in_a_hundred():
    """4,000 intervals: the share covered has a standard error of 0.35 %."""
    draws = np.random.default_rng(0).normal(size=(4000, 5))
    intervals = np.array([result.interval_of_mean(x) for x in draws])
    assert np.mean((intervals[:, 1] < 0) & (intervals[:, 2] > 0)) == pytest.approx(0.95, abs=0.014)


@pytest.mark.parametrize(
    ("factor", "verdict", "note"),
    [
        (0.5, "reproduced", "Ratio below 1."),
        (2.0, "not reproduced", "Ratio above 1."),
        (1.0, "not reproduced", "No difference seen."),
    ],
)
def test_smaller_is_judged_by_the_interval_of_the_ratio(factor, verdict, note):
    rng = np.random.default_rng(0)
    ours, other = factor * np.exp(rng.normal(0, 0.1, 10)), np.exp(rng.normal(0, 0.1, 10))
    claim = result.judge_smaller("ours < other", "smaller", ours, other)
    assert claim.verdict == verdict
    assert claim.note.startswith(note)
    assert claim.interval[0] < claim.measured < claim.interval[1]
    assert claim.measured == pytest.approx(np.exp(np.mean(np.log(ours / other))))


# Figure 1


def test_figure_1_lies_on_the_exact_curve_and_has_a_row_per_setting(small):
    found = figure1.run(quick=True, seed=0)
    rows = found.tables["points"]
    assert len(rows) == 2 * (1 + 1 + 2 + 2)
    assert [claim.verdict for claim in found.claims[:2]] == [Verdict.REPRODUCED] * 2
    assert all((row["mse_exact"] is None) == ("pSGLD" in row["sampler"]) for row in rows)
    assert all(row["mse_low"] < row["mse"] < row["mse_high"] for row in rows)
    assert found.settings["seeds"] == 12


def test_a_sampler_off_the_exact_curve_is_noticed(small, monkeypatch):
    """Negative control: the curve is that of a step size a tenth smaller."""
    points = figure1._points(12, 0)
    assert figure1._on_the_curve(points, "mse").verdict == Verdict.REPRODUCED
    true = figure1.exact
    monkeypatch.setattr(figure1, "exact", lambda sampler, h: true(sampler, 0.9 * h))
    for what in ("mse", "tau"):
        assert figure1._on_the_curve(points, what).verdict == Verdict.NOT_REPRODUCED


def test_figure_1_gives_the_same_numbers_for_the_same_seed(small, monkeypatch):
    monkeypatch.setattr(figure1, "NUM_DRAWS", 1000)
    first, again, other = ([point.row() for point in figure1._points(3, seed)] for seed in (1, 1, 2))
    assert first == again != other


def test_each_chains_autocorrelation_time_averages_to_the_truth():
    """x' = 0.9x + ε has τ = 9.5; 200 chains of 3,000 draws: the mean has a standard error near 0.7 %."""
    from scipy.signal import lfilter

    noise = np.random.default_rng(0).normal(size=(200, 3200))
    draws = lfilter([1.0], [1.0, -0.9], noise, axis=1)[:, 200:]
    tau = ls.diagnostics.autocorrelation_time(draws, mean=0.0, per_chain=True)
    assert tau.shape == (200,)
    assert tau.mean() == pytest.approx(9.5, rel=0.03)
    assert tau.mean() == pytest.approx(ls.diagnostics.autocorrelation_time(draws, mean=0.0), rel=0.02)


@pytest.mark.parametrize("shape", [(1, 1), (2, 2), (2, 7, 3), (1, 1500, 2, 2), (3, 5001)])
@pytest.mark.parametrize("walk", [False, True])
def test_the_autocorrelation_time_is_that_of_all_lags(shape, walk):
    """Against the sum over every lag by numpy; a random walk needs more lags than are computed at first."""
    x = np.random.default_rng(0).normal(size=shape)
    x = x.cumsum(1) if walk else x
    n = shape[1]
    flat = x.reshape(*shape[:2], -1)
    for i in range(flat.shape[-1]):
        a = np.mean([np.correlate(c, c, "full")[n - 1 :] / n for c in flat[..., i]], axis=0)
        pairs = a[: n // 2 * 2].reshape(-1, 2).sum(1)
        stop = np.argmax(np.append(pairs, -1) <= 0)
        found = ls.diagnostics.autocorrelation_time(x, mean=0.0).reshape(-1)[i]
        assert found == pytest.approx(pairs[:stop].sum() / a[0] - 0.5, rel=1e-6)


# Results on disk


def test_a_result_is_json_without_nan(tmp_path):
    result.write(made_up(), tmp_path, 1.25)

    def refuse(token):
        raise AssertionError(token)

    record = json.loads((tmp_path / "table1/result.json").read_text(encoding="utf-8"), parse_constant=refuse)
    assert record["settings"] == {"quick": True, "seed": 0, "sizes": [1, 2], "step": 0.5, "lsmcmc": ls.__version__}
    assert record["claims"][0]["interval"] == [0.25, None]
    assert set(record["claims"][0]) == {"claim", "paper", "measured", "interval", "verdict", "note"}
    assert record["tables"]["rows"][1]["a"] is None
    assert record == result.read(tmp_path, "table1")
    assert '"x,y"' in (tmp_path / "table1/rows.csv").read_text(encoding="utf-8")


def test_figures_are_written_as_png_and_as_the_same_svg_each_time(tmp_path):
    for folder in ("a", "b"):
        result.write(made_up(figures={"plot": figure()}), tmp_path / folder)
    assert (tmp_path / "a/table1/plot.png").read_bytes().startswith(b"\x89PNG")
    first, second = ((tmp_path / folder / "table1/plot.svg").read_bytes() for folder in "ab")
    assert b"<svg" in first
    assert first == second


def test_a_figure_may_have_a_point_in_its_name(tmp_path):
    result.write(made_up(figures={"at-0.5": figure(), "at-0.7": figure()}), tmp_path)
    names = {f"at-0.{i}.{kind}" for i in (5, 7) for kind in ("png", "svg")}
    assert names <= {path.name for path in (tmp_path / "table1").iterdir()}
    assert report.page(tmp_path).count("at-0.5") > 0


@pytest.mark.parametrize("failing", ["scratch", "aside", "cleaning"])
def test_a_kill_while_writing_leaves_the_old_result_the_new_one_or_none(tmp_path, monkeypatch, failing):
    result.write(made_up(), tmp_path)
    new = made_up(Verdict.NOT_REPRODUCED)
    with monkeypatch.context() as patch:
        if failing == "scratch":
            patch.setattr(result, "_write_csv", kill)
        elif failing == "aside":
            patch.setattr(result.os, "replace", once(result.os.replace))
        else:
            patch.setattr(result.shutil, "rmtree", kill_if_present)
        with pytest.raises(KeyboardInterrupt):
            result.write(new, tmp_path)
    left = result.read(tmp_path, "table1")
    expected = {"scratch": "reproduced", "aside": None, "cleaning": "not reproduced"}[failing]
    assert (left and left["claims"][0]["verdict"]) == expected
    result.write(new, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["table1"]


def kill(*_, **__):
    raise KeyboardInterrupt


def kill_if_present(path, **_):
    if path.exists():
        raise KeyboardInterrupt


def once(function):
    calls = iter([function, kill])
    return lambda *args: next(calls)(*args)


@pytest.mark.parametrize(
    ("quick", "seed", "version", "finished"),
    [(True, 0, None, True), (False, 0, None, False), (True, 1, None, False), (True, 0, "0.0.0", False)],
)
def test_a_result_counts_as_finished_only_at_the_same_settings(tmp_path, monkeypatch, quick, seed, version, finished):
    assert not result.is_finished(tmp_path, "table1", quick=True, seed=0)
    result.write(made_up(), tmp_path)
    if version:
        monkeypatch.setattr(ls, "__version__", version)
    assert result.is_finished(tmp_path, "table1", quick=quick, seed=seed) == finished


# The report


class Links(HTMLParser):
    """What a page refers to, and which tags it leaves open."""

    def __init__(self):
        super().__init__()
        self.links, self.open, self.tags = [], [], set()

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.links += [value for name, value in attrs if name in ("src", "href")]
        if tag not in ("meta", "img"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_the_report_is_one_well_formed_file_that_refers_to_nothing_outside(tmp_path):
    result.write(made_up(figures={"plot": figure()}), tmp_path)
    path = report.write(tmp_path)
    text = path.read_text(encoding="utf-8")
    page = Links()
    page.feed(text)
    assert page.open == []
    assert page.links
    assert all(link.startswith(("#", "data:image/svg+xml;base64,")) for link in page.links)
    assert "script" not in page.tags
    assert "&lt;script&gt;alert(1)" in text
    assert "A &lt;title&gt;" in text
    assert "url(" not in text
    assert f"Not in this folder: {', '.join(name for name in EXPERIMENTS if name != 'table1')}" in text
    assert sorted(p.name for p in tmp_path.iterdir()) == ["report.html", "table1"]


@pytest.mark.parametrize("verdict", list(Verdict))
def test_the_report_says_each_verdict_in_words_and_by_colour(tmp_path, verdict):
    result.write(made_up(verdict), tmp_path)
    style, mark = {"reproduced": ("yes", "✓"), "not reproduced": ("no", "✗"), "paper inconsistent": ("odd", "≠")}[
        verdict
    ]
    row = report.page(tmp_path).split("<h3>Claims</h3>")[1]
    assert f'<span class="{style}">{mark} {verdict}</span>' in row
    assert "[0.25, –]" in row
    assert "&quot;&lt;1&gt;&quot;" in row


def test_checks_of_the_library_are_not_counted_as_claims_of_the_paper(tmp_path):
    check = Claim(f"the law is exact ({result.CHECK})", "–", 1.0, (0.9, 1.1), Verdict.REPRODUCED)
    failed = Claim(f"the other too ({result.CHECK})", "–", 1.0, (0.9, 1.1), Verdict.NOT_REPRODUCED)
    result.write(made_up(claims=[*made_up().claims, check, failed]), tmp_path)
    summary, claims = report.page(tmp_path).split("<h3>Claims</h3>")
    assert '<span class="yes">1</span>' in summary
    assert '<span class="no">1 of 2</span>' in summary
    paper, own = claims.split("<h3>Checks of this library</h3>")
    assert "the law is exact" not in paper
    assert "the law is exact" in own
    assert own.count("✓ passed") == own.count("✗ failed") == 1
    assert "reproduced" not in own.split("</table>")[0]


# Parts of a long experiment


def test_a_finished_part_is_read_back_and_not_made_again(tmp_path):
    parts = Parts.of(tmp_path, "figure5", quick=True, seed=0)
    made = []

    def make():
        made.append(1)
        return {"x": np.arange(3), "loss": np.float32([0.5])}

    first, again = parts.get("sgld", make), parts.get("sgld", make)
    assert made == [1]
    for name in first:
        np.testing.assert_array_equal(first[name], again[name])
    assert first.keys() == again.keys()
    parts.forget()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("changed", [{"seed": 1}, {"quick": False}])
def test_parts_of_other_settings_are_not_taken(tmp_path, changed):
    Parts.of(tmp_path, "figure5", quick=True, seed=0).get("a", lambda: {"x": np.zeros(1)})
    other = Parts.of(tmp_path, "figure5", **({"quick": True, "seed": 0} | changed))
    assert other.get("a", lambda: {"x": np.ones(1)})["x"] == 1


def test_a_part_killed_while_it_is_written_is_made_again(tmp_path, monkeypatch):
    parts = Parts(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(np, "savez", kill)
        with pytest.raises(KeyboardInterrupt):
            parts.get("a", lambda: {"x": np.zeros(1)})
    assert parts.get("a", lambda: {"x": np.ones(1)})["x"] == 1
