"""Pictures of benchmarks/results for docs/speed.md: `python -m benchmarks.plots`."""

import json
from pathlib import Path
from typing import Any

from benchmarks.__main__ import RESULTS

IMAGES = Path(__file__).parents[1] / "docs" / "images"


def main(results: Path = RESULTS, images: Path = IMAGES) -> None:
    """Those whose results are there."""
    images.mkdir(parents=True, exist_ok=True)
    if (results / "blr.json").exists():
        rows = [row for key in ("rows", "smoothed") for row in _read(results, "blr")[key]]
        _save(_bars({row["name"]: row for row in rows}), images / "speed-a3a.png")
    if (results / "efficiency.json").exists():
        _save(_curves(_read(results, "efficiency")["rows"]), images / "speed-precision.png")


def _read(results: Path, name: str) -> Any:
    return json.loads((results / f"{name}.json").read_text())


def _bars(rows: dict[str, Any]) -> Any:
    """Steps a second, the whiskers from the slowest to the fastest round."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 0.4 * len(rows) + 1), layout="constrained")
    axes = figure.subplots()
    rate = [row["per_second"] for row in rows.values()]
    low = [row["per_second"] - 1 / row["most"] for row in rows.values()]
    high = [1 / row["least"] - row["per_second"] for row in rows.values()]
    axes.barh(list(rows), rate, xerr=[low, high], color=["C0" if name.startswith("lsmcmc") else "C7" for name in rows])
    axes.set_xscale("log")
    axes.set_xlabel("steps a second, a3a, batch 5, one chain, all draws kept")
    axes.invert_yaxis()
    return figure


def _curves(rows: list[dict[str, Any]]) -> Any:
    """Error of the means and of the spreads against rows read."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 3.5), layout="constrained")
    panels = figure.subplots(1, 2, sharex=True)
    for panel, what in zip(panels, ("means", "spreads"), strict=True):
        for row in rows:
            curve = row["curve"]
            work, error = [c["row_gradients"] for c in curve], [c[f"error_of_{what}"] for c in curve]
            panel.loglog(work, error, "o-", markersize=4, label=row["name"])
        panel.set_xlabel("gradients of one row")
        panel.set_title(f"error of {what}, root mean square")
    panels[0].legend(frameon=False)
    return figure


def _save(figure: Any, path: Path) -> None:
    figure.savefig(path, dpi=110, metadata={"Software": None})


if __name__ == "__main__":
    main()
