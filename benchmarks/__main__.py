"""The command `python -m benchmarks`: measure, print ratios, and write JSON with host, versions and commit."""

import argparse
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks import host
from benchmarks.timing import FULL, TINY, GateError, Size

RESULTS = Path(__file__).parent / "results"


def _named() -> dict[str, Callable[[Size], dict[str, Any]]]:
    from benchmarks import cnn, compiling, efficiency, floor, logistic, modes, vectors

    return {
        "blr": logistic.blr,
        "chains": logistic.chains,
        "smoothing": vectors.smoothed_step,
        "flat": vectors.flat,
        "noise": vectors.noise,
        "cnn": cnn.cnn,
        "mixture": modes.mixture,
        "compile": compiling.compiling,
        "efficiency": efficiency.efficiency,
        "floor": floor.floor,
    }


def main(arguments: list[str] | None = None) -> int:
    """Run the benchmarks that are named, all without a name."""
    named = _named()
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(named))
    parser.add_argument("--json", action="store_true", help="one object per benchmark on the last line")
    parser.add_argument("--tiny", action="store_true", help="does it run? numbers mean nothing")
    parser.add_argument("--out", type=Path, help="folder for a JSON file of each; benchmarks/results unless --tiny")
    asked = parser.parse_args(arguments)
    if unknown := sorted(set(asked.names) - set(named)):
        parser.error(f"no benchmark is called {', '.join(unknown)}; the names are {', '.join(named)}")
    size, out = (TINY, asked.out) if asked.tiny else (FULL, asked.out or RESULTS)
    found = []
    for name in asked.names or named:
        try:
            found.append(_run(name, named[name], size, out))
        except GateError as error:
            print(f"{name}: {error}", file=sys.stderr)
            return 1
    if asked.json:
        print(json.dumps(found))
    return 0


def _run(name: str, benchmark: Callable[[Size], dict[str, Any]], size: Size, out: Path | None) -> dict[str, Any]:
    began = time.perf_counter()
    result = {"name": name, "host": host.describe(), "tiny": size.tiny, **benchmark(size)}
    result["took"] = time.perf_counter() - began
    print(f"{name} ({result['unit']})")
    _show({key: value for key, value in result.items() if key not in ("name", "host", "tiny", "unit")}, "  ")
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        (out / f"{name}.json").write_text(json.dumps(result, indent=1) + "\n")
    return result


def _show(found: Any, margin: str) -> None:
    """Indented lines; a table's rows as time, spread and ratio."""
    for key, value in found.items():
        if isinstance(value, dict):
            print(f"{margin}{key}")
            _show(value, margin + "  ")
        elif isinstance(value, list) and value and "ratio" in value[0]:
            print(f"{margin}{key}")
            for row in value:
                print(f"{margin}  {_line(row)}")
        elif isinstance(value, list):
            for row in value:
                print(f"{margin}{json.dumps(row)}")
        else:
            print(f"{margin}{key}: {value if isinstance(value, str) else f'{value:.4g}'}")


def _line(row: dict[str, Any]) -> str:
    return (
        f"{row['name']:24} {row['seconds']:.4g} s ({row['least']:.4g} to {row['most']:.4g}), {row['per_second']:.4g}/s,"
        f" ratio {row['ratio']:.3g} ({row['ratio_least']:.3g} to {row['ratio_most']:.3g})"
    )


if __name__ == "__main__":
    sys.exit(main())
