"""What compiled calls get as data: all of it, or, streamed, the batches of some steps, read while others are made."""

from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, PyTree

from lsmcmc import _trees
from lsmcmc.gradients import GradientEstimator
from lsmcmc.loop import MOST_STEPS, Job, Keys
from lsmcmc.streams import NOT_READ, Handed, Stream


class Whole:
    """Data in memory, or none: every call gets all."""

    def __init__(self, job: Job):
        self._job = job

    def job(self, step: int) -> Job:
        """The same for every step."""
        del step  # all data are there
        return self._job

    def close(self) -> None:
        """Nothing is read."""


class Ahead:
    """Streamed data: the batches of `length` steps are read, by threads, while the device makes those before.

    Which rows they are is a function of (key, step), so a run goes on from any step with nothing else remembered.
    """

    def __init__(self, job: Job, keys: Keys, length: int, end: int):
        self._stream, self._without, self._length, self._end = job.target.data, job, length, end
        self._keys = keys.batch[:1] if job.estimator.shared else keys.batch
        self._readers, self._ahead = ThreadPoolExecutor(self._stream.threads), ThreadPoolExecutor(1)
        self._here: tuple[int, Job] | None = None
        self._next: tuple[int, Future[PyTree]] | None = None

    def job(self, step: int) -> Job:
        """The job with the batches around `step`, once they are read."""
        first = step - step % self._length
        if self._here is None or self._here[0] != first:
            self._here = None  # let go before more are held
            handed = Handed(self._take(first, step), jnp.asarray(first, jnp.int32), self._stream.num_examples)
            self._here = first, eqx.tree_at(lambda job: job.target.data, self._without, handed)
            following = first + self._length
            if following < self._end:
                self._next = following, self._begin(following, following)
        return self._here[1]

    def close(self) -> None:
        """A thread cannot be stopped, so what is being read is waited for."""
        for pool in (self._ahead, self._readers):
            pool.shutdown(cancel_futures=True)
        self._here = self._next = None

    def _take(self, first: int, step: int) -> PyTree:
        (at, reading), self._next = self._next or (-1, None), None
        read = reading.result() if reading is not None and at == first else self._begin(first, step).result()
        return jax.device_put(read)

    def _begin(self, first: int, step: int) -> "Future[PyTree]":
        """Begin to read the batches of `length` steps from `first`, without those before `step` or after the run."""
        steps = jnp.arange(first, first + self._length, dtype=jnp.int32)
        rows = np.array(_planned(self._without.estimator, self._keys, steps, self._stream.num_examples), np.int64)
        rows[: step - first] = rows[max(0, self._end - first) :] = NOT_READ
        if self._without.estimator.shared:
            rows = rows[:, 0]
        return self._ahead.submit(self._stream.gather, rows, self._readers)


Feed = Whole | Ahead


@eqx.filter_jit
def _planned(estimator: GradientEstimator, keys: Array, steps: Int[Array, " S"], num_examples: int) -> Array:
    """The rows of every step and chain."""
    over_chains = jax.vmap(lambda key, step: estimator.plan(key, step, num_examples), (0, None))
    return jax.vmap(over_chains, (None, 0))(keys, steps)


def steps_ahead(estimator: GradientEstimator, target: Any, num_chains: int) -> int | None:
    """How many steps' batches are read at a time, None where all data are there: two times as many fit the budget."""
    stream = getattr(target, "data", None)
    if not isinstance(stream, Stream):
        return None
    key, step = jax.random.key(0), jnp.zeros((), jnp.int32)
    rows = jax.eval_shape(lambda: estimator.plan(key, step, stream.num_examples)).size
    num_bytes = rows * (1 if estimator.shared else num_chains) * _trees.num_bytes(stream.like)
    return min(MOST_STEPS, max(1, stream.memory // 4 // num_bytes))


def feed(job: Job, keys: Keys, ahead: int | None, end: int) -> Feed:
    """The feed of a run whose last step is before `end`."""
    return Whole(job) if ahead is None else Ahead(job, keys, ahead, end)
