"""The chains of Figure 4: all four samplers on a3a, scored as they go, and the moments of their draws."""

from itertools import pairwise
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array
from numpy.typing import NDArray

import lsmcmc as ls
from lsmcmc.experiments import blr
from lsmcmc.experiments.parts import Arrays

BATCH_SIZE, BURN_IN = 5, 1_000
PARTS, SCORES = ("train", "test"), ("nll", "accuracy")
_BLOCK, _THIN = 5_000, 50  # steps in memory at once; between two draws of the predictive


class Setting(NamedTuple):
    """A sampler; `gradient` is what V of RMSprop is of, ∇U/N (the mean) or ∇U (the sum)."""

    sampler: str
    sigma: float = 0.0
    gradient: str = ""

    @property
    def base(self) -> "Setting":
        """Without smoothing."""
        return Setting(self.sampler.removeprefix("LS-"), 0.0, self.gradient)

    @property
    def step(self) -> float:
        """The paper's."""
        return blr.STEPS[self.base.sampler] * blr.larger(self.sigma)

    @property
    def label(self) -> str:
        """For tables and plots."""
        details = [f"σ = {self.sigma:g}"] * bool(self.sigma) + [f"V of {self.gradient}"] * bool(self.gradient)
        return f"{self.sampler} ({', '.join(details)})" if details else self.sampler

    def make(self, num_examples: int) -> ls.Sampler:
        """With V of ∇U, √V is N times as large: step size and ε of the library, whose V is of ∇U/N, are 1/N of it."""
        scale = 1 / num_examples if self.gradient == "∇U" else 1.0
        h, eps = self.step * scale, 1e-5 * scale
        if self.sampler == "SGLD":
            return ls.sgld(h)
        if self.sampler == "LS-SGLD":
            return ls.ls_sgld(h, sigma=self.sigma)
        return ls.ls_psgld(h, sigma=self.sigma, eps=eps) if self.sigma else ls.psgld(h, eps=eps)


SETTINGS = [
    Setting("SGLD"),
    *[Setting("LS-SGLD", sigma) for sigma in blr.SIGMAS],
    *[
        Setting(sampler, sigma, gradient)
        for gradient in ("∇U/N", "∇U")
        for sampler, sigma in [("pSGLD", 0.0), *[("LS-pSGLD", sigma) for sigma in blr.SIGMAS]]
    ],
]
Found = dict[tuple[Setting, str], Arrays]  # what `chains` gives, by setting and prior


def chains(setting: Setting, prior: str, starts: Array, counts: tuple[int, ...], seed: int) -> Arrays:
    """One chain from each start, scored at `counts` steps; and the mean, sd and predictive of all draws.

    `scores` has axes (seed, count, part, score), of the running average; `predictive` (seed, count), the log loss of
    the averaged probabilities on the test part; V is RMSprop's at the end, empty without.
    """
    posterior = blr.posterior(prior)
    so_far = SoFar()
    scores, predictive = [], []
    state: dict[str, Any] = {"init": starts, "seed": seed}
    for before, count in pairwise((0, *counts)):
        for first in range(before, count, _BLOCK):
            run = ls.sample(
                setting.make(posterior.num_examples),
                posterior,
                **state,
                num_draws=min(_BLOCK, count - first),
                gradient=ls.Minibatch(BATCH_SIZE, "subset"),
                progress=False,
            )
            state = {"state": run.state}
            so_far.add(run.draws, first)
        scores.append(so_far.scores())
        predictive.append(so_far.predictive_loss())
    learned = jax.tree.leaves(run.state.sampler.preconditioner)
    return {
        "scores": np.stack(scores, axis=1),
        "predictive": np.stack(predictive, axis=1),
        "start": np.asarray(starts),
        "mean": so_far.mean,
        "sd": so_far.sd,
        "p": so_far.probabilities().astype(np.float32),
        "V": np.asarray(learned[0]) if setting.gradient else np.zeros(0),
    }


class SoFar:
    """The draws after the burn-in so far: their mean, their spread and their predictive. Before, the last position."""

    def __init__(self) -> None:
        self.count = 0
        self.last: NDArray[np.float64] = np.zeros(0)
        self.total: Any = 0.0
        self.squares: Any = 0.0
        self.log_sum: Any = -np.inf  # of p(yᵢ) of each test row, over every fiftieth draw
        self.num_predicted = 0

    def add(self, draws: NDArray[np.float32], first: int) -> None:
        """Draws of the steps from `first` on, axes (seed, step, d)."""
        self.last = draws[:, -1].astype(np.float64)
        draws = draws[:, max(0, BURN_IN - first) :]
        if draws.shape[1] == 0:
            return
        self.count += draws.shape[1]
        self.total = self.total + draws.sum(1, dtype=np.float64)
        self.squares = self.squares + np.square(draws, dtype=np.float64).sum(1)
        kept = draws[:, ::_THIN]
        X, y = blr.data().test
        log_p = np.asarray(log_of_sums(jnp.asarray(X), jnp.asarray(y), jnp.asarray(kept)), np.float64)
        self.log_sum, self.num_predicted = np.logaddexp(self.log_sum, log_p), self.num_predicted + kept.shape[1]

    @property
    def mean(self) -> NDArray[np.float64]:
        """The running average, (seed, d)."""
        return np.asarray(self.total / self.count) if self.count else self.last

    @property
    def sd(self) -> NDArray[np.float64]:
        """Of the draws, (seed, d)."""
        return np.sqrt((self.squares / self.count - self.mean**2).clip(0))

    def scores(self) -> NDArray[np.float64]:
        """Log loss and accuracy at the running average, (seed, part, score)."""
        return np.stack([_scores(self.mean, *part) for part in blr.data()], axis=1)

    def predictive_loss(self) -> NDArray[np.float64]:
        """Of the averaged probabilities, on the test part, (seed,); of the last position before the burn-in's end."""
        if not self.count:
            return self.scores()[:, 1, 0]
        return np.asarray(np.log(self.num_predicted) - self.log_sum.mean(1))

    def probabilities(self) -> NDArray[np.float64]:
        """The averaged P(y = +1) of each test row, (seed, row)."""
        of_label = np.exp(self.log_sum - np.log(self.num_predicted))
        return np.where(blr.data().test[1] > 0, of_label, 1 - of_label)


@jax.jit
def log_of_sums(X: Array, y: Array, draws: Array) -> Array:
    """Of log Σ_draws p(yᵢ), a seed at a time."""
    return jax.lax.map(lambda own: jax.nn.logsumexp(jax.nn.log_sigmoid(y[:, jnp.newaxis] * (X @ own.T)), axis=1), draws)


def _scores(positions: NDArray[np.float64], X: NDArray[Any], y: NDArray[Any]) -> NDArray[np.float64]:
    margin = y * (positions @ X.T.astype(np.float64))
    return np.stack([np.logaddexp(0, -margin).mean(1), (margin > 0).mean(1)], axis=-1)
