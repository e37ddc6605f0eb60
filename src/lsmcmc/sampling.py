"""The loop: chains, burn-in, thinning, what is kept, progress.

One compiled function advances all chains by up to `_MOST_STEPS` steps, and Python calls it until
the run is done. Everything that differs between calls (how many steps, step sizes, temperatures,
which steps are kept, σ) is data, so a configuration compiles once. Inside, steps go in blocks: the
noise and the rows of a block depend on (key, chain, step) alone, so they are drawn together, which
makes small models several times faster and changes no number.
"""

import time
from collections.abc import Iterator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int, PyTree
from numpy.typing import NDArray

from lsmcmc import _checks, _trees, schedules
from lsmcmc.gradients import GradientEstimator, Oracle, choose
from lsmcmc.keeping import Keep, Sums, as_keep, shape_kept
from lsmcmc.posterior import Posterior, Target
from lsmcmc.progress import Progress
from lsmcmc.run import DivergenceError, Run
from lsmcmc.samplers import Sampler, State

_MOST_STEPS = 2**15  # of one compiled call
_DRAW_BYTES = 2**25  # of draws waiting inside one compiled call
_BLOCK_BYTES = 2**20  # of noise and rows drawn ahead
_MOST_BLOCK = 256
_CALL_SECONDS = 0.5  # after which Python gets a look
_LOOK_AHEAD = 100  # steps at which schedules are checked before any sampling


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


class _Job(eqx.Module):
    """What stays the same over a run; `slots` is the most draws that one compiled call keeps."""

    sampler: Sampler
    estimator: GradientEstimator
    target: Any
    keep: Keep
    slots: int = eqx.field(static=True)


class _Plan(eqx.Module):
    """What one compiled call does, as data: `count` steps, their h and T, and the slot of each kept draw or −1."""

    count: Any
    step_sizes: Any
    temperatures: Any
    slots: Any


def sample(
    sampler: Sampler,
    target: Posterior | Target,
    position: PyTree = None,
    *,
    num_draws: int,
    batch_size: int | None = None,
    gradient: GradientEstimator | None = None,
    burn_in: int = 0,
    thin: int = 1,
    chains: int | None = None,
    seed: Any = None,
    init: Any = None,
    state: Carry | None = None,
    keep: Any = None,
    progress: bool | None = None,
    chunk: int | None = None,
) -> Run:
    """Run chains of a sampler on a target, burn_in + thin × num_draws steps each.

    `position` is one pytree for all chains; or `init` gives each chain its own start, as a function
    of a key or a pytree with a leading chain axis; or `state` is the `run.state` of an earlier run,
    which goes on as if it had not stopped. `seed` is a whole number (0 by default) or a key.
    `batch_size` (or `gradient`) says how ∇U is estimated. `keep` is what is stored: the draws
    (default), a function of the position, or "moments" for running mean and variance alone.
    `progress` shows a bar on a terminal (default), always, or never. `chunk` fixes how many steps
    one compiled call makes at most; results do not depend on it.

    The draws are a function of (seed, chain, step): the same for one seed on one machine, and chain
    k the same in a run of more chains up to rounding. A chain that leaves the finite numbers stops the
    run with a `DivergenceError`, which carries the draws so far.

    >>> import lsmcmc as ls
    >>> target = ls.Target(lambda x: -0.5 * jnp.sum(x**2))
    >>> run = ls.sample(ls.sgld(0.1), target, jnp.zeros(3), num_draws=100, chains=2, burn_in=10)
    >>> run.draws.shape
    (2, 100, 3)
    """
    num_draws, burn_in = _checks.count("num_draws", num_draws), _checks.count("burn_in", burn_in, least=0)
    thin, chunk = _checks.count("thin", thin), _checks.count("chunk", _MOST_STEPS if chunk is None else chunk)
    check_pieces(sampler, target)
    estimator, kept = choose(sampler, target, gradient, batch_size), as_keep(keep)
    carry = _start(sampler, estimator, target, position, init, state, chains, seed)
    start = carry.sampler.position
    one = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), start)
    num_chains = carry.keys.noise.shape[0]
    like = shape_kept(kept, one)
    run = Run.empty(target, like, kept, num_chains, num_draws, thin)
    job = _Job(
        sampler.without_schedules(),
        estimator,
        target,
        kept,
        slots=min(_MOST_STEPS, max(1, _DRAW_BYTES // max(1, num_chains * _trees.num_bytes(like)))),
    )
    return _drive(job, sampler, carry, run, burn_in, thin, chunk, progress)


def check_pieces(sampler: Any, target: Any) -> None:
    """The first two arguments are what they should be."""
    if not isinstance(target, (Posterior, Target)):
        raise TypeError(
            f"the target must be an ls.Posterior or an ls.Target, got {type(target).__name__}. "
            f"For a plain log density write ls.Target(log_density)."
        )
    if not isinstance(sampler, Sampler):
        raise TypeError(f"the sampler must be one such as ls.sgld(1e-4), got {sampler!r}.")


def _start(
    sampler: Sampler,
    estimator: GradientEstimator,
    target: Any,
    position: PyTree,
    init: Any,
    state: Carry | None,
    chains: int | None,
    seed: Any,
) -> Carry:
    """The carry before the first step."""
    if sum(given is not None for given in (position, init, state)) != 1:
        raise ValueError(
            "write exactly one of position (one start for all chains), init= (a function of a key) "
            "and state= (the .state of an earlier run)."
        )
    if state is not None:
        if not isinstance(state, Carry):
            raise TypeError(f"state must be the .state of an earlier run, got {type(state).__name__}.")
        if chains is not None and chains != state.keys.noise.shape[0]:
            raise ValueError(f"state has {state.keys.noise.shape[0]} chains; leave out chains={chains}.")
        if seed is not None:
            raise ValueError(f"state has its own keys; leave out seed={seed!r}.")
        return _fitting(state, sampler, estimator, target)
    if init is not None and not callable(init):
        init = _checks.position(init)
        chains = _num_starts(init, chains)
    chains = _checks.count("chains", 1 if chains is None else chains)
    keys = jax.vmap(lambda chain: jax.random.split(jax.random.fold_in(_key(seed), chain), 4))(jnp.arange(chains))
    if callable(init):
        position = _checks.position(jax.vmap(init)(keys[:, 0]))
    elif init is not None:
        position = init
    else:
        one = _checks.position(position)
        position = jax.tree.map(lambda leaf: jnp.repeat(leaf[None], chains, axis=0), one)
    return Carry(
        Keys(noise=keys[:, 2], batch=keys[:, 3]),
        jax.vmap(lambda x, key: sampler.init(x, key=key))(position, keys[:, 1]),
        jax.vmap(lambda x: estimator.init(target, x))(position),
        jnp.zeros((), jnp.int32),
    )


def _num_starts(init: PyTree, chains: int | None) -> int:
    """The common leading axis of starts given as arrays."""
    lengths = {leaf.shape[:1] for leaf in jax.tree.leaves(init)}
    if len(lengths) > 1 or () in lengths or chains not in (None, *next(iter(lengths))):
        raise ValueError(
            f"init must be a function of a key or arrays with a leading chain axis"
            f"{'' if chains is None else f' of {chains}'}, got {_checks.describe(init)}."
        )
    return int(next(iter(lengths))[0])


def _fitting(state: Carry, sampler: Sampler, estimator: GradientEstimator, target: Any) -> Carry:
    """The state of an earlier run, if it has the shape that this sampler's would have."""

    def fresh(carry: Carry) -> Carry:
        positions = carry.sampler.position
        inits = jax.vmap(lambda x, key: sampler.init(x, key=key))(positions, carry.keys.noise)
        return Carry(carry.keys, inits, jax.vmap(lambda x: estimator.init(target, x))(positions), carry.step)

    found, needed = _checks.describe(state), _checks.describe(eqx.filter_eval_shape(fresh, state))
    if found != needed:
        raise ValueError(f"state is of another sampler or position. It holds {found}; this sampler needs {needed}.")
    return state


def _key(seed: Any) -> Array:
    seed = 0 if seed is None else seed
    if isinstance(seed, jax.Array) and jnp.issubdtype(seed.dtype, jax.dtypes.prng_key):
        return seed
    if isinstance(seed, jax.Array) and seed.shape == (2,):
        return jax.random.wrap_key_data(seed)
    return jax.random.key(_checks.count("seed", seed, least=0))


def _block_length(ahead: PyTree) -> int:
    """How many steps' noise and rows are drawn together: a power of two that fits the budget."""
    most = _BLOCK_BYTES // max(1, _trees.num_bytes(ahead))
    return max(1, min(_MOST_BLOCK, 2 ** (most.bit_length() - 1) if most else 1))


@eqx.filter_jit(donate="all-except-first")
def _advance(
    given: tuple[_Job, Carry, _Plan], sums: Sums | None
) -> tuple[Sums | None, Carry, PyTree, Bool[Array, " chains"]]:
    """All chains, `plan.count` steps on: moments, carry, kept draws, and which chains are finite.

    Only the moments are donated: the carry before stays, so a divergence can be traced back to its step.
    """
    job, carry, plan = given
    one = jax.tree.map(lambda leaf: leaf[0], carry.sampler.position)

    def prepare(i: Array) -> tuple[PyTree, PyTree]:
        """ε and the batch of every chain at step i of this call."""
        step = carry.step + i
        noise = jax.vmap(lambda key: job.sampler.noise(jax.random.fold_in(key, step), one))(carry.keys.noise)

        def batch_of(key: Array) -> PyTree:
            rows = job.estimator.plan(key, step, job.target.num_examples)
            return job.estimator.fetch(job.target, rows, one)

        keys = carry.keys.batch
        return noise, batch_of(keys[0]) if job.estimator.shared else jax.vmap(batch_of)(keys)

    def step(i: Array, inner: tuple[Any, ...], noise: PyTree, batch: PyTree) -> tuple[Any, ...]:
        state, memory, drawn, sums = inner
        h, temperature = plan.step_sizes[i], plan.temperatures[i]

        def one_chain(state: State, memory: PyTree, noise: PyTree, batch: PyTree) -> tuple[State, PyTree]:
            oracle = Oracle(job.target, job.estimator, memory, batch)
            new, _ = job.sampler.transition(state, oracle, noise, h, temperature)
            return new, oracle.next_state(state.position)

        over = (0, 0, 0, None if job.estimator.shared else 0)
        state, memory = jax.vmap(one_chain, in_axes=over)(state, memory, noise, batch)
        slot = plan.slots[i]
        drawn, sums = jax.lax.cond(
            slot >= 0,
            lambda d, s: _record(job.keep, d, s, slot, state.position, h),
            lambda d, s: (d, s),
            drawn,
            sums,
        )
        return state, memory, drawn, sums

    length = _block_length(jax.eval_shape(prepare, plan.count))

    def block(b: Array, inner: tuple[Any, ...]) -> tuple[Any, ...]:
        first = b * length
        ahead = jax.vmap(prepare)(first + jnp.arange(length, dtype=jnp.int32))

        def within(j: Array, inner: tuple[Any, ...]) -> tuple[Any, ...]:
            return step(first + j, inner, *jax.tree.map(lambda leaf: leaf[j], ahead))

        return jax.lax.fori_loop(0, jnp.minimum(length, plan.count - first), within, inner)

    inner = (carry.sampler, carry.estimator, _empty_slots(job, carry), sums)
    if length == 1:
        inner = jax.lax.fori_loop(0, plan.count, lambda i, inner: step(i, inner, *prepare(i)), inner)
    else:
        inner = jax.lax.fori_loop(0, -(-plan.count // length), block, inner)
    state, memory, drawn, sums = inner
    after = Carry(carry.keys, state, memory, carry.step + plan.count)
    return sums, after, drawn, jax.vmap(_all_finite)(state.position)


def _empty_slots(job: _Job, carry: Carry) -> PyTree:
    if job.keep.fn is None:
        return ()
    like = jax.eval_shape(jax.vmap(job.keep.fn), carry.sampler.position)
    return jax.tree.map(lambda leaf: jnp.zeros((job.slots, *leaf.shape), leaf.dtype), like)


def _record(keep: Keep, drawn: PyTree, sums: Any, slot: Array, position: PyTree, h: Array) -> tuple[PyTree, Any]:
    """One draw of every chain into its slot and into the moments."""
    if keep.fn is not None:
        drawn = jax.tree.map(
            lambda held, leaf: jax.lax.dynamic_update_index_in_dim(held, leaf, slot, 0),
            drawn,
            jax.vmap(keep.fn)(position),
        )
    if keep.moments is not None:
        sums = jax.vmap(Sums.add, in_axes=(0, 0, None))(sums, position, keep.weight(h))
    return drawn, sums


def _all_finite(tree: PyTree) -> Bool[Array, ""]:
    return jnp.stack([jnp.isfinite(leaf).all() for leaf in jax.tree.leaves(tree)]).all()


def _drive(
    job: _Job,
    sampler: Sampler,
    carry: Carry,
    run: Run,
    burn_in: int,
    thin: int,
    chunk: int,
    progress: bool | None,
) -> Run:
    """Call the compiled function until the run is done."""
    sums = None if job.keep.moments is None else jax.vmap(Sums.zero)(carry.sampler.position)
    calls = _Calls(sampler, int(carry.step), burn_in, thin, run.num_draws, job.slots, chunk)
    began = time.perf_counter()
    try:
        sums, carry, *_ = jax.block_until_ready(_advance((job, carry, calls.nothing()), sums))
    except _checks.ContractError as error:
        raise ValueError(str(error)) from error.__cause__
    run.compile_seconds = time.perf_counter() - began
    with Progress(calls.total, progress) as bar:
        for plan, slots in calls:
            began = time.perf_counter()
            sums, after, drawn, finite = jax.block_until_ready(_advance((job, carry, plan), sums))
            calls.took(time.perf_counter() - began)
            if not bool(finite.all()):
                _stop(job, carry, plan, sums, run)
            run.store(drawn, slots)
            carry = after
            run.progressed(carry, sums, int(plan.count), time.perf_counter() - began)
            bar.advance(int(plan.count))
    return run


class _Calls:
    """How a run is cut into compiled calls; the cut changes no number."""

    def __init__(self, sampler: Sampler, first: int, burn_in: int, thin: int, num_draws: int, slots: int, chunk: int):
        self.sampler, self.first, self.burn_in, self.thin = sampler, first, burn_in, thin
        self.slots, self.chunk = slots, min(chunk, _MOST_STEPS)
        self.total = burn_in + thin * num_draws
        self.next_count = self.chunk if chunk < _MOST_STEPS else 1
        self._schedules(np.linspace(0, self.total - 1, _LOOK_AHEAD).astype(np.int64))  # bad values should be met now

    def nothing(self) -> _Plan:
        """A call of no steps, which compiles."""
        zeros = jnp.zeros(_MOST_STEPS, float)
        return _Plan(jnp.zeros((), jnp.int32), zeros, zeros, jnp.full(_MOST_STEPS, -1, jnp.int32))

    def __iter__(self) -> Iterator[tuple[_Plan, NDArray[np.float64]]]:
        done = 0
        while done < self.total:
            # steps until every slot is taken: the next draws end at burn_in + thin × (number before + slots)
            before = max(0, done - self.burn_in) // self.thin
            until_full = self.burn_in + self.thin * (before + self.slots) - done
            count = min(self.next_count, until_full, self.total - done)
            yield self._plan(done, count)
            done += count

    def _plan(self, done: int, count: int) -> tuple[_Plan, NDArray[np.float64]]:
        after_burn_in = np.arange(done + 1, done + count + 1) - self.burn_in
        is_kept = (after_burn_in > 0) & (after_burn_in % self.thin == 0)
        slots = np.full(_MOST_STEPS, -1, np.int32)
        slots[:count] = np.where(is_kept, np.cumsum(is_kept) - 1, -1)
        h, temperature = (
            np.pad(values, (0, _MOST_STEPS - count)) for values in self._schedules(np.arange(done, done + count))
        )
        plan = _Plan(
            jnp.asarray(count, jnp.int32),
            jnp.asarray(h, float),
            jnp.asarray(temperature, float),
            jnp.asarray(slots),
        )
        return plan, h[:count][is_kept]

    def _schedules(self, steps: NDArray[np.int64]) -> list[NDArray[np.float64]]:
        return [
            schedules.over(name, getattr(self.sampler, name), self.first + steps)
            for name in ("step_size", "temperature")
        ]

    def took(self, seconds: float) -> None:
        """Lengthen the calls while they are short, shorten them when they are long."""
        if self.chunk < _MOST_STEPS:
            return
        wanted = self.next_count * _CALL_SECONDS / max(seconds, 1e-9)
        self.next_count = int(np.clip(wanted, 1, min(8 * self.next_count, _MOST_STEPS)))


def _stop(job: _Job, carry: Carry, plan: _Plan, sums: Any, run: Run) -> None:
    """Find the step at which the first chain diverged, by halving; raise with what was drawn before it."""

    def to(count: int) -> Any:
        fresh = jax.tree.map(jnp.zeros_like, sums)
        shorter = eqx.tree_at(lambda p: p.count, plan, jnp.asarray(count, jnp.int32))
        return _advance((job, carry, shorter), fresh)

    good, bad = 0, int(plan.count)
    while bad - good > 1:
        middle = (good + bad) // 2
        good, bad = (middle, bad) if bool(to(middle)[3].all()) else (good, middle)
    _, before, drawn, _ = to(good)
    finite = np.asarray(to(bad)[3])
    kept = np.asarray(plan.slots)[:good] >= 0
    h = np.asarray(plan.step_sizes)
    run.store(drawn, h[:good][kept])
    run.progressed(before, sums, good, 0.0)
    run.cut()
    raise DivergenceError(run, int(np.flatnonzero(~finite)[0]), int(carry.step) + bad, float(h[bad - 1]))
