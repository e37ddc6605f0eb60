"""What an experiment returns, how a claim is judged by numbers, and how both are written to a folder."""

import csv
import json
import os
import platform
import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Protocol

import numpy as np

import lsmcmc
from lsmcmc.experiments.parts import Parts


class Verdict(StrEnum):
    """What the numbers say of a claim."""

    REPRODUCED = "reproduced"
    NOT_REPRODUCED = "not reproduced"
    INCONSISTENT = "paper inconsistent"


CHECK = "a check of this library, not of the paper"  # in the words of a claim that is not the paper's


@dataclass(frozen=True)
class Claim:
    """A sentence of the paper, its number, ours with an interval, and the verdict that follows from them."""

    claim: str
    paper: str
    measured: float
    interval: tuple[float, float]
    verdict: Verdict
    note: str = ""


@dataclass
class Result:
    """One table or figure, reproduced: settings, claims, tables as rows, figures as matplotlib figures."""

    name: str
    title: str
    settings: dict[str, Any]
    claims: list[Claim]
    tables: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    figures: dict[str, Any] = field(default_factory=dict)
    remarks: list[str] = field(default_factory=list)
    intervals: str = ""  # what the claims' intervals are


class Experiment(Protocol):
    """A module that reproduces one table or figure."""

    NAME: str
    TITLE: str
    QUICK: str  # what --quick shortens, to be read after a colon

    def run(self, *, quick: bool, seed: int, parts: Parts = Parts()) -> Result:
        """Do it, keeping finished `parts` where it takes long."""
        ...


def standard_error(values: Any) -> Any:
    """Of the mean of independent replications, along the last axis.

    >>> round(float(standard_error([1.0, 2.0, 3.0])), 2)
    0.58
    """
    x = np.asarray(values, np.float64)
    return x.std(axis=-1, ddof=1) / np.sqrt(x.shape[-1])


def interval_of_mean(values: Any) -> tuple[float, float, float]:
    """Mean of independent replications and its 95 % interval by Student's t.

    >>> tuple(round(v, 2) for v in interval_of_mean([1.0, 2.0, 3.0]))
    (2.0, -0.48, 4.48)
    """
    from scipy.stats import t

    x = np.asarray(values, np.float64)
    half = t.ppf(0.975, len(x) - 1) * standard_error(x)
    return float(x.mean()), float(x.mean() - half), float(x.mean() + half)


def errors_off(values: Any, exact: Any) -> tuple[float, float]:
    """Standard errors from the furthest mean to its exact value, and how many chance exceeds once in a hundred.

    Replications are the last axis of `values`; the furthest of the points before it is judged by Bonferroni's bound.

    >>> tuple(round(v, 2) for v in errors_off([1.0, 2.0, 3.0], 1.0))
    (1.73, 9.92)
    """
    from scipy.stats import t

    points = np.atleast_2d(np.asarray(values, np.float64))
    off = abs(points.mean(-1) - exact) / standard_error(points)
    return float(off.max()), float(t.ppf(1 - 0.01 / (2 * len(points)), points.shape[-1] - 1))


def judge_smaller(claim: str, paper: str, ours: Any, other: Any, note: str = "") -> Claim:
    """The paper says `ours` is smaller than `other`: the ratio of their means, by paired replications.

    Reproduced if the whole 95 % interval of the mean log ratio lies below zero.

    >>> judge_smaller("a < b", "a < b", [1.0, 1.1, 0.9], [2.0, 2.1, 2.2]).verdict
    <Verdict.REPRODUCED: 'reproduced'>
    """
    log_ratio = np.log(np.asarray(ours, np.float64)) - np.log(np.asarray(other, np.float64))
    mean, low, high = (float(np.exp(v)) for v in interval_of_mean(log_ratio))
    verdict = Verdict.REPRODUCED if high < 1 else Verdict.NOT_REPRODUCED
    seen = "Ratio below 1." if high < 1 else "Ratio above 1." if low > 1 else "No difference seen."
    return Claim(claim, paper, mean, (low, high), verdict, f"{seen} {note}".strip())


def judge_higher(claim: str, paper: str, ours: Any, other: Any, note: str = "") -> Claim:
    """The paper says the share `ours` is above `other`: mean difference in percentage points, paired.

    Reproduced if its whole 95 % interval lies above zero.

    >>> judge_higher("a > b", "a > b", [0.91, 0.92, 0.93], [0.8, 0.8, 0.8]).verdict
    <Verdict.REPRODUCED: 'reproduced'>
    """
    mean, low, high = interval_of_mean(100 * (np.asarray(ours, np.float64) - np.asarray(other, np.float64)))
    seen = "Difference above 0." if low > 0 else "Difference below 0." if high < 0 else "No difference seen."
    verdict = Verdict.REPRODUCED if low > 0 else Verdict.NOT_REPRODUCED
    return Claim(claim, paper, mean, (low, high), verdict, f"{seen} {note}".strip())


def judge_below(claim: str, paper: str, values: Any, bound: float, note: str = "") -> Claim:
    """The paper says a number is below `bound`: its mean over independent replications.

    Reproduced if its whole 95 % interval lies below.

    >>> judge_below("a < 1", "a < 1", [0.5, 0.6, 0.4], 1.0).verdict
    <Verdict.REPRODUCED: 'reproduced'>
    """
    mean, low, high = interval_of_mean(values)
    seen = f"Below {bound:g}." if high < bound else f"Above {bound:g}." if low > bound else f"{bound:g} is inside."
    verdict = Verdict.REPRODUCED if high < bound else Verdict.NOT_REPRODUCED
    return Claim(claim, paper, mean, (low, high), verdict, f"{seen} {note}".strip())


def ratio_of_means(ours: Any, other: Any) -> tuple[float, float, float]:
    """mean(ours)/mean(other) of paired replications and its 95 % interval, by the delta method on the log scale.

    For errors whose mean is what counts and whose logarithms have another spread on each side.

    >>> tuple(round(v, 2) for v in ratio_of_means([1.0, 1.2, 0.8], [2.0, 2.0, 2.0]))
    (0.5, 0.3, 0.82)
    """
    from scipy.stats import t

    a, b = np.asarray(ours, np.float64), np.asarray(other, np.float64)
    ratio = a.mean() / b.mean()
    half = t.ppf(0.975, len(a) - 1) * standard_error(a / a.mean() - b / b.mean())
    return float(ratio), float(ratio * np.exp(-half)), float(ratio * np.exp(half))


def judge_similar(claim: str, paper: str, ours: Any, other: Any, factor: float, note: str = "") -> Claim:
    """The paper says `ours` and `other` are alike: reproduced if the interval of the ratio lies within `factor`.

    No difference seen is not enough: few replications would see none.

    >>> judge_similar("a ≈ b", "alike", [1.0, 1.01, 0.99], [1.0, 1.0, 1.02], 1.5).verdict
    <Verdict.REPRODUCED: 'reproduced'>
    """
    ratio, low, high = ratio_of_means(ours, other)
    inside = 1 / factor < low and high < factor
    outside = high < 1 / factor or low > factor
    seen = "Within" if inside else "Outside" if outside else "Perhaps outside"
    verdict = Verdict.REPRODUCED if inside else Verdict.NOT_REPRODUCED
    return Claim(claim, paper, ratio, (low, high), verdict, f"{seen} a factor {factor:g}. {note}".strip())


def write(result: Result, folder: Path, seconds: float = 0.0) -> None:
    """`folder`/NAME with result.json, tables as CSV, figures as PNG and SVG.

    Complete or absent, whenever the process is killed: written beside, then renamed. One process per NAME at a time.
    """
    folder.mkdir(parents=True, exist_ok=True)
    final, scratch, aside = (folder / name for name in (result.name, f".{result.name}-new", f".{result.name}-old"))
    for leftover in (scratch, aside):  # of a killed process
        shutil.rmtree(leftover, ignore_errors=True)
    scratch.mkdir()
    for name, rows in result.tables.items():
        _write_csv(scratch / f"{name}.csv", rows)
    for name, figure in result.figures.items():
        _save_figure(figure, scratch, name)
    record = json.dumps(plain(_record(result, seconds)), indent=1, ensure_ascii=False, allow_nan=False)
    (scratch / "result.json").write_text(record + "\n", encoding="utf-8")
    if final.exists():  # a folder that is not empty cannot be replaced, and one half deleted must not look whole
        os.replace(final, aside)
    os.replace(scratch, final)
    shutil.rmtree(aside, ignore_errors=True)


def read(folder: Path, name: str) -> dict[str, Any] | None:
    """The record of a finished experiment; None where there is none."""
    path = folder / name / "result.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None


def is_finished(folder: Path, name: str, *, quick: bool, seed: int) -> bool:
    """Whether `folder` holds this experiment at these settings by this version of the library."""
    record = read(folder, name)
    wanted = {"quick": quick, "seed": seed, "lsmcmc": lsmcmc.__version__}
    return record is not None and {key: record["settings"].get(key) for key in wanted} == wanted


def plain(value: Any) -> Any:
    """What JSON can say: NumPy values as numbers and lists, numbers that are not finite as null.

    >>> plain({"a": (np.float32(0.5), np.nan), "b": np.arange(2)})
    {'a': [0.5, None], 'b': [0, 1]}
    """
    if isinstance(value, dict):
        return {key: plain(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(entry) for entry in value]
    if isinstance(value, (np.ndarray, np.generic)):
        return plain(value.tolist())
    return None if isinstance(value, float) and not np.isfinite(value) else value


def _record(result: Result, seconds: float) -> dict[str, Any]:
    import jax
    import scipy

    return {
        "name": result.name,
        "title": result.title,
        "settings": result.settings | {"lsmcmc": lsmcmc.__version__},
        "claims": [asdict(claim) for claim in result.claims],
        "intervals": result.intervals,
        "remarks": result.remarks,
        "tables": result.tables,
        "figures": list(result.figures),
        "seconds": round(seconds, 1),
        "versions": {
            "python": platform.python_version(),
            "jax": jax.__version__,
            "numpy": np.__version__,
            "scipy": scipy.__version__,
            "machine": f"{platform.machine()}, {os.cpu_count()} cores, {jax.default_backend()}",
        },
    }


def _save_figure(figure: Any, folder: Path, name: str) -> None:
    import matplotlib

    figure.savefig(folder / f"{name}.png", dpi=150)
    with matplotlib.rc_context({"svg.hashsalt": name}):  # the same file for the same figure
        figure.savefig(folder / f"{name}.svg", metadata={"Date": None})


def _write_csv(path: Path, rows: Sequence[dict[str, Any]]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, fieldnames=list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
