"""A chain of a network, scored as it goes: the network at the average of its positions, and the averaged predictive."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree
from numpy.typing import NDArray

import lsmcmc as ls
from lsmcmc.data import Dataset
from lsmcmc.experiments.parts import Arrays

PREDICTORS, PARTS, SCORES = ("average", "predictive"), ("train", "test"), ("nll", "accuracy", "ece")
_DRAWS = 2  # for the predictive, between two scores
_ROWS = 100  # images in memory at once


@dataclass(frozen=True)
class Size:
    """How long the chains are, and how often and on how much they are scored."""

    seeds: int
    long: int  # scores of the first seed
    short: int  # of the others
    steps: int  # between two scores
    burn_in: int  # in steps
    images: int  # of the training set, and of the test set, that are scored


@dataclass(frozen=True)
class Problem:
    """A network, its posterior, and the images that it is scored on."""

    model: Any
    posterior: ls.Posterior
    scored: tuple[tuple[Array, NDArray[Any]], ...]  # (X, y) of the training and of the test part
    batch_size: int

    @staticmethod
    def of(model: Any, data: Dataset, batch_size: int, images: int) -> "Problem":
        """Scored on the same `images` of each part in every run, drawn once."""
        rng = np.random.default_rng(0)
        scored = []
        for X, y in data:
            rows = rng.choice(len(y), min(images, len(y)), replace=False)
            scored.append((jnp.asarray(X[rows]), y[rows]))
        posterior = ls.Posterior(model.log_likelihood, model.log_prior, data=data.train)
        return Problem(model, posterior, tuple(scored), batch_size)


Found = dict[tuple[str, str, int], Arrays]  # what `chain` gives, by sampler, temperature and seed


def over_seeds(found: Found, sampler: str, temperature: str, row: int) -> NDArray[np.float64]:
    """The scores of a setting at one row, (seed, predictor, part, score)."""
    return np.array([a["scores"][row] for (s, t, _), a in found.items() if (s, t) == (sampler, temperature)])


def last_common(chains: Iterable[Arrays], most: int) -> int:
    """The last of the first `most` rows at which all of these are finite; 0, the first, if there is none."""
    finite = np.array([np.isfinite(arrays["scores"][:most]).all((1, 2, 3)) for arrays in chains]).all(0)
    return int(np.flatnonzero(finite).max(initial=0))


def chain(
    problem: Problem, sampler: ls.Sampler, size: Size, rows: int, key: Array, advance: Callable[[int], None]
) -> Arrays:
    """One chain, scored `rows` times; where it leaves the finite numbers the rest is NaN.

    `scores` has axes (row, predictor, part, score); `nll` and `right` are those of each test image, (row, predictor,
    image); `diverged` is the step at which it left, or −1.
    """
    predictors, between = _Predictors(problem), size.steps // _DRAWS
    scores = np.full((rows, len(PREDICTORS), len(PARTS), len(SCORES)), np.nan)
    nll = np.full((rows, len(PREDICTORS), len(problem.scored[1][1])), np.nan, np.float32)
    right, diverged = np.zeros(nll.shape, bool), -1
    start: dict[str, Any] = {"init": problem.model.init, "seed": key}
    try:
        for k in range(1, rows * _DRAWS + 1):
            run = ls.sample(
                sampler,
                problem.posterior,
                **start,
                num_draws=between,
                keep="moments",
                gradient=ls.Minibatch(problem.batch_size, "epochs"),
                progress=False,
            )
            start = {"state": run.state}
            predictors.add(run, k * between > size.burn_in)
            if k % _DRAWS == 0:
                row = k // _DRAWS - 1
                scores[row], nll[row], right[row] = predictors.scores()
            advance(between)
    except ls.DivergenceError as error:
        diverged = error.step
    return {"scores": scores, "nll": nll, "right": right, "diverged": np.array(diverged)}


class _Predictors:
    """Both predictors so far; up to the end of the burn-in each is the network at the current position."""

    def __init__(self, problem: Problem):
        self.problem, self.count = problem, 0
        self.mean: PyTree = None
        self.log_mean: list[NDArray[np.float64]] = []  # of the probabilities, for each part

    def add(self, run: ls.Run, burnt_in: bool) -> None:
        """The positions of a run more, all of them in the average and the last in the predictive."""
        position = jax.tree.map(lambda leaf: leaf[0], run.state.sampler.position)
        if not burnt_in:
            self.mean = position
            return
        self.count += 1
        share, new, mean = 1 / self.count, self._log_probabilities(position), run.mean()
        if self.count == 1:
            self.mean, self.log_mean = mean, new
            return
        self.mean = jax.tree.map(lambda old, x: old + share * (x - old), self.mean, mean)
        self.log_mean = [
            np.logaddexp(old + np.log1p(-share), x + np.log(share)) for old, x in zip(self.log_mean, new, strict=True)
        ]

    def scores(self) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.bool_]]:
        """Of both, on both parts, and for each test image."""
        average = self._log_probabilities(jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float32), self.mean))
        each = [
            [score(log_p, y) for log_p, (_, y) in zip(logs, self.problem.scored, strict=True)]
            for logs in (average, self.log_mean or average)
        ]
        summary = np.array([[scores for scores, *_ in parts] for parts in each])
        return summary, np.array([parts[1][1] for parts in each]), np.array([parts[1][2] for parts in each])

    def _log_probabilities(self, position: PyTree) -> list[NDArray[np.float64]]:
        """Of both parts."""
        found = [_log_probabilities(self.problem.model, position, X) for X, _ in self.problem.scored]
        return [np.asarray(log_p, np.float64) for log_p in found]


def score(log_p: NDArray[np.float64], y: NDArray[Any]) -> tuple[list[float], NDArray[np.float64], NDArray[np.bool_]]:
    """Log loss, accuracy and calibration error; and for each row its log loss and whether it is right.

    From log probabilities, so that a label of a probability too small for a float has a log loss.

    >>> summary, nll, right = score(np.log([[0.75, 0.25], [0.5, 0.5]]), np.array([0, 0]))
    >>> np.round(summary, 4).tolist(), right.tolist()
    ([0.4904, 1.0, 0.375], [True, True])
    """
    nll = -log_p[np.arange(len(y)), y]
    p = np.exp(log_p)
    summary = [float(nll.mean()), ls.diagnostics.accuracy(p, y), ls.diagnostics.calibration_error(p, y)]
    return summary, nll, p.argmax(1) == y


@eqx.filter_jit
def _log_probabilities(model: Any, position: PyTree, X: Array) -> Float[Array, "B classes"]:
    def one(image: Array) -> Array:
        return jax.nn.log_softmax(model.logits(position, image[None])[0])

    return jax.lax.map(one, X, batch_size=_ROWS)
