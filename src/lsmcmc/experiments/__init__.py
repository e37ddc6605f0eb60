"""The paper's tables and figures, one module each, with a verdict for every claim."""

from lsmcmc.experiments import (
    figure1,
    figure2,
    figure3,
    figure5,
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
    table3,
    figure5,
    overhead,
)
EXPERIMENTS: dict[str, Experiment] = {module.NAME: module for module in _IN_THE_PAPERS_ORDER}

__all__ = ["EXPERIMENTS", "Claim", "Experiment", "Parts", "Result", "Verdict"]
