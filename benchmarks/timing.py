"""How everything is timed: a gate first, then all contenders in turn, round after round, in one run."""

import statistics
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


class GateError(Exception):
    """A contender computes something else than the others: its speed means nothing."""


@dataclass(frozen=True)
class Contender:
    """Something to time: `seconds(count)` does the work `count` times and says how long that took.

    `value()` is what the gate compares, one number or a list of them.
    """

    name: str
    seconds: Callable[[int], float]
    value: Callable[[], Any]


@dataclass(frozen=True)
class Size:
    """How much is measured: rounds, the seconds of one timing, and a divisor of the problems' sizes for tests."""

    rounds: int = 5
    seconds: float = 0.25
    tiny: bool = False


FULL, TINY = Size(), Size(rounds=1, seconds=0.001, tiny=True)


def gate(contenders: list[Contender], expected: Any, tolerance: float) -> dict[str, float]:
    """The largest relative error of each contender's value; raises where one is above the tolerance."""
    wanted = _as_list(expected)
    errors = {}
    for contender in contenders:
        found = _as_list(contender.value())
        if len(found) != len(wanted):
            raise GateError(f"{contender.name} gives {len(found)} numbers, {len(wanted)} are expected.")
        error = max(abs(f - w) / max(abs(w), 1e-12) for f, w in zip(found, wanted, strict=True))
        if not error <= tolerance:
            raise GateError(
                f"{contender.name} is off by {error:.3g}, more than {tolerance:.3g}: it gives {found}, expected is "
                f"{wanted}. It is not timed, and neither are the others."
            )
        errors[contender.name] = error
    return errors


def interleaved(contenders: list[Contender], size: Size) -> dict[str, list[float]]:
    """Seconds of one unit of work in every round, all contenders in turn, the order reversed every other round."""
    counts = {c.name: _count(c, size.seconds) for c in contenders}
    seconds: dict[str, list[float]] = {c.name: [] for c in contenders}
    for number in range(size.rounds):
        for c in contenders[:: -1 if number % 2 else 1]:
            seconds[c.name].append(c.seconds(counts[c.name]) / counts[c.name])
    return seconds


def _count(contender: Contender, seconds: float) -> int:
    """How often the work fits the time of one timing; warms up."""
    contender.seconds(1)
    count = 1
    while (took := contender.seconds(count)) < seconds and count < 2**24:
        count = max(count + 1, int(count * min(8.0, 1.1 * seconds / max(took, 1e-9))))
    return count


def table(seconds: dict[str, list[float]], ours: str, errors: dict[str, float] | None = None) -> list[dict[str, Any]]:
    """A row per contender: median, spread, and the median over rounds of its time in units of ours."""
    rows = []
    for name, values in seconds.items():
        ratios = [v / o for v, o in zip(values, seconds[ours], strict=True)]
        rows.append(
            {
                "name": name,
                "seconds": statistics.median(values),
                "least": min(values),
                "most": max(values),
                "per_second": 1 / statistics.median(values),
                "ratio": statistics.median(ratios),
                "ratio_least": min(ratios),
                "ratio_most": max(ratios),
                **({} if errors is None or name not in errors else {"gate_error": errors[name]}),
            }
        )
    return rows


def compared(contenders: list[Contender], expected: Any, tolerance: float, size: Size) -> list[dict[str, Any]]:
    """Gate, timing and table; the first contender is ours."""
    errors = gate(contenders, expected, tolerance)
    return table(interleaved(contenders, size), contenders[0].name, errors)


def _as_list(value: Any) -> list[float]:
    return [float(v) for v in value] if isinstance(value, (list, tuple)) else [float(value)]
