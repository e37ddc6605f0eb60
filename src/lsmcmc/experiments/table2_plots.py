"""The pictures of Table 2: every chain's distance, the law of x_K, and the grid search."""

from typing import Any

import numpy as np

from lsmcmc.experiments import mixture
from lsmcmc.experiments import mixture_chains as chains
from lsmcmc.experiments.mixture_chains import SETTINGS
from lsmcmc.experiments.mixture_steps import Search
from lsmcmc.experiments.table2_claims import COMMON, PRINTED, STOPS, Cell, Law, Scale


def distances(cells: list[Cell], scale: Scale) -> Any:
    """Every chain a dot, the printed numbers as crosses, the floor and the trapped chains as lines."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12, 4.2), layout="constrained")
    names = list(mixture.SAMPLERS)
    for panel, setting in zip(figure.subplots(1, len(SETTINGS), sharey=True), SETTINGS, strict=True):
        own = [cell for cell in cells if cell.setting == setting]
        stops = [stop for stop in STOPS if any(cell.stop == stop for cell in own)]
        for cell in own:
            x = names.index(cell.sampler) + 0.22 * (stops.index(cell.stop) - (len(stops) - 1) / 2)
            spread = np.linspace(-0.06, 0.06, len(cell.distance))
            panel.plot(x + spread, cell.distance, ".", markersize=3, color=f"C{STOPS.index(cell.stop)}")
            if cell.sampler in PRINTED:
                panel.plot(x, PRINTED[cell.sampler][cell.stop], "kx", markersize=6)
        for height, style in ((scale.floor, "-"), (scale.larger, ":"), (scale.smaller, "--"), (scale.opposite, "-.")):
            panel.axhline(height.mean(), color="grey", linewidth=0.8, linestyle=style)
        panel.set_xticks(range(len(names)), names, fontsize=8)
        panel.set_title(f"{setting.label}: {', '.join(map(chains.short, stops))}", fontsize=9)
    figure.axes[0].set_ylabel("W₂ to the reference")
    figure.suptitle(
        "Dots: chains, left to right by number of iterates; crosses: printed. Lines from below: floor, larger mode "
        "alone, smaller mode alone, one mode against the other",
        fontsize=9,
    )
    return figure


def laws(found: list[Law], scale: Scale) -> Any:
    """W₂ of the law of x_K against K."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 4), layout="constrained")
    for panel, own in zip(figure.subplots(1, 2, sharey=True), (True, False), strict=True):
        for color, sampler in enumerate(mixture.SAMPLERS):
            law = next(law for law in found if law.sampler == sampler and (law.own if own else law.eta == COMMON))
            rows = law.rows(scale)
            mean, low, high = (np.array([row[name] for row in rows]) for name in ("w2", "w2_low", "w2_high"))
            label = f"{sampler}, η = {law.eta:g}"
            panel.errorbar(law.counts, mean, [mean - low, high - mean], color=f"C{color}", label=label, linewidth=1)
        panel.axhline(scale.law_floor.mean(), color="grey", linewidth=0.8)
        panel.set_xscale("log")
        panel.set_yscale("log")
        panel.set_xlabel("K")
        panel.set_title("each at its best step" if own else "one step for all", fontsize=9)
        panel.legend(fontsize=8, frameon=False)
    figure.axes[0].set_ylabel("W₂ of the law of x_K (grey: floor)")
    return figure


def grid(steps: dict[str, Search]) -> Any:
    """W₂ of the pilot chains against the step."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 4), layout="constrained")
    panel = figure.subplots()
    for color, (sampler, search) in enumerate(steps.items()):
        rows = search.rows()
        eta, mean, low, high = (np.array([row[name] for row in rows]) for name in ("eta", "w2", "w2_low", "w2_high"))
        panel.errorbar(eta, mean, [mean - low, high - mean], color=f"C{color}", label=sampler, linewidth=1)
    panel.set_xscale("log")
    panel.set_xlabel("step η")
    panel.set_ylabel("W₂ of the last 10 K iterates of a pilot chain")
    panel.legend(fontsize=8, frameon=False)
    return figure
