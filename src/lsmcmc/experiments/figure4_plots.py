"""The pictures of Figure 4: scores against iterations as in the paper, and distances to the posterior."""

from typing import Any

import numpy as np

from lsmcmc.experiments.blr_chains import PARTS, SCORES, SETTINGS, Found
from lsmcmc.experiments.result import interval_of_mean


def curves_plot(found: Found, counts: tuple[int, ...], sigma: float) -> Any:
    """The four panels, at one σ: lines are means over seeds, bands their 95 % intervals."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 7), layout="constrained")
    panels = figure.subplots(len(PARTS), len(SCORES), sharex=True)
    shown = [setting for setting in SETTINGS if setting.sigma in (0.0, sigma)]
    for q, part in enumerate(PARTS):
        for s, name in enumerate(("negative log-likelihood", "accuracy")):
            for color, setting in enumerate(shown):
                values = found[setting, "Γ"]["scores"][:, :, q, s]
                mean, low, high = np.array([interval_of_mean(value) for value in values.T]).T
                panels[q, s].plot(counts, mean, ".-", color=f"C{color}", linewidth=1, label=setting.label)
                panels[q, s].fill_between(counts, low.clip(1e-3), high, color=f"C{color}", alpha=0.2)
            panels[q, s].axvline(1_000, color="grey", linewidth=0.6)
            panels[q, s].set_title(f"{name}, {part}", fontsize=9)
            panels[q, s].set_xscale("log")
        panels[q, 0].set_yscale("log")
    for panel in panels[-1]:
        panel.set_xlabel("iterations")
    panels[0, 1].legend(fontsize=7, frameon=False)
    figure.suptitle(
        "Up to the end of the burn-in (grey) at the current position, then at the running average", fontsize=9
    )
    return figure


def distances_plot(rows: list[dict[str, Any]]) -> Any:
    """Of the mean, the sd and the predictive from NUTS, by sampler and prior."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12, 4.6), layout="constrained")
    names = list(dict.fromkeys(row["sampler"] for row in rows))
    for panel, what in zip(figure.subplots(1, 3, sharey=True), ("mean", "sd", "predictive"), strict=True):
        for shift, prior in ((-0.1, "Γ"), (0.1, "N(0, I)")):
            own = [row for row in rows if row["prior"] == prior]
            y = [names.index(row["sampler"]) + shift for row in own]
            centre = np.array([row[what] for row in own])
            spread = np.array(
                [
                    [row[what] - (row[f"{what}_low"] or row[what]), (row[f"{what}_high"] or row[what]) - row[what]]
                    for row in own
                ]
            ).T
            panel.errorbar(centre, y, xerr=spread.clip(0), fmt="o", markersize=4, label=f"prior {prior}")
        panel.set_xscale("log")
        panel.set_title(f"distance of the {what}")
        panel.set_yticks(range(len(names)), names, fontsize=8)
    figure.axes[0].invert_yaxis()
    figure.axes[0].legend(fontsize=8, frameon=False)
    return figure
