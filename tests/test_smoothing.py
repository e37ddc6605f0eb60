"""A_σ against dense float64 matrices: spectrum, solves, the factor pair, its forms, and what refuses bad input.

The dense side is one eigendecomposition of the cycle's Laplacian, written down entry by entry in `registry`.
Each check takes the functions it checks, so that the negative controls at the end can hand it wrong ones.
"""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from registry import circulant

import lsmcmc as ls
from lsmcmc import smoothing
from lsmcmc.smoothing import Smoother

SIZES = [1, 2, 3, 8, 31]
MORE_SIZES = [4, 5, 7, 16, 64, 97, 122, 257, 1000, 1009]
SIGMAS = [0.0, 1e-3, 0.1, 0.5, 1.0, 2.0, 10.0, 100.0, 1e3, 1e4]
FORMS = [0.0, 1.0, 1e4]  # few numbers of stages, for tests that compile for each
DTYPES = [np.float32, np.float64]
TOLERANCE = {np.dtype(np.float32): 5e-6, np.dtype(np.float64): 5e-11}  # the contract is 3e-5 and 1e-9

dtypes = pytest.mark.parametrize("dtype", DTYPES, ids=["float32", "float64"])
sizes = pytest.mark.parametrize("d", [*SIZES, *(pytest.param(d, marks=pytest.mark.slow) for d in MORE_SIZES)])


@functools.cache
def eigenbasis(d):
    """Eigenvalues and vectors of −L."""
    return np.linalg.eigh(circulant(d, 1.0) - np.eye(d))


def spectrum(d, sigma, order=1):
    """The eigenvalues of A_σ, ascending."""
    return 1 + sigma * np.maximum(eigenbasis(d)[0], 0) ** order


def dense(d, sigma, order=1, power=-1.0):
    """A_σ^power."""
    vectors = eigenbasis(d)[1]
    return (vectors * spectrum(d, sigma, order) ** power) @ vectors.T


def rows(d, dtype, num=20):
    """Standard normal rows."""
    return np.random.default_rng(0).standard_normal((num, d)).astype(dtype)


def unit_and_normal_rows(d, dtype):
    """All unit vectors, then two standard normal ones: one shape for each d, so that checks share what is compiled."""
    return np.concatenate([np.eye(d, dtype=dtype), rows(d, dtype, num=2)])


def check_close(found, exact, tolerance=None):
    tolerance = TOLERANCE[np.dtype(found.dtype)] if tolerance is None else tolerance
    assert found.shape == exact.shape
    error = np.abs(np.asarray(found, np.float64) - exact).max()
    assert error <= tolerance, f"error {error:.2e} is above {tolerance:.1e}"


def check_multiplies_by(fn, matrix, dtype):
    """`fn` of rows is the rows times a symmetric matrix, in the same dtype."""
    v = unit_and_normal_rows(len(matrix), dtype)
    found = fn(jnp.asarray(v))
    assert found.dtype == dtype
    check_close(found, v.astype(np.float64) @ matrix)


def check_factors(root, root_transpose, matrix, dtype):
    """B and Bᵀ are each other's transpose and B Bᵀ = matrix, from the images of all unit vectors and of noise."""
    d = len(matrix)
    v = unit_and_normal_rows(d, dtype)
    images, transposed = root(jnp.asarray(v)), root_transpose(jnp.asarray(v))
    assert images.dtype == transposed.dtype == dtype
    B, Bt = np.asarray(images[:d], np.float64).T, np.asarray(transposed[:d], np.float64).T
    tolerance = TOLERANCE[np.dtype(dtype)]
    check_close(Bt, B.T, tolerance)
    check_close(B @ B.T, matrix, tolerance)
    check_close(np.asarray(images[d:], np.float64), v[d:] @ B.T, tolerance)
    check_close(np.asarray(transposed[d:], np.float64), v[d:] @ Bt.T, tolerance)
    u, w = np.asarray(v[d:], np.float64)
    assert abs((B @ u) @ w - u @ (Bt @ w)) <= 10 * tolerance * d


# --- against dense matrices --------------------------------------------------------------------------------------


@dtypes
@sizes
def test_solve_multiplies_by_the_inverse_matrix(d, dtype):
    with jax.enable_x64(dtype == np.float64):
        for sigma in SIGMAS:
            check_multiplies_by(lambda v, s=sigma: ls.smoothing.solve(v, s), dense(d, sigma), dtype)


@dtypes
@sizes
def test_solve_of_higher_order_multiplies_by_the_inverse_matrix(d, dtype):
    with jax.enable_x64(dtype == np.float64):
        for order in (2, 3):
            for sigma in SIGMAS:
                check_multiplies_by(
                    lambda v, s=sigma, n=order: ls.smoothing.solve(v, s, n), dense(d, sigma, order), dtype
                )


@dtypes
@sizes
def test_sqrt_solve_multiplies_by_the_symmetric_root_of_the_inverse(d, dtype):
    with jax.enable_x64(dtype == np.float64):
        for order in (1, 2, 3):
            for sigma in SIGMAS:
                root = dense(d, sigma, order, power=-0.5)
                check_multiplies_by(lambda v, s=sigma, n=order: ls.smoothing.sqrt_solve(v, s, n), root, dtype)


@dtypes
@sizes
def test_the_factors_multiply_to_the_inverse_matrix(d, dtype):
    with jax.enable_x64(dtype == np.float64):
        for sigma in SIGMAS:
            smoother = Smoother(sigma)
            check_factors(smoother.root, smoother.root_transpose, dense(d, sigma), dtype)


@dtypes
@pytest.mark.parametrize("order", [2, 3])
def test_the_factors_of_higher_order_multiply_to_the_inverse_matrix(order, dtype):
    with jax.enable_x64(dtype == np.float64):
        for d in SIZES:
            for sigma in FORMS:
                smoother = Smoother(sigma, order)
                check_factors(smoother.root, smoother.root_transpose, dense(d, sigma, order), dtype)


@dtypes
@sizes
def test_eigenvalues_are_those_of_the_matrix(d, dtype):
    relative = {np.float32: 2e-6, np.float64: 2e-11}[dtype]
    with jax.enable_x64(dtype == np.float64):
        for order in (1, 2, 3):
            for sigma in (0.0, 0.5, 1e4):
                found = ls.smoothing.eigenvalues(d, sigma, order)
                assert found.dtype == dtype
                np.testing.assert_allclose(np.sort(found), spectrum(d, sigma, order), rtol=relative)


def test_eigenvalues_come_in_fourier_order(x64):
    for d in (1, 2, 7, 8):
        first_column = circulant(d, 3.0)[:, 0]
        np.testing.assert_allclose(ls.smoothing.eigenvalues(d, 3.0), np.fft.fft(first_column).real, atol=1e-12)


def test_one_point_is_left_alone_and_two_points_share_one_edge(x64):
    v = jnp.array([[2.0], [-3.0]])
    np.testing.assert_array_equal(ls.smoothing.solve(v, 5.0), v)
    for sigma in SIGMAS:
        matrix = np.array([[1 + sigma, -sigma], [-sigma, 1 + sigma]])
        check_multiplies_by(lambda v, s=sigma: ls.smoothing.solve(v, s), np.linalg.inv(matrix), np.float64)


def test_constants_pass_through_every_root():
    for sigma in SIGMAS:
        for root in (Smoother(sigma).root, Smoother(sigma).root_transpose):
            np.testing.assert_allclose(root(jnp.full((33, 31), 2.0)), 2.0, rtol=5e-6)


@pytest.mark.parametrize("sigma", [1.0, pytest.param(100.0, marks=pytest.mark.slow)])
def test_a_vector_of_a_million_coordinates_satisfies_the_equation_it_solves(sigma):
    d = 1_000_003  # a prime
    v = np.random.default_rng(0).standard_normal(d).astype(np.float32)
    u = np.asarray(ls.smoothing.solve(jnp.asarray(v), sigma), np.float64)
    again = u + sigma * (2 * u - np.roll(u, 1) - np.roll(u, -1))
    assert np.abs(again - v).max() <= (1 + 4 * sigma) * TOLERANCE[np.dtype(np.float32)]


# --- dtypes, batches, transformations ----------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16])
def test_half_precision_is_kept_and_rounded_once(dtype):
    d, half_a_digit = 31, float(jnp.finfo(dtype).eps) / 2
    units = jnp.asarray(unit_and_normal_rows(d, np.float32))
    v = 3 * units.astype(dtype)
    wide = np.asarray(v.astype(jnp.float32), np.float64)
    for sigma in FORMS:
        B = np.asarray(Smoother(sigma).root(units)[:d], np.float64).T
        for fn, matrix in (
            (lambda v, s=sigma: ls.smoothing.solve(v, s), dense(d, sigma)),
            (lambda v, s=sigma: ls.smoothing.solve(v, s, order=2), dense(d, sigma, order=2)),
            (lambda v, s=sigma: ls.smoothing.sqrt_solve(v, s), dense(d, sigma, power=-0.5)),
            (Smoother(sigma).root, B),
            (Smoother(sigma).root_transpose, B.T),
        ):
            found, exact = fn(v), wide @ matrix.T
            assert found.dtype == dtype
            error = np.abs(np.asarray(found.astype(jnp.float32), np.float64) - exact)
            assert (error <= 1.01 * half_a_digit * np.abs(exact) + 5e-6).all()


@pytest.mark.parametrize("order", [1, 2])
def test_leading_axes_are_batched(order):
    v = jnp.asarray(rows(31, np.float32, num=6)).reshape(2, 3, 31)
    for fn in (ls.smoothing.solve, ls.smoothing.sqrt_solve):
        together = fn(v, 10.0, order)
        for i, j in np.ndindex(2, 3):
            np.testing.assert_allclose(together[i, j], fn(v[i, j], 10.0, order), atol=1e-6)


def test_solves_are_linear(x64):
    u = unit_and_normal_rows(31, np.float64)
    v = u[::-1]
    for sigma in FORMS:
        for fn in (ls.smoothing.solve, ls.smoothing.sqrt_solve):
            together = fn(jnp.asarray(2 * u - 3 * v), sigma)
            np.testing.assert_allclose(
                together, 2 * fn(jnp.asarray(u), sigma) - 3 * fn(jnp.asarray(v), sigma), atol=1e-12
            )


def test_compiled_solves_equal_eager_ones():
    v = jnp.asarray(rows(31, np.float32))
    for fn in (ls.smoothing.solve, ls.smoothing.sqrt_solve):
        np.testing.assert_allclose(jax.jit(lambda v, fn=fn: fn(v, 10.0))(v), fn(v, 10.0), atol=1e-6)


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("d", [1, 2, 31])
def test_vmap_over_sigma_equals_one_sigma_at_a_time(d, order, x64):
    v, sigmas = jnp.asarray(unit_and_normal_rows(d, np.float64)), jnp.asarray(SIGMAS)

    def both(sigma):
        smoother = Smoother(sigma, order)
        return ls.smoothing.solve(v, sigma, order), smoother.root(smoother.root_transpose(v))

    for together in jax.vmap(both)(sigmas):
        for sigma, found in zip(SIGMAS, together, strict=True):
            check_close(found, np.asarray(ls.smoothing.solve(v, sigma, order)))
            check_close(found, v @ dense(d, sigma, order))


def test_vmap_over_sigma_has_the_eigenvalues_of_each():
    found = jax.vmap(lambda sigma: ls.smoothing.eigenvalues(9, sigma, order=2))(jnp.asarray(SIGMAS))
    for sigma, values in zip(SIGMAS, found, strict=True):
        np.testing.assert_allclose(np.sort(values), spectrum(9, sigma, 2), rtol=2e-6)


def test_solve_is_its_own_derivative_and_its_own_transpose(x64):
    v, w = (jnp.asarray(row) for row in rows(31, np.float64, num=2))
    for sigma in (0.0, 1.0):
        moved = jax.jvp(lambda v, s=sigma: ls.smoothing.solve(v, s), (v,), (w,))[1]
        pulled = jax.grad(lambda v, s=sigma: jnp.vdot(w, ls.smoothing.solve(v, s)))(v)
        for found in (moved, pulled):
            check_close(found, dense(31, sigma) @ w)


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("d", [1, 2, 31])
def test_the_derivative_in_sigma_is_exact_from_zero_on(d, order, x64):
    v, w = (jnp.asarray(row) for row in rows(d, np.float64, num=2))
    minus_laplacian = dense(d, 1.0, order, power=1.0) - np.eye(d)
    for sigma in SIGMAS:
        inverse = dense(d, sigma, order)
        exact = -w @ inverse @ minus_laplacian @ inverse @ v
        found = jax.grad(lambda s: jnp.vdot(w, ls.smoothing.solve(v, s, order)))(sigma)
        np.testing.assert_allclose(found, exact, rtol=1e-9, atol=1e-9)
        root = jax.grad(lambda s: jnp.vdot(w, ls.smoothing.sqrt_solve(v, s, order)))(sigma)
        assert np.isfinite(root)


# --- forms and traces --------------------------------------------------------------------------------------------


def test_sigmas_of_one_form_share_a_trace_and_another_form_takes_its_own():
    traces = []

    @jax.jit
    def root(smoother, v):
        traces.append(smoother.stages)
        return smoother.root(v)

    v = jnp.ones(31)
    for sigma in (0.5, 0.7, 1.0, 2):
        root(Smoother(sigma), v)
    assert len(traces) == 1
    root(Smoother(100.0), v)
    assert len(traces) == 2
    root(Smoother(150.0), v)
    assert len(traces) == 2


def test_a_traced_sigma_is_one_trace_for_every_value(x64):
    traces, v = [], jnp.asarray(rows(31, np.float64))

    @jax.jit
    def solve(sigma):
        traces.append(sigma)
        return ls.smoothing.solve(v, sigma)

    for sigma in SIGMAS:
        check_close(solve(sigma), v @ dense(31, sigma))
    assert len(traces) == 1


@pytest.mark.parametrize("number", [int, float, np.float32, np.float64, np.int64, jnp.float32])
def test_a_number_written_inside_a_compiled_function_keeps_the_filter(number):
    v, sigma = jnp.ones(31), number(1)
    written = jax.make_jaxpr(lambda v: ls.smoothing.solve(v, sigma))(v)
    assert "fft" not in str(written)
    traced = jax.make_jaxpr(lambda v, s: ls.smoothing.solve(v, s))(v, 1.0)
    assert "fft" in str(traced)


def test_no_entries_are_smoothed_to_no_entries():
    for order in (1, 2):
        assert ls.smoothing.solve(jnp.zeros((3, 0)), 1.0, order).shape == (3, 0)


# --- messages ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fn", [ls.smoothing.solve, ls.smoothing.sqrt_solve], ids=["solve", "sqrt_solve"])
def test_bad_input_is_refused_with_what_came_and_what_to_write(fn):
    v = jnp.ones(3)
    for sigma in (-1.0, np.nan, np.inf):
        with pytest.raises(ValueError, match=f"sigma must be a finite number, zero or above, got {sigma:g}"):
            fn(v, sigma)
    with pytest.raises(ValueError, match="sigma must be a finite number, zero or above, got -2"):
        jax.jit(lambda v: ls.smoothing.solve(v, -2.0))(v)
    with pytest.raises(
        ValueError,
        match=r"sigma must be one number, got an array of shape \(2,\).*one number for each branch of the position",
    ):
        fn(v, np.ones(2))
    with pytest.raises(TypeError, match="sigma must be a number, got 'strong'"):
        fn(v, "strong")
    with pytest.raises(ValueError, match="order must be at least 1, got 0"):
        fn(v, 1.0, 0)


@pytest.mark.parametrize("d", [0, -3])
def test_eigenvalues_need_at_least_one_point(d):
    with pytest.raises(ValueError, match=f"d must be at least 1, got {d}"):
        ls.smoothing.eigenvalues(d, 1.0)


# --- negative controls -------------------------------------------------------------------------------------------


def filtered(d, sigma, *, wrap=True):
    """c(1 − ρS)⁻¹ as a dense matrix, around the cycle or falling off its end."""
    rho = 2 * sigma / (1 + 2 * sigma + np.sqrt(1 + 4 * sigma))
    shift = np.roll(np.eye(d), 1, axis=0) if wrap else np.eye(d, k=-1)
    return np.sqrt(rho / sigma) * np.linalg.inv(np.eye(d) - rho * shift)


def applies(matrix):
    return lambda v: v @ jnp.asarray(matrix.T, v.dtype)


def too_short(sigma):
    """The form of a small σ with a large σ put into it."""
    return eqx.tree_at(lambda s: s.sigma, Smoother(0.01), jnp.asarray(sigma, float))


good = filtered(8, 10.0)
WRONG_FACTORS = {
    "no wrap-around": lambda: (applies(filtered(8, 10.0, wrap=False)), applies(filtered(8, 10.0, wrap=False).T)),
    "not transposed": lambda: (Smoother(10.0).root, Smoother(10.0).root),
    "symmetric root for the transpose": lambda: (Smoother(10.0).root, applies(dense(8, 10.0, power=-0.5))),
    "the inverse itself": lambda: (applies(dense(8, 10.0)), applies(dense(8, 10.0))),
    "loud": lambda: (applies(1.001 * good), applies(1.001 * good.T)),
    "another sigma": lambda: (Smoother(10.1).root, Smoother(10.1).root_transpose),
    "too few stages": lambda: (too_short(10.0).root, too_short(10.0).root_transpose),
    "not linear": lambda: (lambda v: jnp.abs(applies(good)(v)), lambda v: jnp.abs(applies(good.T)(v))),
}


def test_the_dense_filter_passes_the_check_that_its_sabotages_fail(x64):
    check_factors(applies(good), applies(good.T), dense(8, 10.0), np.float64)


@pytest.mark.parametrize("name", WRONG_FACTORS)
def test_wrong_factors_are_caught(name, x64):
    with pytest.raises(AssertionError):
        check_factors(*WRONG_FACTORS[name](), dense(8, 10.0), np.float64)


WRONG_SOLVES = {
    "root used once": (8, lambda v: ls.smoothing.sqrt_solve(v, 10.0)),
    "root used twice": (8, lambda v: Smoother(10.0).root(Smoother(10.0).root(v))),
    "another order": (8, lambda v: ls.smoothing.solve(v, 10.0, order=2)),
    "the double edge of two points": (2, lambda v: ls.smoothing.solve(v, 20.0)),
    "wide output": (8, lambda v: ls.smoothing.solve(v, 10.0).astype(jnp.float64)),
    "half precision inside": (8, lambda v: ls.smoothing.solve(v.astype(jnp.float16), 10.0).astype(v.dtype)),
    "the first axis": (8, lambda v: ls.smoothing.solve(v.T, 10.0).T),
}


@pytest.mark.parametrize("name", WRONG_SOLVES)
def test_wrong_solves_are_caught(name, x64):
    d, fn = WRONG_SOLVES[name]
    with pytest.raises(AssertionError):
        check_multiplies_by(fn, dense(d, 10.0), np.float32)


@pytest.mark.parametrize("sigma", [0.5, 100.0])
@pytest.mark.parametrize("d", [2**15, 2**15 + 3])
def test_long_vectors_are_smoothed_in_pieces_to_the_same_numbers(d, sigma, monkeypatch):
    v = jax.random.normal(jax.random.key(1), (2, d))
    smoother = Smoother(sigma)
    stages = smoother.stages[0]
    for transpose in (False, True):
        in_pieces = smoothing._filter(v, smoother.sigma, stages, transpose)
        with monkeypatch.context() as patch:
            patch.setattr(smoothing, "_LONG", 2**30)
            whole = jax.jit(smoothing._filter.__wrapped__, static_argnums=(2, 3))(v, smoother.sigma, stages, transpose)
        np.testing.assert_allclose(in_pieces, whole, atol=1e-6)
