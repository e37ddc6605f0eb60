"""`floor`: what this machine can do at all, and where the steps' time goes against it."""

import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks import cnn, problems
from benchmarks.timing import Contender, Size, interleaved
from lsmcmc import _random, shuffling


def floor(size: Size) -> dict[str, Any]:
    """Rates of the machine, and the parts of an a3a step in nanoseconds and of a CNN step in milliseconds."""
    return {"unit": "see each", "machine": _machine(size), "a3a_step_ns": _a3a(size), "cnn_step_ms": _cnn(size)}


def _machine(size: Size) -> dict[str, float]:
    d, n = (2**12, 64) if size.tiny else (2**24, 1024)
    v, a = jnp.ones(d), jnp.ones((n, n))
    seconds = _medians(
        {
            "copy": (lambda v: v + 1, v),
            "normals": (lambda key: _random.normal(key, (d // 16,), jnp.dtype("float32")), jax.random.key(0)),
            "matmul": (lambda a: a @ a, a),
        },
        size,
    )
    return {
        "memory_GB_per_s": 8 * d / seconds["copy"] / 1e9,
        "normals_per_ns": d / 16 / seconds["normals"] / 1e9,
        "matmul_GFLOP_per_s": 2 * n**3 / seconds["matmul"] / 1e9,
    }


def _a3a(size: Size) -> dict[str, float]:
    """Of a block of 256 steps, a step's share: what is drawn and fetched ahead; the rest is the loop's own."""
    X, y = (jnp.asarray(part) for part in problems.a3a(size.tiny))
    steps, block = jnp.arange(256, dtype=jnp.int32), 256
    key = jax.random.key(0)
    rows = jax.vmap(lambda step: shuffling.iid(key, step, problems.BATCH, len(y)))(steps)

    def noise(key: Any) -> Any:
        fast = _random.fast(key)
        shape, dtype = (problems.DIM,), jnp.dtype("float32")
        return jax.vmap(lambda step: _random.normal(jax.random.fold_in(fast, step), shape, dtype))(steps)

    def plan(key: Any) -> Any:
        return jax.vmap(lambda step: shuffling.iid(_random.fast(key), step, problems.BATCH, len(y)))(steps)

    def gradients(x: Any) -> Any:
        def one(i: Any, x: Any) -> Any:
            batch = X[:5], y[:5]
            return x - 1e-9 * jax.grad(lambda x: -problems.log_likelihood(x, batch).sum())(x)

        return jax.lax.fori_loop(0, block, one, x)

    parts = {
        "noise": (noise, key),
        "rows": (plan, key),
        "gather": (lambda rows: (X[rows], y[rows]), rows),
        "gradient in a loop": (gradients, jnp.zeros(problems.DIM)),
    }
    seconds = _medians(parts, size)
    step = problems.ours("step", _sgld(size), size)
    seconds_of_step = interleaved([step], size)["step"]
    return {
        **{name: 1e9 * s / block for name, s in seconds.items()},
        "whole step": 1e9 * float(np.median(seconds_of_step)),
    }


def _sgld(size: Size) -> Any:
    import lsmcmc as ls

    return ls.sgld(problems.step_size(size.tiny))


def _cnn(size: Size) -> dict[str, float]:
    """Forward, forward and backward, and the same for each layer alone would not add up: XLA fuses across them."""
    X, y = cnn._images(size)
    batch = 4 if size.tiny else cnn.BATCH
    X, y = jnp.asarray(X[:batch]), jnp.asarray(y[:batch])
    position = cnn.MODEL.init(jax.random.key(0))

    def potential(position: Any) -> Any:
        return -cnn.MODEL.log_likelihood(position, (X, y)).sum()

    like = jax.tree.map(jnp.zeros_like, position)
    parts = {
        "forward": (potential, position),
        "forward and backward": (jax.grad(potential), position),
        "noise": (lambda key: _trees_normal(key, like), jax.random.key(0)),
    }
    flops = 3 * 2 * batch * (24 * 24 * 25 * 20 + 8 * 8 * 500 * 20 + 320 * 128 + 1280)
    found = {name: 1e3 * s for name, s in _medians(parts, size).items()}
    return {**found, "GFLOP_of_a_step": flops / 1e9}


def _trees_normal(key: Any, like: Any) -> Any:
    from lsmcmc import _trees

    return _trees.normal_like(key, like)


def _medians(parts: dict[str, tuple[Callable[[Any], Any], Any]], size: Size) -> dict[str, float]:
    """Seconds of each compiled function, in turn."""
    contenders = [Contender(name, _timer(jax.jit(fn), argument), lambda: 0.0) for name, (fn, argument) in parts.items()]
    short = Size(size.rounds, min(size.seconds, 0.1), size.tiny)
    return {name: float(np.median(values)) for name, values in interleaved(contenders, short).items()}


def _timer(fn: Any, argument: Any) -> Callable[[int], float]:
    def seconds(count: int) -> float:
        began = time.perf_counter()
        for _ in range(count):
            made = fn(argument)
        jax.block_until_ready(made)
        return time.perf_counter() - began

    return seconds
