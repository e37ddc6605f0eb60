"""The operator contract over every kind of preconditioner, the layouts of smoothing, RMSprop and its Γ.

The checks run on a pytree with a convolution kernel, a vector and a number. The dense side is NumPy in float64,
on the position laid out leaf by leaf; each check takes the preconditioner, so that the negative controls at the
end can hand it a wrong one.
"""

import dataclasses
import itertools
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from registry import circulant
from scipy.linalg import block_diag

import lsmcmc as ls

POSITION = {"kernel": (2, 3, 2, 2), "bias": (5,), "scale": ()}  # shapes; jax orders the leaves bias, kernel, scale
LEAVES = sorted(POSITION)
SIZES = [int(np.prod(POSITION[name])) for name in LEAVES]
D = sum(SIZES)
DECAY, EPS = 0.9, 1e-3
TOLERANCE = {np.dtype(np.float32): 5e-6, np.dtype(np.float64): 1e-11}


# --- positions, flat vectors and dense matrices ------------------------------------------------------------------


def tree(flat):
    """A flat vector as a position."""
    pieces = np.split(np.asarray(flat), np.cumsum(SIZES)[:-1])
    return {name: jnp.asarray(piece.reshape(POSITION[name])) for name, piece in zip(LEAVES, pieces, strict=True)}


def flat(position):
    """A position as a float64 vector."""
    return np.concatenate([np.asarray(position[name], np.float64).ravel() for name in LEAVES])


def normal(seed=0, num=None):
    return np.random.default_rng(seed).standard_normal(D if num is None else (num, D))


def smoothed(sigma, size, order=1):
    """A_σ⁻¹."""
    return np.linalg.inv(circulant(size, sigma, order))


def by_leaf(**blocks):
    """Block-diagonal over the leaves."""
    return block_diag(*(blocks[name] for name in LEAVES))


def each_leaf(sigma, order=1):
    return block_diag(*(smoothed(sigma, size, order) for size in SIZES))


def kernel_along(axes, sigma):
    """G of smoothing the kernel along `axes`, in the given order, one vector for each index of the other axes."""
    index = np.arange(24).reshape(POSITION["kernel"])
    others = [axis for axis in range(4) if axis not in axes]
    G = np.zeros((24, 24))
    for vector in index.transpose(*others, *axes).reshape(-1, np.prod([POSITION["kernel"][axis] for axis in axes])):
        G[np.ix_(vector, vector)] = smoothed(sigma, len(vector))
    return G


# --- the registry ------------------------------------------------------------------------------------------------


class ConstantDiagonal(ls.Preconditioner):
    """A user's own: B = diag(0.5, 0.5, …)."""

    def apply(self, state, v):
        return jax.tree.map(lambda leaf: leaf / 2, v)

    apply_transpose = apply


class Rescaled(ls.Preconditioner):
    """A user's own that learns: B = 1/(1 + the sum of all |g| seen), one number for the whole position."""

    def init(self, position):
        return jnp.zeros((), float)

    def update(self, state, gradient):
        return state + sum(jnp.abs(leaf).sum().astype(state.dtype) for leaf in jax.tree.leaves(gradient))

    def apply(self, state, v):
        return jax.tree.map(lambda leaf: leaf / (1 + state).astype(leaf.dtype), v)

    apply_transpose = apply


GRADIENTS = normal(seed=7, num=3)  # what the adaptive ones have seen


def mean_square(decay=DECAY):
    """V after GRADIENTS, transcribed."""
    V = np.zeros(D)
    for g in GRADIENTS:
        V = decay * V + (1 - decay) * g**2
    return V


def rms_root():
    """G^{1/2} of RMSprop after GRADIENTS."""
    return np.diag(1 / np.sqrt(EPS + np.sqrt(mean_square())))


def rms():
    return ls.RMSprop(DECAY, EPS)


def only(matrix, *names):
    """`matrix` on the named leaves, the identity on the others."""
    keep = np.concatenate([np.full(size, name in names) for name, size in zip(LEAVES, SIZES, strict=True)])
    return np.where(keep[:, None] & keep[None, :], matrix, np.eye(D))


@dataclasses.dataclass
class Case:
    """How to build it, and the dense G = B Bᵀ it must have after GRADIENTS."""

    make: Callable[[], ls.Preconditioner]
    G: Callable[[], np.ndarray]
    adaptive: bool = False


TORCH_ORDER = {"kernel": (3, 2, 0, 1), "bias": None, "scale": None}
SPATIAL = {"kernel": (0, 1), "bias": None, "scale": ()}
PREFIX = {"kernel": 2.0, "bias": 0.0, "scale": 1.0}

REGISTRY = {
    "identity": Case(ls.Identity, lambda: np.eye(D)),
    "laplacian by leaf": Case(lambda: ls.Laplacian(2.0), lambda: each_leaf(2.0)),
    "laplacian of all leaves as one": Case(lambda: ls.Laplacian(2.0, "global"), lambda: smoothed(2.0, D)),
    "no smoothing": Case(lambda: ls.Laplacian(0.0), lambda: np.eye(D)),
    "strong smoothing": Case(lambda: ls.Laplacian(1e3), lambda: each_leaf(1e3)),
    "second order": Case(lambda: ls.Laplacian(0.7, order=2), lambda: each_leaf(0.7, 2)),
    "second order of all leaves": Case(lambda: ls.Laplacian(0.7, "global", order=2), lambda: smoothed(0.7, D, 2)),
    "sigma by leaf": Case(
        lambda: ls.Laplacian(PREFIX),
        lambda: by_leaf(kernel=smoothed(2.0, 24), bias=np.eye(5), scale=np.eye(1)),
    ),
    "another order of the axes": Case(
        lambda: ls.Laplacian(2.0, axes=TORCH_ORDER),
        lambda: by_leaf(kernel=kernel_along((3, 2, 0, 1), 2.0), bias=smoothed(2.0, 5), scale=np.eye(1)),
    ),
    "spatial axes": Case(
        lambda: ls.Laplacian(2.0, axes=SPATIAL),
        lambda: by_leaf(kernel=kernel_along((0, 1), 2.0), bias=smoothed(2.0, 5), scale=np.eye(1)),
    ),
    "two laplacians": Case(lambda: ls.Laplacian(1.0) @ ls.Laplacian(3.0), lambda: each_leaf(1.0) @ each_leaf(3.0)),
    "rmsprop": Case(rms, lambda: rms_root() ** 2, adaptive=True),
    "rmsprop @ laplacian": Case(
        lambda: rms() @ ls.Laplacian(2.0), lambda: rms_root() @ each_leaf(2.0) @ rms_root(), adaptive=True
    ),
    "constant @ rmsprop @ laplacian": Case(
        lambda: ConstantDiagonal() @ rms() @ ls.Laplacian(2.0),
        lambda: rms_root() @ each_leaf(2.0) @ rms_root() / 4,
        adaptive=True,
    ),
    "a product with the identity": Case(lambda: ls.Identity() @ rms() @ ls.Identity(), lambda: rms_root() ** 2, True),
    "one for each leaf": Case(
        lambda: ls.PerLeaf({"kernel": ls.Laplacian(2.0), "bias": rms(), "scale": ls.Identity()}),
        lambda: by_leaf(kernel=smoothed(2.0, 24), bias=(rms_root() ** 2)[:5, :5], scale=np.eye(1)),
        adaptive=True,
    ),
    "a product of leaf by leaf": Case(
        lambda: rms() @ ls.PerLeaf({"kernel": ls.Laplacian(2.0), "bias": ls.Identity(), "scale": ls.Identity()}),
        lambda: rms_root() @ only(each_leaf(2.0), "kernel") @ rms_root(),
        adaptive=True,
    ),
    "a user's constant one": Case(ConstantDiagonal, lambda: np.eye(D) / 4),
    "a user's adaptive one": Case(Rescaled, lambda: np.eye(D) / (1 + np.abs(GRADIENTS).sum()) ** 2, adaptive=True),
}
QUICK = ("laplacian by leaf", "laplacian of all leaves as one", "second order", "rmsprop @ laplacian")
names = pytest.mark.parametrize("name", REGISTRY)


# --- the operator contract ---------------------------------------------------------------------------------------


def learned(preconditioner, dtype=np.float64):
    """Its state after GRADIENTS, which must not change its structure or dtypes."""
    state = preconditioner.init(tree(np.zeros(D, dtype)))
    shapes = jax.tree.map(lambda leaf: (leaf.shape, leaf.dtype), state)
    for g in GRADIENTS:
        state = preconditioner.update(state, tree(g.astype(dtype)))
    assert jax.tree.map(lambda leaf: (leaf.shape, leaf.dtype), state) == shapes
    return state


@jax.jit
def images(preconditioner, state, vectors):
    """B and Bᵀ of many positions at once."""
    return (
        jax.vmap(preconditioner.apply, in_axes=(None, 0))(state, vectors),
        jax.vmap(preconditioner.apply_transpose, in_axes=(None, 0))(state, vectors),
    )


def matrices(preconditioner, state, dtype=np.float64):
    """B and Bᵀ, each from the images of all unit vectors."""
    units = jax.tree.map(lambda *leaves: jnp.stack(leaves), *(tree(e) for e in np.eye(D, dtype=dtype)))
    both = []
    for image in images(preconditioner, state, units):
        assert jax.tree.map(lambda a, b: a.dtype == b.dtype and a.shape == b.shape, image, units)
        both.append(np.stack([flat(jax.tree.map(lambda leaf, i=i: leaf[i], image)) for i in range(D)], axis=1))
    return both


def check_operator(preconditioner, G, dtype=np.float64):
    """Bᵀ is the transpose of B, B Bᵀ = G, and B is this matrix on any vector, compiled and batched or neither."""
    state, tolerance = learned(preconditioner, dtype), TOLERANCE[np.dtype(dtype)]
    B, Bt = matrices(preconditioner, state, dtype)
    bound = tolerance * max(1.0, np.abs(G).max())
    np.testing.assert_allclose(Bt, B.T, rtol=0, atol=bound)
    np.testing.assert_allclose(B @ B.T, G, rtol=0, atol=bound)
    v = normal(seed=1).astype(dtype)
    for apply, matrix in ((preconditioner.apply, B), (preconditioner.apply_transpose, Bt)):
        image = apply(state, tree(v))
        assert jax.tree.map(jnp.shape, image) == POSITION
        assert {leaf.dtype for leaf in jax.tree.leaves(image)} == {np.dtype(dtype)}
        np.testing.assert_allclose(flat(image), matrix @ v, rtol=0, atol=10 * bound)


def check_learns(preconditioner, adaptive):
    """A step changes the state of adaptive ones, deterministically, and of no other."""
    before = preconditioner.init(tree(np.zeros(D)))
    after, again = (preconditioner.update(before, tree(GRADIENTS[0])) for _ in range(2))
    changed = [bool((a != b).any()) for a, b in zip(jax.tree.leaves(before), jax.tree.leaves(after), strict=True)]
    assert any(changed) == adaptive
    assert all((a == b).all() for a, b in zip(jax.tree.leaves(after), jax.tree.leaves(again), strict=True))


@names
def test_the_factors_have_the_dense_product(name, x64):
    check_operator(REGISTRY[name].make(), REGISTRY[name].G())


@pytest.mark.parametrize("name", [n if n in QUICK else pytest.param(n, marks=pytest.mark.slow) for n in REGISTRY])
def test_the_factors_have_the_dense_product_in_single_precision(name):
    check_operator(REGISTRY[name].make(), REGISTRY[name].G(), np.float32)


@names
def test_only_adaptive_preconditioners_learn(name, x64):
    check_learns(REGISTRY[name].make(), REGISTRY[name].adaptive)


@names
def test_every_leaf_keeps_its_dtype(name):
    preconditioner = REGISTRY[name].make()
    v = tree(normal().astype(np.float32))
    v = {"kernel": v["kernel"].astype(jnp.bfloat16), "bias": v["bias"].astype(jnp.float16), "scale": v["scale"]}
    exact_state = learned(preconditioner, np.float32)
    for method in ("apply", "apply_transpose"):
        found = getattr(preconditioner, method)(exact_state, v)
        assert jax.tree.map(lambda leaf: leaf.dtype, found) == jax.tree.map(lambda leaf: leaf.dtype, v)
        wide = jax.tree.map(lambda leaf: leaf.astype(jnp.float32), v)
        exact = getattr(preconditioner, method)(exact_state, wide)
        assert np.abs(flat(found) - flat(exact)).max() <= 0.03 * np.abs(flat(exact)).max()


def test_the_order_of_a_product_is_the_order_of_its_factors(x64):
    """B = A^{-1/2}G^{1/2}, so B Bᵀ = L G Lᵀ with L the smoother's own root."""
    smoother = ls.Laplacian(2.0)
    L, _ = matrices(smoother, ())
    check_operator(smoother @ rms(), L @ rms_root() ** 2 @ L.T)


def test_products_associate(x64):
    a, b, c = ls.Laplacian(1.0), rms(), ls.Laplacian(3.0, order=2)
    left, right = (a @ b) @ c, a @ (b @ c)
    for one, other in zip(matrices(left, learned(left)), matrices(right, learned(right)), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-13)


def test_a_product_with_the_identity_is_the_other_factor():
    for other in (rms(), ls.Laplacian(1.0), ls.Identity()):
        assert ls.Identity() @ other is other
        assert type(other @ ls.Identity()) is type(other)


@pytest.mark.parametrize("scope", ["leaf", "global"])
def test_vmap_over_sigma_has_the_dense_product_of_each(scope, x64):
    sigmas, v = [0.0, 0.3, 1.0, 50.0], normal()

    def smooth(sigma):
        laplacian = ls.Laplacian(sigma, scope)
        return laplacian.apply((), laplacian.apply_transpose((), tree(v)))

    together = jax.jit(jax.vmap(smooth))(jnp.asarray(sigmas))
    for i, sigma in enumerate(sigmas):
        G = each_leaf(sigma) if scope == "leaf" else smoothed(sigma, D)
        np.testing.assert_allclose(flat(jax.tree.map(lambda leaf, i=i: leaf[i], together)), G @ v, atol=1e-11)


def test_another_sigma_decay_or_eps_is_not_another_trace():
    traces = []

    @jax.jit
    def apply(preconditioner, state, v):
        traces.append(1)
        return preconditioner.apply(state, v)

    v = tree(normal().astype(np.float32))
    for sigma, decay in itertools.product((0.5, 1.0, 2.0), (0.9, 0.99)):
        preconditioner = ls.RMSprop(decay, decay / 100) @ ls.Laplacian(sigma, axes=TORCH_ORDER)
        apply(preconditioner, learned(preconditioner, np.float32), v)
    assert len(traces) == 1


# --- what is smoothed, in which order ----------------------------------------------------------------------------


def test_the_global_scope_smooths_the_leaves_chained_in_order(x64):
    v = normal()
    laplacian = ls.Laplacian(5.0, "global")
    found = laplacian.apply((), laplacian.apply_transpose((), tree(v)))
    np.testing.assert_allclose(flat(found), np.linalg.solve(circulant(D, 5.0), v), atol=1e-12)
    np.testing.assert_allclose(flat(laplacian.apply((), tree(v))), ls.Laplacian(5.0).apply((), jnp.asarray(v)), atol=0)


def test_the_global_scope_works_in_the_widest_dtype():
    v = {"a": jnp.ones(3, jnp.bfloat16) * 1e30, "b": jnp.ones(3, jnp.float16)}
    found = ls.Laplacian(0.0, "global").apply((), v)
    assert jax.tree.map(lambda leaf: leaf.dtype, found) == jax.tree.map(lambda leaf: leaf.dtype, v)
    assert np.isfinite(np.asarray(found["a"], np.float32)).all()
    np.testing.assert_array_equal(np.asarray(found["b"], np.float32), 1.0)


def test_the_global_scope_lays_out_each_leaf_by_its_axes(x64):
    kernel, bias = jnp.asarray(normal()[:24].reshape(2, 3, 2, 2)), jnp.asarray(normal(1)[:5])
    laplacian = ls.Laplacian(5.0, "global", axes={"kernel": (3, 2, 0, 1), "bias": (0,)})
    found = laplacian.apply((), laplacian.apply_transpose((), {"kernel": kernel, "bias": bias}))
    chained = np.concatenate([bias, np.asarray(kernel).transpose(3, 2, 0, 1).ravel()])
    exact = np.linalg.solve(circulant(29, 5.0), chained)
    np.testing.assert_allclose(found["bias"], exact[:5], atol=1e-12)
    np.testing.assert_allclose(np.asarray(found["kernel"]).transpose(3, 2, 0, 1).ravel(), exact[5:], atol=1e-12)


def test_a_kernel_smoothed_in_torch_order_is_the_transposed_kernel_smoothed_flat(x64):
    hwio = normal()[:24].reshape(2, 3, 2, 2)
    oihw = hwio.transpose(3, 2, 0, 1)
    exact = ls.smoothing.solve(jnp.asarray(oihw.reshape(-1)), 2.0).reshape(oihw.shape).transpose(2, 3, 1, 0)
    laplacian = ls.Laplacian(2.0, axes=(3, 2, 0, 1))
    np.testing.assert_allclose(laplacian.apply((), laplacian.apply_transpose((), jnp.asarray(hwio))), exact, atol=1e-14)


def test_spatial_axes_smooth_each_kernel_alone(x64):
    hwio = normal()[:24].reshape(2, 3, 2, 2)
    for axes in ((0, 1), (-4, -3), [0, 1]):
        laplacian = ls.Laplacian(2.0, axes=axes)
        found = laplacian.apply((), laplacian.apply_transpose((), jnp.asarray(hwio)))
        for i, o in np.ndindex(2, 2):
            exact = np.linalg.solve(circulant(6, 2.0), hwio[:, :, i, o].ravel()).reshape(2, 3)
            np.testing.assert_allclose(found[:, :, i, o], exact, atol=1e-13)


def test_one_value_of_a_prefix_holds_for_its_whole_branch(x64):
    v = {"dense": {"w": jnp.asarray(normal()[:6].reshape(2, 3)), "b": jnp.asarray(normal()[6:9])}, "log_noise": None}
    laplacian = ls.Laplacian({"dense": 3.0, "log_noise": 0.0})
    found = laplacian.apply((), laplacian.apply_transpose((), v))
    for name in ("w", "b"):
        exact = np.linalg.solve(circulant(v["dense"][name].size, 3.0), v["dense"][name].ravel())
        np.testing.assert_allclose(found["dense"][name].ravel(), exact, atol=1e-12)
    assert found["log_noise"] is None


def test_scalars_and_empty_leaves_pass_through():
    v = {"number": jnp.asarray(3.0), "nothing": jnp.zeros((0, 2))}
    found = ls.Laplacian(2.0).apply((), v)
    assert float(found["number"]) == 3.0
    assert found["nothing"].shape == (0, 2)


# --- RMSprop -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("num_examples", [1, 50])
def test_rmsprop_averages_the_squared_gradient_over_n_with_the_current_batch(num_examples, x64):
    preconditioner = ls.RMSprop(0.95, 1e-4)
    state, V = preconditioner.init(tree(np.zeros(D))), np.zeros(D)
    for g in GRADIENTS:
        state = preconditioner.observe(state, tree(g), num_examples)
        V = 0.95 * V + 0.05 * (g / num_examples) ** 2
        np.testing.assert_allclose(flat(state), V, rtol=1e-13)
        root = 1 / np.sqrt(1e-4 + np.sqrt(V))
        np.testing.assert_allclose(flat(preconditioner.apply(state, tree(np.ones(D)))), root, rtol=1e-13)


@pytest.mark.parametrize(
    "make",
    [lambda: rms() @ ls.Laplacian(1.0), lambda: ls.PerLeaf({"kernel": rms(), "bias": rms(), "scale": rms()})],
    ids=["product", "per leaf"],
)
def test_compositions_tell_their_parts_the_number_of_examples(make, x64):
    preconditioner = make()
    state = preconditioner.init(tree(np.zeros(D)))
    seen = preconditioner.observe(state, tree(GRADIENTS[0]), 50)
    scaled = preconditioner.update(state, tree(GRADIENTS[0] / 50))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-13), seen, scaled)


def test_v_is_kept_in_single_precision_at_least():
    state = rms().init({"a": jnp.zeros(3, jnp.bfloat16), "b": jnp.zeros(2)})
    assert {leaf.dtype for leaf in jax.tree.leaves(state)} == {np.dtype(np.float32)}
    state = rms().update(state, {"a": jnp.full(3, 1e-3, jnp.bfloat16), "b": jnp.zeros(2)})
    assert float(state["a"][0]) > 0


def gradient_on(coupling):
    """∇U of a target without closed form: every coordinate feels every other."""

    def potential(x):
        z = jnp.concatenate([leaf.ravel() for leaf in jax.tree.leaves(x)])
        return jnp.sum(jnp.cosh(coupling @ z)) + 0.1 * jnp.sum(z**4)

    return jax.grad(potential)


def check_gamma(preconditioner, position, num_examples=3):
    """Γᵢ = Σⱼ ∂Gᵢⱼ/∂xⱼ against central differences of the G a step would use, all entries."""
    leaves, structure = jax.tree.flatten(position)
    split = np.cumsum([leaf.size for leaf in leaves])
    x = np.concatenate([np.ravel(leaf) for leaf in leaves])
    n, e = len(x), 1e-5
    gradient = gradient_on(jnp.asarray(np.random.default_rng(5).standard_normal((n, n)) / n))

    def shaped(z):
        pieces = jnp.split(jnp.asarray(z), split[:-1])
        return jax.tree.unflatten(structure, [p.reshape(leaf.shape) for p, leaf in zip(pieces, leaves, strict=True)])

    def ravel(z):
        return jnp.concatenate([leaf.ravel() for leaf in jax.tree.leaves(z)])

    state = preconditioner.init(position)
    for seed in range(2):
        state = preconditioner.observe(state, shaped(normal(seed)[:n]), num_examples)

    @jax.jit
    def G(z):
        now = preconditioner.observe(state, gradient(shaped(z)), num_examples)
        B = jax.vmap(lambda v: ravel(preconditioner.apply(now, shaped(v))))(jnp.eye(n)).T
        return B @ B.T

    numeric = sum((G(x + e * unit)[:, j] - G(x - e * unit)[:, j]) / (2 * e) for j, unit in enumerate(np.eye(n)))
    found = preconditioner.divergence(state, gradient, position, num_examples)
    assert jax.tree.structure(found) == structure
    assert jax.tree.map(jnp.shape, found) == jax.tree.map(jnp.shape, position)
    assert np.abs(numeric).max() > 1e-2
    np.testing.assert_allclose(ravel(found), numeric, rtol=1e-6, atol=1e-7)


def with_gamma():
    return ls.RMSprop(DECAY, 1e-2, gamma=True)


GAMMAS = {
    "an array": (with_gamma, lambda: jnp.asarray(normal(3)[:4])),
    "a pytree": (with_gamma, lambda: {"w": jnp.asarray(normal(3)[:6].reshape(2, 3)), "b": jnp.asarray(0.7)}),
    "a leaf": (
        lambda: ls.PerLeaf({"b": ls.Laplacian(1.0), "w": with_gamma()}),
        lambda: {"w": jnp.asarray(normal(3)[:4].reshape(2, 2)), "b": jnp.asarray(normal(4)[:3])},
    ),
    "a branch": (
        lambda: ls.PerLeaf([with_gamma(), ls.Identity()]),
        lambda: [{"w": jnp.asarray(normal(3)[:4]), "b": jnp.asarray(0.3)}, jnp.asarray(normal(4)[:2])],
    ),
}


@pytest.mark.parametrize("name", GAMMAS)
def test_gamma_is_the_divergence_of_g(name, x64):
    make, position = GAMMAS[name]
    check_gamma(make(), position())


def test_gamma_is_none_where_it_is_dropped_or_zero():
    for preconditioner in (ls.Identity(), ls.Laplacian(1.0), rms(), rms() @ ls.Laplacian(1.0), ls.PerLeaf([rms()])):
        position = [jnp.ones(3)]
        state = preconditioner.init(position)
        assert preconditioner.divergence(state, lambda x: x, position, 1) is None


def test_gamma_is_finite_where_the_gradient_and_its_average_are_zero():
    preconditioner, position = with_gamma(), {"w": jnp.zeros(3), "b": jnp.ones(2)}
    found = preconditioner.divergence(preconditioner.init(position), lambda x: x, position, 1)
    np.testing.assert_array_equal(found["w"], 0.0)
    assert np.isfinite(found["b"]).all()
    assert (found["b"] < 0).all()


# --- messages ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "make",
    [
        lambda: with_gamma() @ ls.Laplacian(1.0),
        lambda: ls.Laplacian(1.0) @ with_gamma(),
        lambda: rms() @ ls.PerLeaf({"w": with_gamma(), "b": ls.Identity()}),
    ],
    ids=["first", "second", "nested"],
)
def test_gamma_in_a_product_is_refused_with_the_reason(make):
    with pytest.raises(ValueError, match=r"gamma=True.*factor of a product.*whole rows of the Hessian.*Use it alone"):
        make()


def test_bad_hyper_parameters_are_refused():
    for sigma in (-1.0, np.nan, np.inf):
        with pytest.raises(ValueError, match=f"sigma must be a finite number, zero or above, got {sigma:g}"):
            ls.Laplacian(sigma)
        with pytest.raises(ValueError, match=f"sigma must be a finite number, zero or above, got {sigma:g}"):
            ls.Laplacian({"w": 1.0, "b": sigma})
    with pytest.raises(TypeError, match="sigma must be a number, got None"):
        ls.Laplacian(None)
    with pytest.raises(
        ValueError,
        match=r"sigma must be one number, got an array of shape \(2,\).*one number for each branch of the position",
    ):
        ls.Laplacian(np.ones(2))
    with pytest.raises(ValueError, match="scope must be one of 'leaf', 'global', got 'tensor'"):
        ls.Laplacian(1.0, "tensor")
    with pytest.raises(ValueError, match="order must be at least 1, got 0"):
        ls.Laplacian(1.0, order=0)
    with pytest.raises(ValueError, match="decay must be a finite number, zero or above and below 1, got 1"):
        ls.RMSprop(1.0)
    with pytest.raises(ValueError, match=r"eps must be a finite number, zero or above, got -0\.1"):
        ls.RMSprop(0.9, -0.1)


def test_a_sigma_by_leaf_must_be_a_prefix_of_the_position():
    with pytest.raises(ValueError, match=r"sigma is no prefix of the position.*'w'.*position.*one for each branch"):
        ls.Laplacian({"w": 1.0}).apply((), {"kernel": jnp.ones(3)})
    with pytest.raises(ValueError, match="scope='global' smooths one long vector: sigma must be one number"):
        ls.Laplacian({"w": 1.0}, "global")


def test_axes_must_be_axes():
    v = {"w": jnp.ones((2, 3))}
    for axes in ((0, 0), (0, -2), (2,), (-3,)):
        with pytest.raises(ValueError, match=r"are not distinct axes of an array of shape \(2, 3\)"):
            ls.Laplacian(1.0, axes=axes).apply((), v)
    with pytest.raises(TypeError, match=r"axes must be a tuple of whole numbers such as \(3, 2, 0, 1\), got 'w'"):
        ls.Laplacian(1.0, axes="w")
    with pytest.raises(ValueError, match="axes is no prefix of the position"):
        ls.Laplacian(1.0, axes={"kernel": (0,)}).apply((), v)
    with pytest.raises(ValueError, match="axes must name every axis of a leaf, or be None"):
        ls.Laplacian(1.0, "global", axes=(0,)).apply((), v)


def test_preconditioners_by_leaf_must_be_preconditioners_in_a_prefix():
    with pytest.raises(TypeError, match=r"preconditioner\['b'\] must be a preconditioner.*ls.Laplacian.*got 1.0"):
        ls.PerLeaf({"w": ls.Identity(), "b": 1.0})
    with pytest.raises(ValueError, match="preconditioner is no prefix of the position"):
        ls.PerLeaf({"w": ls.Identity()}).init({"kernel": jnp.ones(3)})


def test_a_preconditioner_must_define_both_factors():
    class Half(ls.Preconditioner):
        def apply(self, state, v):
            return v

    with pytest.raises(NotImplementedError, match=r"Half must define apply_transpose\(state, v\), its Bᵀ v"):
        Half().apply_transpose((), jnp.ones(2))
    with pytest.raises(NotImplementedError, match=r"Preconditioner must define apply\(state, v\), its B v"):
        ls.Preconditioner().apply((), jnp.ones(2))


# --- negative controls -------------------------------------------------------------------------------------------


class NotTransposed(ls.Laplacian):
    apply_transpose = ls.Laplacian.apply


class SmoothedTwice(ls.Laplacian):
    def apply(self, state, v):
        return super().apply(state, super().apply_transpose(state, v))

    apply_transpose = apply


class Loud(ls.Laplacian):
    def apply(self, state, v):
        return jax.tree.map(lambda leaf: 1.001 * leaf, super().apply(state, v))

    def apply_transpose(self, state, v):
        return jax.tree.map(lambda leaf: 1.001 * leaf, super().apply_transpose(state, v))


class Widened(ls.Laplacian):
    def apply(self, state, v):
        return jax.tree.map(lambda leaf: leaf.astype(jnp.float32), super().apply(state, v))


class NotReversed(ls.Product):
    def apply_transpose(self, state, v):
        return self.first.apply_transpose(state[0], self.second.apply_transpose(state[1], v))


class WithoutEps(ls.RMSprop):
    def apply(self, state, v):
        return jax.tree.map(lambda leaf, V: leaf / V**0.25, v, state)

    apply_transpose = apply


class Late(ls.RMSprop):
    """V of the batch before the current one."""

    def init(self, position):
        return super().init(position), super().init(position)

    def update(self, state, gradient):
        return state[1], super().update(state[1], gradient)

    def apply(self, state, v):
        return super().apply(state[0], v)

    apply_transpose = apply


class RootOfV(ls.RMSprop):
    """G itself where its root belongs."""

    def apply(self, state, v):
        return super().apply(state, super().apply(state, v))

    apply_transpose = apply


WRONG = {
    "not transposed": (lambda: NotTransposed(2.0), "laplacian by leaf"),
    "smoothed twice": (lambda: SmoothedTwice(2.0), "laplacian by leaf"),
    "another sigma": (lambda: ls.Laplacian(2.001), "laplacian by leaf"),
    "loud": (lambda: Loud(2.0), "laplacian by leaf"),
    "another dtype": (lambda: Widened(2.0), "laplacian by leaf"),
    "another scope": (lambda: ls.Laplacian(2.0, "global"), "laplacian by leaf"),
    "axes in order": (lambda: ls.Laplacian(2.0), "another order of the axes"),
    "axes turned the other way": (
        lambda: ls.Laplacian(2.0, axes={**TORCH_ORDER, "kernel": (2, 3, 1, 0)}),
        "another order of the axes",
    ),
    "another order": (lambda: ls.Laplacian(0.7, order=1), "second order"),
    "product not reversed": (lambda: NotReversed(rms(), ls.Laplacian(2.0)), "rmsprop @ laplacian"),
    "product in the other order": (lambda: ls.Laplacian(2.0) @ rms(), "rmsprop @ laplacian"),
    "no eps": (lambda: WithoutEps(DECAY, EPS), "rmsprop"),
    "the batch before": (lambda: Late(DECAY, EPS), "rmsprop"),
    "g for its root": (lambda: RootOfV(DECAY, EPS), "rmsprop"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_preconditioners_are_caught(name, x64):
    make, right = WRONG[name]
    with pytest.raises(AssertionError):
        check_operator(make(), REGISTRY[right].G())


def test_a_constant_that_learns_and_a_learner_that_forgets_are_caught():
    class Counts(ls.Identity):
        def init(self, position):
            return jnp.zeros(())

        def update(self, state, gradient):
            return state + 1

    class Forgets(ls.RMSprop):
        def update(self, state, gradient):
            return state

    with pytest.raises(AssertionError):
        check_learns(Counts(), adaptive=False)
    with pytest.raises(AssertionError):
        check_learns(Forgets(), adaptive=True)


class HalfGamma(ls.RMSprop):
    def divergence(self, state, gradient, position, num_examples):
        return jax.tree.map(lambda leaf: leaf / 2, super().divergence(state, gradient, position, num_examples))


class GammaPerExample(ls.RMSprop):
    def divergence(self, state, gradient, position, num_examples):
        return super().divergence(state, gradient, position, 1)


class FrozenGamma(ls.RMSprop):
    """The derivative at V of the next step, not of this one."""

    def divergence(self, state, gradient, position, num_examples):
        moved = self.observe(state, gradient(position), num_examples)
        return super().divergence(moved, gradient, position, num_examples)


@pytest.mark.parametrize("wrong", [HalfGamma, GammaPerExample, FrozenGamma])
def test_a_wrong_gamma_is_caught(wrong, x64):
    with pytest.raises(AssertionError):
        check_gamma(wrong(DECAY, 1e-2, gamma=True), GAMMAS["an array"][1]())
