"""The benchmarks run at a tiny size, and their gates fail where a contender computes something else."""

import json

import numpy as np
import pytest

import lsmcmc as ls
from benchmarks import __main__ as command
from benchmarks import compiling, modes, problems, timing, vectors
from benchmarks.timing import TINY, Contender, GateError, Size, gate, interleaved, table

SLOW = {"chains", "cnn", "compile", "efficiency", "floor", "mixture"}
NAMES = ["blr", "chains", "smoothing", "flat", "noise", "cnn", "mixture", "compile", "efficiency", "floor"]


def fixed(name, value=1.0, seconds=1.0):
    return Contender(name, lambda count: seconds * count, lambda: value)


@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.slow) if n in SLOW else n for n in NAMES])
def test_each_benchmark_runs_and_prints_one_object_on_its_last_line(name, capsys, tmp_path):
    assert command.main([name, "--tiny", "--json", "--out", str(tmp_path)]) == 0
    (found,) = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert found["name"] == name
    assert {"machine", "cores", "versions", "commit"} <= set(found["host"])
    assert json.loads((tmp_path / f"{name}.json").read_text())["name"] == name


def test_the_names_are_those_of_the_command():
    assert list(command._named()) == NAMES


def test_an_unknown_name_is_refused_with_the_names_there_are(capsys):
    with pytest.raises(SystemExit):
        command.main(["bogus"])
    assert "no benchmark is called bogus; the names are blr, chains," in capsys.readouterr().err


def test_the_gate_lets_equal_values_pass_and_says_how_far_off_they_are():
    assert gate([fixed("a", 1.0), fixed("b", 1.01)], 1.0, 0.02) == pytest.approx({"a": 0.0, "b": 0.01})


@pytest.mark.parametrize("value", [1.1, float("nan"), [1.0, 1.0]])
def test_the_gate_stops_at_a_contender_that_computes_something_else(value):
    with pytest.raises(GateError, match=r"b (is off by|gives 2 numbers)"):
        gate([fixed("a"), fixed("b", value)], 1.0, 0.05)


def test_a_sampler_at_twice_the_temperature_does_not_pass_the_gate_of_blr():
    expected = problems.expected_level(0.0, tiny=True)
    hot = problems.ours("hot", ls.sgld(problems.TINY_STEP_SIZE, temperature=2.0), TINY)
    with pytest.raises(GateError, match="hot is off by"):
        gate([hot], expected, 0.05)


def test_a_gate_that_fails_ends_the_command_with_its_message(monkeypatch, capsys):
    def off(size):
        raise GateError("a is off by 1")

    monkeypatch.setattr(command, "_named", lambda: {"blr": off})
    assert command.main(["blr", "--tiny"]) == 1
    assert "blr: a is off by 1" in capsys.readouterr().err


def test_a_step_of_the_wrong_smoothing_does_not_pass_the_gate_of_smoothing():
    wrong = Contender("wrong", lambda count: 0.0, lambda: vectors._norm(lambda v: ls.smoothing.solve(v, 1.1), 1000))
    with pytest.raises(GateError, match="wrong is off by"):
        gate([wrong], vectors._expected_norm(1000), 1e-4)


def test_a_second_call_that_compiles_again_does_not_pass_the_gate_of_compile(monkeypatch):
    slow = {"first": 2.0, "compile": 1.0, "again": 1.5, "compile_again": 0.9}
    monkeypatch.setattr(compiling, "_fresh", lambda what, tiny: slow)
    with pytest.raises(GateError, match="compiled again"):
        compiling.compiling(TINY)


def test_contenders_take_turns_and_every_other_round_goes_backwards():
    order = []

    def noted(name):
        def seconds(count):
            order.append(name)
            return 1.0

        return Contender(name, seconds, lambda: 0.0)

    interleaved([noted("a"), noted("b")], Size(rounds=2, seconds=0.5))
    assert order[-4:] == ["a", "b", "b", "a"]


def test_ratios_are_medians_over_rounds_of_a_time_in_units_of_ours():
    rows = table({"ours": [1.0, 2.0, 4.0], "theirs": [3.0, 4.0, 20.0]}, "ours")
    assert [row["ratio"] for row in rows] == [1.0, 3.0]
    assert (rows[1]["ratio_least"], rows[1]["ratio_most"]) == (2.0, 5.0)


def test_quadrature_of_the_mixture_is_exact_where_both_modes_are_one():
    assert modes._expected(np.zeros((modes.NUM, 2), np.float32)) == pytest.approx(2.0, abs=1e-6)


def test_counting_lengthens_the_work_until_it_fills_a_timing():
    assert timing._count(fixed("a", seconds=0.01), 0.5) >= 50


def test_pictures_are_drawn_of_the_results_that_are_there(tmp_path):
    from benchmarks import plots

    rows = table({"lsmcmc SGLD": [1.0], "blackjax SGLD": [2.0]}, "lsmcmc SGLD")
    point = {"row_gradients": 10, "error_of_means": 0.1, "error_of_spreads": 0.2}
    (tmp_path / "blr.json").write_text(json.dumps({"rows": rows, "smoothed": rows}))
    (tmp_path / "efficiency.json").write_text(json.dumps({"rows": [{"name": "lsmcmc SGLD", "curve": [point]}]}))
    plots.main(tmp_path, tmp_path / "images")
    assert {path.name for path in (tmp_path / "images").iterdir()} == {"speed-a3a.png", "speed-precision.png"}
