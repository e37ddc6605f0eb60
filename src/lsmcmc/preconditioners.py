"""The linear map B of the one equation, with G = B Bᵀ the preconditioner: identity, smoothing, RMSprop, products.

A constant preconditioner is two methods, `apply` (B v) and `apply_transpose` (Bᵀ v). One that
learns adds `init(position)` and `update(state, gradient)`; one that can say how its G changes with
the position adds `divergence`. The root is not unique: any B with B Bᵀ = G gives the same law.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.tree_util import keystr
from jaxtyping import Array, Float, PyTree

from lsmcmc import _checks, _trees
from lsmcmc.layout import Axes, along, as_one_vector
from lsmcmc.smoothing import Smoother


class Preconditioner(eqx.Module):
    """The contract. Your own preconditioner subclasses this and writes what it needs.

    >>> class Halved(Preconditioner):
    ...     def apply(self, state, v):
    ...         return jax.tree.map(lambda leaf: leaf / 2, v)
    ...
    ...     apply_transpose = apply
    >>> (Halved() @ Halved()).apply(((), ()), jnp.array([4.0])).tolist()
    [1.0]
    """

    def init(self, position: PyTree) -> PyTree:
        """What is remembered; nothing by default."""
        del position  # constant
        return ()

    def update(self, state: PyTree, gradient: PyTree) -> PyTree:
        """The state after seeing this step's raw ∇Û(x), current batch included."""
        del gradient  # constant
        return state

    def observe(self, state: PyTree, gradient: PyTree, num_examples: int) -> PyTree:
        """`update` for those who also need to know N."""
        del num_examples
        return self.update(state, gradient)

    def apply(self, state: PyTree, v: PyTree) -> PyTree:
        """B v."""
        raise NotImplementedError(f"{type(self).__name__} must define apply(state, v), its B v.")

    def apply_transpose(self, state: PyTree, v: PyTree) -> PyTree:
        """Bᵀ v."""
        raise NotImplementedError(f"{type(self).__name__} must define apply_transpose(state, v), its Bᵀ v.")

    def divergence(
        self, state: PyTree, gradient: Callable[[PyTree], PyTree], position: PyTree, num_examples: int
    ) -> PyTree | None:
        """Γᵢ = Σⱼ ∂Gᵢⱼ/∂xⱼ at `position`, from the state before the step; None where G is constant or Γ dropped."""
        del state, gradient, position, num_examples
        return None

    @property
    def is_constant(self) -> bool:
        """Whether B is the same at every step: nothing is learned from gradients."""
        kind = type(self)
        return kind.update is Preconditioner.update and kind.observe is Preconditioner.observe

    @property
    def has_divergence(self) -> bool:
        """Whether `divergence` gives Γ: then this cannot be a factor of a product."""
        return type(self).divergence is not Preconditioner.divergence

    def __matmul__(self, other: "Preconditioner") -> "Preconditioner":
        """B = B_self B_other."""
        if not isinstance(other, Preconditioner):
            return NotImplemented
        if type(self) is Identity:
            return other
        return self if type(other) is Identity else Product(self, other)


class Identity(Preconditioner):
    """B = I.

    >>> Identity().apply((), 3.0)
    3.0
    """

    def apply(self, state: PyTree, v: PyTree) -> PyTree:
        """V."""
        del state
        return v

    apply_transpose = apply


class Laplacian(Preconditioner):
    """Laplacian smoothing, B Bᵀ = A_σ⁻¹ with A_σ = I + σ(−L)ⁿ, n = `order` (Eq. tri-diag for n = 1).

    `scope="leaf"` smooths each array of the position as one vector, `"global"` all of them chained
    into one (this gathers the position). `axes` are the axes of a leaf that make the vector, in the
    order in which they are laid out, the last fastest; the others are batched over. The default is
    all axes in order. A JAX kernel (h, w, in, out) is laid out as PyTorch does with axes=(3, 2, 0, 1),
    and smoothed along its spatial axes alone with axes=(0, 1). `sigma` and `axes` may be pytree
    prefixes of the position, one value for each branch: sigma={"kernel": 1.0, "bias": 0.0}.

    Exact to rounding. At order 1 B is a causal filter, O(d) and a few vectors of d; σ is data, so
    another σ of the same form (`smoothing`) is no new compile.

    >>> Laplacian(1.0).apply((), jnp.ones(5)).round(4).tolist()  # constants pass unchanged
    [1.0, 1.0, 1.0, 1.0, 1.0]
    """

    smoothers: PyTree[Smoother]
    scope: str = eqx.field(static=True)
    axes: Any = eqx.field(static=True)

    def __init__(self, sigma: Any = 1.0, scope: str = "leaf", *, axes: Any = None, order: int = 1):
        self.scope = _checks.choice("scope", scope, ("leaf", "global"))
        self.smoothers = jax.tree.map(lambda s: Smoother(s, order), sigma) if sigma is not None else Smoother(None)
        self.axes = Axes(axes)
        if scope == "global" and not isinstance(self.smoothers, Smoother):
            raise ValueError("scope='global' smooths one long vector: sigma must be one number, got a pytree.")

    def apply(self, state: PyTree, v: PyTree) -> PyTree:
        """B v."""
        del state
        return self._smooth(v, Smoother.root)

    def apply_transpose(self, state: PyTree, v: PyTree) -> PyTree:
        """Bᵀ v."""
        del state
        return self._smooth(v, Smoother.root_transpose)

    def _smooth(self, v: PyTree, root: Callable[[Smoother, Array], Array]) -> PyTree:
        axes = self.axes.broadcast(v)
        if self.scope == "global":
            return as_one_vector(v, axes, lambda long: root(self.smoothers, long))

        def branch(smoother: Smoother, part: PyTree) -> PyTree:
            return jax.tree.map(lambda leaf: along(leaf, next(axis), lambda w: root(smoother, w)), part)

        axis = iter(axes)
        return _checks.map_prefix("sigma", branch, self.smoothers, v, is_leaf=_is_smoother)


class RMSprop(Preconditioner):
    """G = diag(1/(ε + √V)), V ← decay·V + (1 − decay)(g/N)², B = G^{1/2} (Li et al. 2016, Alg. 1).

    V accumulates the raw gradient of U divided by N (N = 1 for a `Target`), the current batch
    included, as published (Li et al. leave the prior out of V). Because G then depends on the
    position, the complete recipe (Ma, Chen, Fox 2015) has a drift Γ = ∇·G that the published sampler
    drops, and so does this one: its law is biased even as h → 0, by O(1 − decay). `gamma=True` adds
    h·T·Γ for the dependence of G on the current position, exactly; Γᵢ needs the i-th diagonal entry
    of the Hessian, so a step then costs d more gradients. In a product it would need whole rows of
    the Hessian and is refused. With ε = 0 a coordinate whose gradient is exactly zero has no G.

    >>> state = RMSprop(decay=0.0, eps=0.0).update(jnp.zeros(2), jnp.array([4.0, 16.0]))
    >>> RMSprop(decay=0.0, eps=0.0).apply(state, jnp.ones(2)).tolist()
    [0.5, 0.25]
    """

    decay: Float[Array, ""]
    eps: Float[Array, ""]
    gamma: bool = eqx.field(static=True)

    def __init__(self, decay: Any = 0.99, eps: Any = 1e-5, *, gamma: bool = False):
        self.decay = _checks.hyper("decay", decay, below=1.0)
        self.eps = _checks.hyper("eps", eps)
        self.gamma = bool(gamma)

    def init(self, position: PyTree) -> PyTree:
        """V = 0, in float32 at least."""
        return jax.tree.map(lambda x: jnp.zeros(x.shape, _trees.wide(x.dtype)), position)

    def update(self, state: PyTree, gradient: PyTree) -> PyTree:
        """V ← decay·V + (1 − decay)·gradient²."""

        def average(v: Array, g: Array) -> Array:
            decay = self.decay.astype(v.dtype)
            return decay * v + (1 - decay) * jnp.square(g.astype(v.dtype))

        return jax.tree.map(average, state, gradient)

    def observe(self, state: PyTree, gradient: PyTree, num_examples: int) -> PyTree:
        """`update` with g/N."""
        return self.update(state, jax.tree.map(lambda g: g / num_examples, gradient))

    def apply(self, state: PyTree, v: PyTree) -> PyTree:
        """G^{1/2} v."""
        return jax.tree.map(lambda g, leaf: (jnp.sqrt(g) * leaf.astype(g.dtype)).astype(leaf.dtype), self._g(state), v)

    apply_transpose = apply

    def divergence(
        self, state: PyTree, gradient: Callable[[PyTree], PyTree], position: PyTree, num_examples: int
    ) -> PyTree | None:
        """Γᵢ = ∂Gᵢᵢ/∂xᵢ, if asked for."""
        if not self.gamma:
            return None
        return _diagonal_of_jacobian(lambda x: self._g(self.observe(state, gradient(x), num_examples)), position)

    @property
    def has_divergence(self) -> bool:
        """With gamma=True."""
        return self.gamma

    def _g(self, state: PyTree) -> PyTree:
        return jax.tree.map(lambda v: 1 / (self.eps.astype(v.dtype) + _trees.sqrt(v)), state)


class Product(Preconditioner):
    """B = B_first B_second, so G = B_first G_second B_firstᵀ; written `first @ second`.

    Each factor sees the raw gradient. LS-pSGLD is RMSprop() @ Laplacian(σ): B = G^{1/2} A^{-1/2},
    drift and noise consistent.
    """

    first: Preconditioner
    second: Preconditioner

    def __check_init__(self) -> None:
        for factor in (self.first, self.second):
            if factor.has_divergence:
                raise ValueError(
                    f"A preconditioner that gives Γ, such as RMSprop(gamma=True), cannot be a factor of a product: "
                    f"Γ of the product mixes coordinates and needs whole rows of the Hessian, not its diagonal. "
                    f"Use it alone, or write gamma=False. Got {factor}."
                )

    @property
    def is_constant(self) -> bool:
        """Where both are."""
        return self.first.is_constant and self.second.is_constant

    @property
    def has_divergence(self) -> bool:
        """Never: see `__check_init__`."""
        return False

    def init(self, position: PyTree) -> PyTree:
        """Both states."""
        return self.first.init(position), self.second.init(position)

    def update(self, state: PyTree, gradient: PyTree) -> PyTree:
        """`observe` with N = 1."""
        return self.observe(state, gradient, 1)

    def observe(self, state: PyTree, gradient: PyTree, num_examples: int) -> PyTree:
        """Both states, from the same raw gradient."""
        first, second = state
        return (
            self.first.observe(first, gradient, num_examples),
            self.second.observe(second, gradient, num_examples),
        )

    def apply(self, state: PyTree, v: PyTree) -> PyTree:
        """B_first B_second v."""
        return self.first.apply(state[0], self.second.apply(state[1], v))

    def apply_transpose(self, state: PyTree, v: PyTree) -> PyTree:
        """B_secondᵀ B_firstᵀ v."""
        return self.second.apply_transpose(state[1], self.first.apply_transpose(state[0], v))


class PerLeaf(Preconditioner):
    """A preconditioner for each branch of the position: a pytree prefix of preconditioners.

    Samplers accept the pytree itself: preconditioner={"kernel": Laplacian(1.0), "bias": Identity()}.

    >>> both = PerLeaf({"w": Laplacian(1.0), "b": Identity()})
    >>> both.apply(both.init({"w": jnp.ones(3), "b": jnp.ones(2)}), {"w": jnp.ones(3), "b": jnp.ones(2)})["b"].tolist()
    [1.0, 1.0]
    """

    prefix: PyTree  # of preconditioners

    def __check_init__(self) -> None:
        pieces = jax.tree_util.tree_leaves_with_path(self.prefix, is_leaf=_is_preconditioner)
        if not pieces:
            raise TypeError(f"preconditioner must be one such as ls.Laplacian(1.0), got {self.prefix!r}.")
        for path, leaf in pieces:
            if not _is_preconditioner(leaf):
                raise TypeError(
                    f"preconditioner{keystr(path)} must be a preconditioner such as ls.Laplacian(1.0), got {leaf!r}."
                )

    def init(self, position: PyTree) -> PyTree:
        """A state for each branch."""
        return self._map(lambda piece, x: piece.init(x), position)

    def update(self, state: PyTree, gradient: PyTree) -> PyTree:
        """`observe` with N = 1."""
        return self.observe(state, gradient, 1)

    def observe(self, state: PyTree, gradient: PyTree, num_examples: int) -> PyTree:
        """Each branch sees its own gradient."""
        return self._map(lambda piece, g, s: piece.observe(s, g, num_examples), gradient, state)

    def apply(self, state: PyTree, v: PyTree) -> PyTree:
        """Each branch by its own B."""
        return self._map(lambda piece, part, s: piece.apply(s, part), v, state)

    def apply_transpose(self, state: PyTree, v: PyTree) -> PyTree:
        """Each branch by its own Bᵀ."""
        return self._map(lambda piece, part, s: piece.apply_transpose(s, part), v, state)

    def divergence(
        self, state: PyTree, gradient: Callable[[PyTree], PyTree], position: PyTree, num_examples: int
    ) -> PyTree | None:
        """Γ of each branch, zero where it drops its own; G has no entries between branches."""
        pieces, structure = jax.tree.flatten(self.prefix, is_leaf=_is_preconditioner)
        parts, states = _trees.up_to(structure, position), _trees.up_to(structure, state)

        def of_branch(i: int) -> PyTree | None:
            def own(part: PyTree) -> PyTree:
                moved = jax.tree.unflatten(structure, [*parts[:i], part, *parts[i + 1 :]])
                return _trees.up_to(structure, gradient(moved))[i]

            return pieces[i].divergence(states[i], own, parts[i], num_examples)

        branches = [of_branch(i) for i in range(len(pieces))]
        if all(branch is None for branch in branches):
            return None
        zeros = [jax.tree.map(jnp.zeros_like, part) for part in parts]
        return jax.tree.unflatten(
            structure, [z if branch is None else branch for z, branch in zip(zeros, branches, strict=True)]
        )

    @property
    def is_constant(self) -> bool:
        """Where all branches are."""
        return all(piece.is_constant for piece in jax.tree.leaves(self.prefix, is_leaf=_is_preconditioner))

    @property
    def has_divergence(self) -> bool:
        """Whether a branch has it."""
        return any(piece.has_divergence for piece in jax.tree.leaves(self.prefix, is_leaf=_is_preconditioner))

    def _map(self, fn: Callable[..., PyTree], tree: PyTree, *states: PyTree) -> PyTree:
        structure = jax.tree.structure(self.prefix, is_leaf=_is_preconditioner)
        parts = [iter(_trees.up_to(structure, state)) for state in states]
        return _checks.map_prefix(
            "preconditioner",
            lambda piece, part: fn(piece, part, *(next(p) for p in parts)),
            self.prefix,
            tree,
            is_leaf=_is_preconditioner,
        )


def as_preconditioner(value: Any) -> Preconditioner:
    """A preconditioner, or a pytree prefix of them."""
    return value if isinstance(value, Preconditioner) else PerLeaf(value)


def _is_smoother(node: Any) -> bool:
    return isinstance(node, Smoother)


def _is_preconditioner(node: Any) -> bool:
    return isinstance(node, Preconditioner)


def _diagonal_of_jacobian(fn: Callable[[PyTree], PyTree], x: PyTree) -> PyTree:
    """∂fnᵢ/∂xᵢ for every coordinate, one forward derivative each."""
    leaves, structure = jax.tree.flatten(x)

    def entry(which: int, i: Array) -> Array:
        tangents = [jnp.zeros_like(leaf) for leaf in leaves]
        tangents[which] = tangents[which].reshape(-1).at[i].set(1).reshape(leaves[which].shape)
        _, moved = jax.jvp(fn, (x,), (jax.tree.unflatten(structure, tangents),))
        return jax.tree.leaves(moved)[which].reshape(-1)[i]

    diagonal = [
        jax.lax.map(lambda i, which=which: entry(which, i), jnp.arange(leaf.size)).reshape(leaf.shape)
        for which, leaf in enumerate(leaves)
    ]
    return jax.tree.unflatten(structure, diagonal)
