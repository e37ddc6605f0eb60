"""The paper's tables and figures, one module each, with a verdict for every claim."""

from lsmcmc.experiments import figure1, table1, table3
from lsmcmc.experiments.parts import Parts
from lsmcmc.experiments.result import Claim, Experiment, Result, Verdict

EXPERIMENTS: dict[str, Experiment] = {module.NAME: module for module in (table1, figure1, table3)}

__all__ = ["EXPERIMENTS", "Claim", "Experiment", "Parts", "Result", "Verdict"]
