"""`smoothing` and `noise`: what a step of one long vector costs, where the gradient is free."""

import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import lsmcmc as ls
from benchmarks import peers
from benchmarks.timing import Contender, Size, gate, interleaved, table
from lsmcmc import _random, smoothing

SIGMA, STEP_SIZE = 1.0, 1e-3
DIMENSIONS = (100_000, 1_000_003, 10_000_000)
LENGTHS = (122, 1_000, 10_000, 100_000, 1_000_003, 10_000_000)
_FRIENDLY = 2**16  # a length that is a multiple of it is one that suits `jax.random.normal`


def smoothed_step(size: Size) -> dict[str, Any]:
    """Plain, smoothed by the filter, smoothed by the paper's formula, and one draw of normals, for each length."""
    found = {}
    for d in (1_000,) if size.tiny else DIMENSIONS:
        seconds, errors = _measure(d, size)
        rows = table(seconds, "LS-SGLD", errors)
        median = {row["name"]: row["seconds"] for row in rows}
        added = [s - p for s, p in zip(seconds["LS-SGLD"], seconds["SGLD"], strict=True)]
        found[str(d)] = {
            "rows": rows,
            "added_over_normal": float(np.median(np.array(added) / seconds["jax.random.normal"])),
            "step_over_fourier": median["LS-SGLD"] / median["Fourier"],
            "vectors_of_scratch": _scratch(d),
        }
    return {"unit": "one step", "by_length": found}


def flat(size: Size, dimensions: tuple[int, ...] = (10**5, 10**6, 10**7, 10**8)) -> dict[str, Any]:
    """Nanoseconds per coordinate of an LS-SGLD step, noise included; 10⁸ once."""
    found = {}
    for d in (1_000, 2_000) if size.tiny else dimensions:
        contender = Contender("LS-SGLD", _loop(_sgld(ls.Laplacian(SIGMA)), d), lambda: 0.0)
        contender.seconds(1)
        times = [contender.seconds(1 if d >= 10**8 else 3) for _ in range(1 if d >= 10**8 else size.rounds)]
        found[str(d)] = 1e9 * float(np.median(times)) / (1 if d >= 10**8 else 3) / d
    return {"unit": "nanoseconds per coordinate", "by_length": found}


def noise(size: Size) -> dict[str, Any]:
    """One draw of standard normals: ours, JAX's of that length and JAX's of the nearest friendly one, per number."""
    found = {}
    for d in (100, 1_000) if size.tiny else LENGTHS:
        ahead = max(1, min(256, 2**15 // d))  # short draws are made for many steps together, as the loop does
        near = max(1, round(ahead * d / _FRIENDLY)) * _FRIENDLY
        contenders = [
            Contender("lsmcmc", _draws(_random.normal, d, ahead), _moments(_random.normal, d)),
            Contender("jax.random.normal", _draws(jax.random.normal, d, ahead), _moments(jax.random.normal, d)),
            Contender("friendly", _draws(jax.random.normal, near, 1), _moments(jax.random.normal, d)),
        ]
        errors = gate(contenders, _moments(jax.random.normal, d)(), 0.0)
        per_number = {"lsmcmc": ahead * d, "jax.random.normal": ahead * d, "friendly": near}
        seconds = interleaved(contenders, size)
        scaled = {name: [value / per_number[name] for value in values] for name, values in seconds.items()}
        found[str(d)] = table(scaled, "lsmcmc", errors)
    return {"unit": "one number", "by_length": found}


def _measure(d: int, size: Size) -> tuple[dict[str, list[float]], dict[str, float]]:
    near = max(1, round(d / _FRIENDLY)) * _FRIENDLY
    smooth = [
        Contender("LS-SGLD", _loop(_sgld(ls.Laplacian(SIGMA)), d), lambda: _norm(_by_filter, d)),
        Contender("Fourier", _loop(_fourier, d), lambda: _norm(_by_fourier, d)),
    ]
    rest = [
        Contender("SGLD", _loop(_sgld(ls.Identity()), d), lambda: 0.0),
        Contender("jax.random.normal", _draws(jax.random.normal, near, 1), lambda: 0.0),
    ]
    with peers.installed(*([] if size.tiny else ["torch"])) as there:
        if "torch" in there:
            smooth.append(there["torch"].contender("PyTorch, FFT", job="fft_step", d=d, sigma=SIGMA))
        errors = gate(smooth, _expected_norm(d), 1e-3)  # PyTorch's float32 transform of a prime length is off by 4e-4
        return interleaved(smooth + rest, size), errors


def _sgld(preconditioner: ls.Preconditioner) -> Callable[[Any, Any], Any]:
    sampler = ls.sgld(STEP_SIZE, preconditioner=preconditioner)

    def step(x: Any, key: Any) -> Any:
        return sampler.step(sampler.init(x, key=key), lambda x: x, key=key)[0].position

    return step


def _fourier(x: Any, key: Any) -> Any:
    """The paper's formula: x − hA⁻¹g + √(2h) A^{-1/2} ε, each by a real FFT and back."""
    noise = smoothing.sqrt_solve(_random.normal(key, x.shape, x.dtype), SIGMA)
    return x - STEP_SIZE * _by_fourier(x) + np.float32(np.sqrt(2 * STEP_SIZE)) * noise


def _by_fourier(v: Any) -> Any:
    return smoothing._spectral(v, jnp.asarray(SIGMA, v.dtype), 1, -1.0)


def _by_filter(v: Any) -> Any:
    return smoothing.solve(v, SIGMA)


def _probe(d: int) -> Any:
    return np.sin(np.arange(d, dtype=np.float64))


def _norm(solve: Callable[[Any], Any], d: int) -> float:
    return float(np.linalg.norm(np.asarray(solve(jnp.asarray(_probe(d), jnp.float32)), np.float64)))


def _expected_norm(d: int) -> float:
    """|A⁻¹v| in float64."""
    waves = np.fft.rfft(_probe(d))
    waves /= 1 + 2 * SIGMA * (1 - np.cos(2 * np.pi * np.arange(len(waves)) / d))
    return float(np.linalg.norm(np.fft.irfft(waves, d)))


def _loop(step: Callable[[Any, Any], Any], d: int) -> Callable[[int], float]:
    """Seconds of so many steps of a vector in a compiled loop."""
    program = _steps(step)
    start = jnp.ones(d)

    def seconds(count: int) -> float:
        began = time.perf_counter()
        jax.block_until_ready(program(start, jnp.asarray(count)))
        return time.perf_counter() - began

    return seconds


def _steps(step: Callable[[Any, Any], Any]) -> Any:
    def steps(x: Any, count: Any) -> Any:
        key = jax.random.key(0)
        return jax.lax.fori_loop(0, count, lambda i, x: step(x, jax.random.fold_in(key, i)), x)

    return jax.jit(steps)


def _scratch(d: int) -> float:
    """Vectors of d beside the position and its successor, by the compiler's plan."""
    program = _steps(_sgld(ls.Laplacian(SIGMA))).lower(jnp.ones(d), jnp.asarray(1)).compile()
    return float(program.memory_analysis().temp_size_in_bytes / (4 * d))


def _draws(normal: Callable[..., Any], d: int, ahead: int) -> Callable[[int], float]:
    """Seconds of `count` draws of `ahead` vectors each, in a compiled loop."""

    def draws(count: Any) -> Any:
        def one(i: Any, held: Any) -> Any:
            keys = jax.random.split(jax.random.fold_in(jax.random.key(0), i), ahead)
            return jax.vmap(lambda key: normal(key, (d,), jnp.dtype("float32")))(keys)

        return jax.lax.fori_loop(0, count, one, jnp.zeros((ahead, d)))

    program = jax.jit(draws)

    def seconds(count: int) -> float:
        began = time.perf_counter()
        jax.block_until_ready(program(jnp.asarray(count)))
        return time.perf_counter() - began

    return seconds


def _moments(normal: Callable[..., Any], d: int) -> Callable[[], list[float]]:
    """The gate of a generator: it is JAX's, so the sums of its numbers and squares are equal to the last digit."""

    def value() -> list[float]:
        drawn = np.asarray(normal(jax.random.key(1), (d,), jnp.dtype("float32")), np.float64)
        return [float(drawn.sum()), float((drawn**2).sum())]

    return value
