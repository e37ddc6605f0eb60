"""The paper's tables and figures, one module each, with a verdict for every claim."""

from lsmcmc.experiments import (
    bounds,
    figure1,
    figure2,
    figure3,
    figure4,
    figure5,
    largest_step,
    overhead,
    table1,
    table2,
    table3,
)
from lsmcmc.experiments.parts import Parts
from lsmcmc.experiments.result import Claim, Experiment, Result, Verdict

_IN_THE_PAPERS_ORDER: tuple[Experiment, ...] = (
    table1,
    figure1,
    figure2,
    table2,
    figure3,
    figure4,
    table3,
    figure5,
    largest_step,  # two claims of the text that no figure shows
    overhead,
    bounds,  # and the theorems, where they can be checked
)
EXPERIMENTS: dict[str, Experiment] = {module.NAME: module for module in _IN_THE_PAPERS_ORDER}

__all__ = ["EXPERIMENTS", "Claim", "Experiment", "Parts", "Result", "Verdict"]
