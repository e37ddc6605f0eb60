"""Laplacian smoothing: the matrix A_σ = I + σ(−L)ⁿ of a cycle, its spectrum, solves and fast factors.

L is the Laplacian of the cycle graph on d points whose double edge counts once, so d = 2 is one
edge, A = [[1+σ, −σ], [−σ, 1+σ]], and d = 1 is a point without edges, A = 1. For n = 1

    A_σ = (1/c²)(1 − ρS)(1 − ρS⁻¹),   ρ = exp(−θ),  θ = 2 asinh(1/(2√σ)),  c² = ρ/σ,

with S the cyclic shift. So B = c(1 − ρS)⁻¹ has B Bᵀ = A⁻¹: a causal recursive filter, and Bᵀ the
anticausal one. Its powers are summed in stages of eight shifted terms,

    1/(1 − q) = (1 + q + … + q⁷)(1 + q⁸ + … + q⁵⁶) …,   q = ρS,

until ρ^(8ⁿ) is below rounding: O(d), no transform, exact around the cycle for every d. The number
of stages is what is called the form; it follows from the concrete σ. A σ that is traced, or an
order above one, takes the spectral form B = Bᵀ = A^{-1/2} by real FFT.
"""

import functools
import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from numpy.typing import NDArray

from lsmcmc import _checks, _trees
from lsmcmc._fusion import alone

_RADIX = 8
_PIECE = 2**12  # coordinates smoothed together where a vector has more than `_LONG`: they stay in the cache
_LONG = 2**13
_NEGLIGIBLE = {jnp.dtype(jnp.float32): 2.0**-27, jnp.dtype(jnp.float64): 2.0**-56}


class Smoother(eqx.Module):
    """B and Bᵀ with B Bᵀ = A_σ⁻¹, along the last axis. σ is data; the form is structure."""

    sigma: Float[Array, ""]
    order: int = eqx.field(static=True)
    stages: tuple[int, int] | None = eqx.field(static=True)  # in float32 and float64; None is spectral

    def __init__(self, sigma: Any, order: int = 1):
        self.sigma = _checks.hyper("sigma", sigma)
        self.order = _checks.count("order", order)
        spectral = self.order > 1 or _checks.is_traced(self.sigma)
        self.stages = None if spectral else _num_stages(float(self.sigma))

    def root(self, v: Float[Array, "*batch d"]) -> Float[Array, "*batch d"]:
        """B v."""
        return self._apply(v, transpose=False)

    def root_transpose(self, v: Float[Array, "*batch d"]) -> Float[Array, "*batch d"]:
        """Bᵀ v."""
        return self._apply(v, transpose=True)

    def _apply(self, v: Float[Array, "*batch d"], transpose: bool) -> Float[Array, "*batch d"]:
        wide = v.astype(_trees.wide(v.dtype))
        if self.stages is None:
            out = _spectral(wide, self.sigma, self.order, -0.5)
        else:
            out = _filter(wide, self.sigma, self.stages[wide.dtype == jnp.float64], transpose)
        return out.astype(v.dtype)


def solve(v: Float[Array, "*batch d"], sigma: Any, order: int = 1) -> Float[Array, "*batch d"]:
    """A_σ⁻¹ v along the last axis.

    A_σ = I + σ(−L)ⁿ with n = `order`; leading axes are batched and the dtype is kept. Exact to
    rounding for every d ≥ 1. O(d) for a concrete σ at order 1, otherwise one real FFT there and back.

    >>> import jax.numpy as jnp
    >>> solve(jnp.array([3.0, 0.0]), sigma=1.0).round(5).tolist()  # the matrix is [[2, -1], [-1, 2]]
    [2.0, 1.0]
    """
    v = _checks.floating("v", v)
    wide, smoother = v.astype(_trees.wide(v.dtype)), Smoother(sigma, order)
    if smoother.stages is None:
        return _spectral(wide, smoother.sigma, smoother.order, -1.0).astype(v.dtype)
    return smoother.root_transpose(smoother.root(wide)).astype(v.dtype)


def sqrt_solve(v: Float[Array, "*batch d"], sigma: Any, order: int = 1) -> Float[Array, "*batch d"]:
    """The symmetric A_σ^{-1/2} v along the last axis, by real FFT.

    Samplers do not need it: any B with B Bᵀ = A⁻¹ gives the same law, and `ls.Laplacian` uses one
    that is a short filter. This is the paper's own root (Eq. SqrtMatrix), for comparison.

    >>> import jax.numpy as jnp
    >>> v = jnp.array([1.0, 2.0, 3.0, 5.0])
    >>> bool(jnp.allclose(sqrt_solve(sqrt_solve(v, 1.0), 1.0), solve(v, 1.0), atol=1e-6))
    True
    """
    v = _checks.floating("v", v)
    sigma, order = _checks.hyper("sigma", sigma), _checks.count("order", order)
    return _spectral(v.astype(_trees.wide(v.dtype)), sigma, order, -0.5).astype(v.dtype)


def eigenvalues(d: int, sigma: Any, order: int = 1) -> Float[Array, " d"]:
    """The d eigenvalues 1 + σ ℓⱼⁿ of A_σ, ℓⱼ = 2 − 2cos(2πj/d) halved for d = 2, in Fourier order.

    >>> eigenvalues(4, 1.0).tolist()
    [1.0, 3.0, 5.0, 3.0]
    """
    d = _checks.count("d", d)
    sigma, order = _checks.hyper("sigma", sigma), _checks.count("order", order)
    return _spectrum(d, d, sigma, order)


def _num_stages(sigma: float) -> tuple[int, int]:
    """In float32 and float64; where there is no float64 the second says nothing new, so that forms are shared."""
    if sigma < np.finfo(np.float32).tiny:  # zero, or what the device takes for zero
        return 0, 0
    theta = 2 * math.asinh(0.5 / math.sqrt(sigma))
    taps = [-math.log(tiny) / theta for tiny in _NEGLIGIBLE.values()]
    narrow, wide = (max(1, math.ceil(math.log(n, _RADIX))) for n in taps)
    return narrow, wide if jnp.result_type(float) == jnp.float64 else narrow


@functools.partial(jax.jit, static_argnames=("stages", "transpose"))
def _filter(v: Array, sigma: Array, stages: int, transpose: bool) -> Array:
    """c(1 − ρS)⁻¹ v, or its transpose, in `stages` sums of shifted copies."""
    d = v.shape[-1]
    if d <= 1 or stages == 0:
        return v
    sigma = sigma / 2 if d == 2 else sigma  # a cycle of two has its one edge twice
    theta = 2 * jnp.arcsinh(0.5 / jnp.sqrt(sigma))
    gain = 1 / jnp.sqrt((1 + 2 * sigma + jnp.sqrt(1 + 4 * sigma)) / 2)
    shifts = np.arange(_RADIX) * _RADIX ** np.arange(stages)[:, None]
    weights = jnp.exp(-theta * jnp.asarray(shifts, theta.dtype)).at[0].multiply(gain).astype(v.dtype)
    if d >= _LONG and int(shifts[:, -1].sum()) <= _PIECE:
        return _in_pieces(v, shifts, weights, transpose)
    for stage in range(stages):
        v = _sum_of_shifts(v, (shifts[stage] % d).tolist(), weights[stage], transpose)
    return v


def _sum_of_shifts(v: Array, shifts: list[int], weights: Array, transpose: bool) -> Array:
    """Σₖ wₖ S^sₖ v, the cycle unrolled once so that each term is a slice."""
    d, reach = v.shape[-1], max(shifts)
    ends = [v, v[..., :reach]] if transpose else [v[..., d - reach :], v]
    return _sum_within(jnp.concatenate(ends, axis=-1), shifts, weights, transpose)


def _sum_within(unrolled: Array, shifts: list[int], weights: Array, transpose: bool) -> Array:
    """The same of a stretch of the cycle, shorter by the longest shift."""
    unrolled = jax.lax.optimization_barrier(unrolled)  # or XLA recomputes it, and all before it, for every term
    reach = max(shifts)
    starts, length = (shifts if transpose else [reach - s for s in shifts]), unrolled.shape[-1] - reach
    terms = [jax.lax.slice_in_dim(unrolled, start, start + length, axis=-1) for start in starts]
    return functools.reduce(jnp.add, [w * term for w, term in zip(weights, terms, strict=True)])


def _in_pieces(v: Array, shifts: NDArray[Any], weights: Array, transpose: bool) -> Array:
    """All stages on a piece that fits the cache, then the next: a long vector is read and written once.

    In place: the causal filter looks back, so it works from the end to the front, its transpose the other way.
    What is left over goes first, with the coordinates around the end of the cycle.
    """
    d, reach = v.shape[-1], int(shifts[:, -1].sum())
    rest = reach + (d - reach) % _PIECE
    num = (d - rest) // _PIECE

    def smoothed(stretch: Array) -> Array:
        for stage, weight in zip(shifts.tolist(), weights, strict=True):
            sum_of_stage = functools.partial(_sum_within, shifts=stage, weights=weight, transpose=transpose)
            stretch = alone(sum_of_stage, stretch)
        return stretch

    def one(i: Array, v: Array) -> Array:
        start = i * _PIECE if transpose else rest - reach + (num - 1 - i) * _PIECE
        stretch = jax.lax.dynamic_slice_in_dim(v, start, _PIECE + reach, axis=-1)
        return _put(v, smoothed(stretch), start if transpose else start + reach)

    ends = [v[..., d - rest :], v[..., :reach]] if transpose else [v[..., d - reach :], v[..., :rest]]
    around, v = jax.lax.optimization_barrier((smoothed(jnp.concatenate(ends, axis=-1)), v))
    return _put(jax.lax.fori_loop(0, num, one, v), around, d - rest if transpose else 0)


def _put(v: Array, part: Array, start: Any) -> Array:
    return jax.lax.dynamic_update_slice_in_dim(v, part, start, axis=-1)


def _spectrum(d: int, num: int, sigma: Array, order: int) -> Array:
    """The first `num` eigenvalues of A_σ."""
    j = jnp.arange(num)
    j = jnp.minimum(j, d - j).astype(sigma.dtype)  # sin near π would lose half of the digits
    ell = 4 * jnp.sin(j * (np.pi / d)) ** 2  # 2 − 2cos without the cancellation
    return 1 + sigma * (ell / 2 if d == 2 else ell) ** order


@functools.partial(jax.jit, static_argnames=("order", "power"))
def _spectral(v: Array, sigma: Array, order: int, power: float) -> Array:
    """A_σ^power v by real FFT."""
    d = v.shape[-1]
    if d <= 1:
        return v
    scale = _spectrum(d, d // 2 + 1, sigma, order) ** power
    waves = jnp.fft.rfft(v)
    return jnp.fft.irfft(waves * scale.astype(waves.dtype), n=d)
