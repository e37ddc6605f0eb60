"""`ls.sample`: what a run is asked for, checked and started. The loop itself is `loop` and `driver`."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree

from lsmcmc import _checks
from lsmcmc.driver import Cut, bytes_of_a_draw, drive, num_slots
from lsmcmc.equation import Sampler
from lsmcmc.feeding import steps_ahead
from lsmcmc.freezing import partition
from lsmcmc.gradients import GradientEstimator, choose
from lsmcmc.keeping import as_keep, shape_kept
from lsmcmc.loop import MOST_STEPS, Carry, Job, Keys
from lsmcmc.posterior import Posterior, Target
from lsmcmc.recording import Memory, Recording
from lsmcmc.run import Run

_GENERATOR = "threefry2x32"  # a number depends on its key alone, however many are drawn together


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
    trainable: PyTree = None,
    path: Any = None,
) -> Run:
    """Run chains of a sampler on a target, burn_in + thin × num_draws steps each.

    `position` is one pytree for all chains; or `init` gives each chain its own start, as a function
    of a key or a pytree with a leading chain axis; or `state` is the `run.state` of an earlier run,
    which goes on as if it had not stopped. `seed` is a whole number (0 by default) or a key.
    `batch_size` (or `gradient`) says how ∇U is estimated. `keep` is what is stored: the draws
    (default), a function of the position, "last" for the last draw alone, or "moments" for running mean and
    variance (`ls.Moments` for those of a function, and for a covariance).
    `progress` shows a bar on a terminal (default), always, or never. `chunk` fixes how many steps
    one compiled call makes at most; results do not depend on it. `trainable` (True or False, or a pytree
    prefix of them) samples some leaves of `position` and holds the others: `target.freeze(position, trainable)`
    on the part that is left. Draws then have None at the fixed leaves; functions given to `keep` and to
    `run.predict` get whole positions. `path` is a folder: draws and state go there while the run is made, and the same
    call again goes on where it stopped, to the last bit (docs/runs.md).

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
    thin, chunk = _checks.count("thin", thin), _checks.count("chunk", MOST_STEPS if chunk is None else chunk)
    check_pieces(sampler, target)
    if sampler.dynamics.needs_burn_in and state is None and not burn_in:
        raise ValueError(
            f"{type(sampler.dynamics).__name__} finds its step size and its masses while the run burns in: write "
            "burn_in=1_000, or give it a step_size, which it then keeps, with unit masses."
        )
    first = int(state.step) if isinstance(state, Carry) else 0
    sampler = sampler.planned(burn_in, thin, num_draws, first)
    given = {"seed": seed, "burn_in": burn_in, "thin": thin, "init": init, "state": state, "trainable": trainable}
    if trainable is not None:
        target, position = _partly(target, position, trainable)
    estimator, kept = choose(sampler, target, gradient, batch_size), as_keep(keep, target)
    start = [_start(sampler, estimator, target, position, init, state, chains, seed, progress)]
    num_chains = start[0].keys.noise.shape[0]
    one = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape[1:], x.dtype), start[0].sampler.position)
    like = shape_kept(kept, one)
    slots = num_slots(bytes_of_a_draw(like, num_chains))
    job = Job(sampler.without_schedules(), estimator, target, kept, slots)
    ahead = steps_ahead(estimator, target, num_chains)
    cut = Cut(sampler, first, slots, chunk, kept.rank, ahead)
    if path is not None:
        from lsmcmc import runs

        return runs.sample(path, job, start, cut, like, given, progress)
    room = None if kept.fn is None else Memory(like, num_chains, num_draws)
    return drive(job, start, cut, Recording(target, kept, room, num_chains, thin, start[0]), progress)


def _partly(target: Any, position: PyTree, trainable: PyTree) -> tuple[Any, PyTree]:
    """The target frozen where `trainable` is False, and the part of the position that is sampled."""
    if position is None:
        raise ValueError(
            "trainable= needs position=, whose fixed leaves all chains share. With init= or state= write "
            "frozen = posterior.freeze(position, mask), and sample that."
        )
    return target.freeze(position, trainable), partition(position, trainable)[0]


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
    progress: bool | None,
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
    if init is not None and not is_function(init):
        init = _checks.position(init)
        chains = _num_starts(init, chains)
    chains = _checks.count("chains", 1 if chains is None else chains)
    keys = jax.vmap(lambda chain: jax.random.split(jax.random.fold_in(as_key(seed), chain), 4))(jnp.arange(chains))
    if init is not None and is_function(init):
        position = _checks.position(jax.vmap(init)(keys[:, 0]))
    elif init is not None:
        position = init
    else:
        one = _checks.position(position)
        position = jax.tree.map(lambda leaf: jnp.repeat(leaf[None], chains, axis=0), one)
    return Carry(
        Keys(noise=keys[:, 2], batch=keys[:, 3]),
        jax.vmap(lambda x, key: sampler.init(x, key=key))(position, keys[:, 1]),
        estimator.start(target, position, progress),
        jnp.zeros((), jnp.int32),
    )


def is_function(init: Any) -> bool:
    """A function of a key. A module that holds arrays is a start, even if it can be called; its methods are not."""
    is_module = isinstance(init, eqx.Module) and not hasattr(init, "__func__")
    return callable(init) and not (is_module and jax.tree.leaves(eqx.filter(init, eqx.is_array)))


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


def as_key(seed: Any) -> Array:
    """The key that a seed stands for."""
    seed = 0 if seed is None else seed
    if isinstance(seed, jax.Array) and jnp.issubdtype(seed.dtype, jax.dtypes.prng_key):
        if jax.random.key_impl(seed) != _GENERATOR:
            raise ValueError(
                f"seed must be a key of {_GENERATOR}, got one of {jax.random.key_impl(seed)}, whose numbers depend on "
                f"how many are drawn together. Write jax.random.key(0, impl={_GENERATOR!r}), or a whole number."
            )
        return seed
    if isinstance(seed, jax.Array) and seed.shape == (2,) and seed.dtype == jnp.uint32:
        return jax.random.wrap_key_data(seed, impl=_GENERATOR)
    number = _checks.count("seed", seed, least=0)
    if number >= 2**32:
        raise ValueError(f"seed must be below 2**32, got {number}; a longer one would be cut off.")
    return jax.random.key(number, impl=_GENERATOR)
