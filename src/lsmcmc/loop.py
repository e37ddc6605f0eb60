"""The compiled function of the loop: all chains, any number of steps, every difference between calls as data.

How many steps, their step sizes and temperatures, which draws are kept and σ are arrays, so a
configuration compiles once. Steps go in blocks: the noise and the rows of a block depend on (key,
chain, step) alone, so they are drawn together, which makes small models several times faster and
changes no number.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int, PyTree

from lsmcmc import _random, _trees
from lsmcmc.equation import Sampler, State
from lsmcmc.gradients import GradientEstimator, Oracle
from lsmcmc.keeping import Keep, Sums
from lsmcmc.streams import Handed

MOST_STEPS = 2**15  # of one compiled call
_BLOCK_BYTES = 2**20  # of noise and rows drawn ahead
_MOST_BLOCK = 256


class Keys(eqx.Module):
    """The chains' keys; each use folds in the step."""

    noise: Array
    batch: Array


class Carry(eqx.Module):
    """What the next step needs, all chains: give `run.state` to `ls.sample(state=)` to go on."""

    keys: Keys
    sampler: State
    estimator: PyTree
    step: Int[Array, ""]


class Plan(eqx.Module):
    """What one call does, as data: `count` steps, their h and T, and the slot of each kept draw or −1."""

    count: Any
    step_sizes: Any
    temperatures: Any
    slots: Any


class Job(eqx.Module):
    """What stays the same over a run; `slots` is the most draws that one call keeps."""

    sampler: Sampler
    estimator: GradientEstimator
    target: Any
    keep: Keep
    slots: int = eqx.field(static=True)

    def prepare(self, keys: Keys, step: Int[Array, ""], like: PyTree) -> tuple[PyTree, PyTree]:
        """ε and the batch of every chain at one step."""

        def noise_of(key: Array) -> PyTree:
            return self.sampler.noise(jax.random.fold_in(_random.fast(key), step), like)

        noise = jax.vmap(noise_of)(keys.noise)
        handed = getattr(self.target, "data", None)
        handed = handed if isinstance(handed, Handed) else None  # batches that were read for these steps

        def batch_of(key: Array, read: PyTree) -> PyTree:
            target = self.target if handed is None else handed.of(self.target, read)
            rows = self.estimator.plan(_random.fast(key), step, target.num_examples)
            return self.estimator.fetch(target, rows, like)

        read = None if handed is None else handed.at(step)
        return noise, batch_of(keys.batch[0], read) if self.estimator.shared else jax.vmap(batch_of)(keys.batch, read)

    def step(self, carry: Carry, noise: PyTree, batch: PyTree, h: Array, temperature: Array) -> Carry:
        """One step of every chain."""

        def one_chain(state: State, memory: PyTree, noise: PyTree, batch: PyTree) -> tuple[State, PyTree]:
            x = state.position
            oracle, memory = Oracle.of_step(self.target, self.estimator, memory, batch, x, carry.step)
            return self.sampler.transition(state, oracle, noise, h, temperature)[0], memory

        over = (0, 0, 0, None if self.estimator.shared else 0)
        state, memory = jax.vmap(one_chain, in_axes=over)(carry.sampler, carry.estimator, noise, batch)
        return Carry(carry.keys, state, memory, carry.step + 1)

    def finite(self, state: State) -> Bool[Array, " chains"]:
        """Which chains are finite."""
        return jax.vmap(self.sampler.is_finite)(state)

    def record(self, kept: PyTree, sums: Any, slot: Array, state: State, h: Array) -> tuple[PyTree, Any]:
        """A draw of every chain, with the sampler's statistics, into its slot or into the moments; nothing for slot −1.

        The condition is the same for all chains, so it stays a branch and costs nothing where nothing is kept. Moments
        stop for all chains when one is not finite, so they are of the draws before a divergence.
        """

        def write(kept: PyTree, sums: Any) -> tuple[PyTree, Any]:
            if self.keep.fn is not None:
                drawn = jax.vmap(self._kept)(state)
                kept = jax.tree.map(lambda k, d: jax.lax.dynamic_update_index_in_dim(k, d, slot, 0), kept, drawn)
            if self.keep.moments is not None:
                add = jax.vmap(Sums.add, in_axes=(0, 0, None, None))
                values = jax.vmap(self.keep.moments.value)(state.position)
                sums = add(sums, values, self.keep.weight(h), self.finite(state).all())
            return kept, sums

        return jax.lax.cond(slot >= 0, write, lambda kept, sums: (kept, sums), kept, sums)

    def _kept(self, state: State) -> tuple[PyTree, dict[str, Array]]:
        """What is stored of one chain's draw."""
        return self.keep.fn(state.position), self.sampler.statistics(state)  # type: ignore[misc]

    def empty_slots(self, state: State) -> PyTree:
        """Room for the draws of one call."""
        if self.keep.fn is None:
            return ()
        like = jax.eval_shape(jax.vmap(self._kept), state)
        return jax.tree.map(lambda leaf: jnp.zeros((self.slots, *leaf.shape), leaf.dtype), like)


@eqx.filter_jit(donate="all-except-first")
def advance(
    given: tuple[Job, Carry, Plan], sums: Sums | None
) -> tuple[Sums | None, Carry, PyTree, Bool[Array, " chains"]]:
    """All chains, `plan.count` steps on: moments, carry, kept draws, and which chains are finite.

    Only the moments are donated: the carry before stays, so a divergence can be traced back to its step.
    """
    job, carry, plan = given
    first, keys = carry.step, carry.keys
    like = jax.tree.map(lambda leaf: leaf[0], carry.sampler.position)
    length = _block_length(jax.eval_shape(lambda step: job.prepare(keys, step, like), first))

    def one(i: Array, inner: tuple[Any, ...], ahead: tuple[PyTree, PyTree]) -> tuple[Any, ...]:
        carry, kept, sums = inner
        carry = job.step(carry, *ahead, plan.step_sizes[i], plan.temperatures[i])
        return carry, *job.record(kept, sums, plan.slots[i], carry.sampler, plan.step_sizes[i])

    def block(b: Array, inner: tuple[Any, ...]) -> tuple[Any, ...]:
        start = b * length
        steps = first + start + jnp.arange(length, dtype=jnp.int32)
        ahead = jax.vmap(lambda step: job.prepare(keys, step, like))(steps)

        def within(j: Array, inner: tuple[Any, ...]) -> tuple[Any, ...]:
            return one(start + j, inner, jax.tree.map(lambda leaf: leaf[j], ahead))

        return jax.lax.fori_loop(0, jnp.minimum(length, plan.count - start), within, inner)

    def alone(i: Array, inner: tuple[Any, ...]) -> tuple[Any, ...]:
        return one(i, inner, job.prepare(keys, first + i, like))

    inner = (carry, job.empty_slots(carry.sampler), sums)
    num_blocks, body = (plan.count, alone) if length == 1 else (-(-plan.count // length), block)
    carry, kept, sums = jax.lax.fori_loop(0, num_blocks, body, inner)
    return sums, carry, kept, job.finite(carry.sampler)


def _block_length(ahead: PyTree) -> int:
    """How many steps' noise and rows are drawn together: a power of two that fits the budget."""
    most = _BLOCK_BYTES // max(1, _trees.num_bytes(ahead))
    return max(1, min(_MOST_BLOCK, 2 ** (most.bit_length() - 1) if most else 1))
