"""Ready models, each `init(key)`, `log_likelihood(position, batch)`, `log_prior(position)`, `predict(position, X)`.

A model is a frozen module: it can be hashed, so `jax.jit(model.predict)` works, and a model made again
with the same arguments is equal to the first and runs the same compiled program.
"""

from lsmcmc.models._logistic import Logistic, logistic
from lsmcmc.models._mnist_cnn import MnistCNN, mnist_cnn
from lsmcmc.models._priors import GammaPrior, NormalPrior, gamma_prior, normal_prior

__all__ = [
    "GammaPrior",
    "Logistic",
    "MnistCNN",
    "NormalPrior",
    "gamma_prior",
    "logistic",
    "mnist_cnn",
    "normal_prior",
]
