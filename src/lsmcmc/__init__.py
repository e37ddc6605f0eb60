"""lsmcmc: sample Bayesian posteriors from minibatches, with Laplacian smoothing.

posterior.py        what is sampled
gradients.py        how ∇U is estimated
preconditioners.py  the linear map B
dynamics.py         how a unit-mass particle moves
equation.py         the one equation: a dynamics seen through a preconditioner
samplers.py         names for compositions
timetable.py        which steps of a run keep a draw; cyclical.py has one
sampling.py         `ls.sample`; its compiled half is loop.py, its Python half driver.py
runs/               a run on disk
"""

from lsmcmc import data, diagnostics, models, privacy, smoothing, theory
from lsmcmc.anchored import SVRG, ControlVariate
from lsmcmc.cyclical import cyclical
from lsmcmc.dynamics import Dynamics, Overdamped
from lsmcmc.equation import Info, Sampler, State
from lsmcmc.glm import GLM
from lsmcmc.gradients import FullBatch, FunctionOracle, GradientEstimator, Minibatch, Oracle
from lsmcmc.keeping import Moments
from lsmcmc.lowrank import LowRank
from lsmcmc.mode import find_mode
from lsmcmc.optimisers import dp_lssgd, laplacian_smoothing
from lsmcmc.posterior import Posterior, Target
from lsmcmc.preconditioners import Identity, Laplacian, PerLeaf, Preconditioner, Product, RMSprop
from lsmcmc.run import DivergenceError, Run
from lsmcmc.runs import RunWarning, load
from lsmcmc.saga import SAGA
from lsmcmc.samplers import (
    amagold,
    baoab,
    hmc,
    lmc,
    ls_psgld,
    ls_sgld,
    mala,
    nuts,
    psgld,
    recipe,
    rwm,
    sghmc,
    sgld,
    sgnht,
    umcmc,
)
from lsmcmc.sampling import sample
from lsmcmc.tempering import tempering
from lsmcmc.timetable import Timetable

__version__ = "0.1.0"

__all__ = [
    "GLM",
    "SAGA",
    "SVRG",
    "ControlVariate",
    "DivergenceError",
    "Dynamics",
    "FullBatch",
    "FunctionOracle",
    "GradientEstimator",
    "Identity",
    "Info",
    "Laplacian",
    "LowRank",
    "Minibatch",
    "Moments",
    "Oracle",
    "Overdamped",
    "PerLeaf",
    "Posterior",
    "Preconditioner",
    "Product",
    "RMSprop",
    "Run",
    "RunWarning",
    "Sampler",
    "State",
    "Target",
    "Timetable",
    "amagold",
    "baoab",
    "cyclical",
    "data",
    "diagnostics",
    "dp_lssgd",
    "find_mode",
    "hmc",
    "laplacian_smoothing",
    "lmc",
    "load",
    "ls_psgld",
    "ls_sgld",
    "mala",
    "models",
    "nuts",
    "privacy",
    "psgld",
    "recipe",
    "rwm",
    "sample",
    "sghmc",
    "sgld",
    "sgnht",
    "smoothing",
    "tempering",
    "theory",
    "umcmc",
]
