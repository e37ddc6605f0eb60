"""What makes a run the run that it is: settings by name, to be written down, compared, and named where they differ."""

import dataclasses
import re
from collections.abc import Iterator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jaxlib.version
import numpy as np
from jax.tree_util import Partial, keystr
from jaxtyping import PyTree

from lsmcmc import schedules
from lsmcmc.equation import Sampler
from lsmcmc.gradients import Oracle
from lsmcmc.keeping import Keep
from lsmcmc.loop import Carry, Job
from lsmcmc.posterior import Posterior
from lsmcmc.runs.jaxprs import fingerprint, of_array
from lsmcmc.timetable import Timetable

BITS = 1  # raised with each change of the library after which a seed draws other numbers
_MOST_LOOKED_AT = 2**12  # steps of a schedule


def settings(job: Job, start: Carry, given: dict[str, Any]) -> dict[str, Any]:
    """All but the schedules, in JSON."""
    one = jax.tree.map(lambda leaf: leaf[0], start.sampler.position)
    found = {
        **dict(_described("sampler", job.sampler)),
        **dict(_described("gradient", job.estimator)),
        **_code_of_ones_own(job, start, one),
        **_model(job, one),
        **_data(job.target),
        **_keeping(job.keep, one),
        **_beginning(start, given),
        "float": jnp.result_type(float).name,
        "jax": jax.__version__,
        "jaxlib": jaxlib.version.__version__,
        "draws version": BITS,
    }
    return {name: value for name, value in found.items() if value is not None}


def schedules_over(sampler: Sampler, first: int, last: int) -> dict[str, Any]:
    """Step size and temperature from step `first` to before `last`, as numbers or by their values and their code."""
    looked_at = np.unique(np.linspace(first, last - 1, min(last - first, _MOST_LOOKED_AT)).astype(np.int64))
    return {name: _schedule(getattr(sampler, name), looked_at) for name in ("step_size", "temperature")}


def timetable(table: Timetable) -> dict[str, Any]:
    """Which steps keep a draw, beyond burn-in and thin; how many draws, where that cannot be changed afterwards."""
    found = dict(_described("timetable", table))
    number = found.pop("timetable.num_draws", None)
    if type(table) is Timetable:
        return {}
    return {**found, "num_draws": number} if table.why_fixed else found


def differences(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """A line for each; where two pieces are of other kinds, not for their fields."""
    lines: list[str] = []
    named: list[str] = []
    for name in [*before, *(name for name in now if name not in before)]:
        old, new = before.get(name, "nothing"), now.get(name, "nothing")
        if old != new and not any(name.startswith(f"{kind}.") for kind in named):
            lines.append(f"{name}: {old} in the folder, {new} now")
            named.append(name)
    return lines


def _described(name: str, node: Any) -> Iterator[tuple[str, Any]]:
    """The pieces by their class, and what is in their fields."""
    if isinstance(node, Partial) or (callable(node) and not isinstance(node, eqx.Module)):
        yield name, "a function"  # its code is in that of a step
    elif isinstance(node, eqx.Module):
        yield name, type(node).__name__
        for field in dataclasses.fields(node):
            yield from _described(f"{name}.{field.name}", getattr(node, field.name))
    elif isinstance(node, jax.Array | np.ndarray):
        yield name, _number(node) if node.ndim == 0 and node.dtype.kind in "fiub" else of_array(node)
    elif isinstance(node, dict):
        for key, child in node.items():
            yield from _described(f"{name}[{key!r}]", child)
    elif isinstance(node, list | tuple):
        for i, child in enumerate(node):
            yield from _described(f"{name}[{i}]", child)
    elif node is not None:
        known = isinstance(node, bool | int | float | str)
        yield name, node if known else re.sub(r" at 0x[0-9a-f]+", "", repr(node))


def _number(scalar: Any) -> Any:
    """As it would be written: 0.1 of a float32 is 0.1."""
    value = np.asarray(scalar)[()]
    return float(str(value)) if value.dtype.kind == "f" else value.item()


def _schedule(value: Any, steps: Any) -> Any:
    if not callable(value):
        return _number(value)
    values = schedules.over("a schedule", value, steps)
    with jax.numpy_dtype_promotion("standard"):
        try:
            code = fingerprint(value, jnp.zeros((), jnp.int32))
        except schedules.NEEDS_NUMBERS:  # a table, say
            code = of_array(values).split()[-1]
    return f"a schedule from {values[0]:.6g} to {values[-1]:.6g} [{code}]"


def _code_of_ones_own(job: Job, start: Carry, one: PyTree) -> dict[str, str]:
    """Of pieces from outside this library, and of functions in those from inside, the fields do not say it all."""
    found = {}
    if any(_is_from_outside(node) for node in _nodes(job.sampler)):
        found["code of a step"] = fingerprint(_one_step(job), start, 0.1, 0.1)
    if any(_is_from_outside(node) for node in _nodes(job.estimator)):
        found["code of the gradient"] = fingerprint(_one_gradient(job), start.keys.batch[0], one)
    return found


def _one_step(job: Job) -> Any:
    """A step of all chains on a stand-in for the target, so that the code is the sampler's alone."""

    def step(carry: Carry, h: Any, temperature: Any) -> Any:
        def of_chain(state: Any, key: Any) -> Any:
            oracle = _Stand(job.target.num_examples, carry.step)
            noise = job.sampler.noise(key, state.position)
            new, _ = job.sampler.transition(state, oracle, noise, jnp.asarray(h), jnp.asarray(temperature))
            return new, job.sampler.statistics(new)

        return jax.vmap(of_chain)(carry.sampler, carry.keys.noise)

    return step


class _Stand(eqx.Module):
    """The oracle of U(x) = ½ Σ x²."""

    num_examples: int
    step: Any

    def gradient(self, position: PyTree) -> PyTree:
        return position

    def potential(self, position: PyTree) -> Any:
        return sum(jnp.sum(leaf.astype(float) ** 2) for leaf in jax.tree.leaves(position)) / 2

    full_potential = potential


def _one_gradient(job: Job) -> Any:
    arrays, rest = eqx.partition(job.target, eqx.is_array)  # what is in them has its own name

    def gradient(key: Any, position: PyTree) -> Any:
        target, step = eqx.combine(arrays, rest), jnp.zeros((), jnp.int32)
        rows = job.estimator.plan(key, step, target.num_examples)
        if _is_streamed(target):
            return rows  # which are read outside of compiled code
        batch, memory = job.estimator.fetch(target, rows, position), job.estimator.init(target, position)
        oracle, after = Oracle.of_step(target, job.estimator, memory, batch, position, step)
        return rows, oracle.gradient(position), after

    return gradient


def _nodes(tree: Any) -> Iterator[Any]:
    """Every module in it, and every function."""
    yield tree
    if isinstance(tree, eqx.Module) and not isinstance(tree, Partial):
        for field in dataclasses.fields(tree):
            yield from _nodes(getattr(tree, field.name))
    elif isinstance(tree, list | tuple | dict):
        for child in tree.values() if isinstance(tree, dict) else tree:
            yield from _nodes(child)


def _is_from_outside(node: Any) -> bool:
    if isinstance(node, eqx.Module) and not isinstance(node, Partial):
        return type(node).__module__.split(".")[0] != "lsmcmc"
    return callable(node)


def _model(job: Job, one: PyTree) -> dict[str, Any]:
    """U by the jaxpr of its value and gradient, on a batch."""
    target = job.target
    if not isinstance(target, Posterior):
        noise = None if target.noise_scale is None else _number(target.noise_scale)
        model = fingerprint(jax.value_and_grad(lambda x: -target.log_density(x)), one)
        return {"model": model, "model.noise_scale": noise}
    rows = getattr(job.estimator, "batch_size", target.chunk_size)
    data, own = (target.data.like, 0) if _is_streamed(target) else (target.data, 1)
    batch = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct((rows, *leaf.shape[own:]), leaf.dtype), data)
    model = fingerprint(jax.value_and_grad(lambda x, b: target.potential(x, b)), one, batch)
    return {"model": model, "model.chunk_size": target.chunk_size}


def _data(target: Any) -> dict[str, Any]:
    """By every byte; streamed, by what tells one source from another."""
    if _is_streamed(target):
        return {f"data.{name}": value for name, value in target.data.fingerprint().items()}
    return _arrays("data", getattr(target, "data", None))


def _is_streamed(target: Any) -> bool:
    return hasattr(getattr(target, "data", None), "fingerprint")


def _arrays(name: str, tree: PyTree) -> dict[str, str]:
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return {f"{name}{keystr(path)}": of_array(leaf) if eqx.is_array(leaf) else str(leaf) for path, leaf in leaves}


def _keeping(keep: Keep, one: PyTree) -> dict[str, Any]:
    found: dict[str, Any] = {"keep": keep.kind}
    if keep.fn is not None:
        found["keep.fn"] = "the position" if keep.is_position else fingerprint(keep.fn, one)
    if keep.moments is not None:
        found["keep.weighted"], found["keep.rank"] = keep.moments.weighted, keep.moments.rank
        found["keep.of"] = "the position" if keep.moments.of is None else fingerprint(keep.moments.value, one)
    return found


def _beginning(start: Carry, given: dict[str, Any]) -> dict[str, Any]:
    """Where and how the chains start, and how draws are counted."""
    seed, init, state, mask = (given[name] for name in ("seed", "init", "state", "trainable"))
    positions = start.sampler.position
    found: dict[str, Any] = {}
    if state is not None:
        found = {"seed": "that of the state", **_arrays("state", state)}
    else:
        found["seed"] = 0 if seed is None else of_array(seed) if eqx.is_array(seed) else int(seed)
        one = positions if init is not None else jax.tree.map(lambda leaf: leaf[0], positions)
        found.update(_arrays("position" if init is None else "init", one))
    if mask is not None:
        found.update(_arrays("trainable", mask))
    chains = start.keys.noise.shape[0]
    return {**found, "chains": chains, "burn_in": given["burn_in"], "thin": given["thin"]}
