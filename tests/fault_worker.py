"""What the processes of `test_run_faults` do: a small run with everything that a checkpoint must hold."""

import numpy as np
from registry import logistic_regression

import lsmcmc as ls

NUM_DRAWS, CHUNK = 1_500, 50
START = np.zeros(6, np.float32)


def options(num_draws=NUM_DRAWS):
    """Momenta, a preconditioner that learns, reshuffled passes, several chains, statistics and thinned draws."""
    return {
        "num_draws": num_draws,
        "gradient": ls.Minibatch(4, "epochs"),
        "chains": 2,
        "burn_in": 30,
        "thin": 10,
        "seed": 7,
        "chunk": CHUNK,
    }


def sampler():
    return ls.sghmc(1e-2, friction=1.0, preconditioner=ls.RMSprop() @ ls.Laplacian(1.0))


def run(path=None, num_draws=NUM_DRAWS, every=None):
    """`every` seconds it is saved."""
    if every is not None:
        from lsmcmc.runs import saving

        saving._EVERY = every, every
    return ls.sample(sampler(), logistic_regression()[0], START, path=path, **options(num_draws))
