"""Gradients whose noise vanishes at an anchor c: SVRG, its recursive form, and control variates.

    ∇Û(x) = −∇log p(x) + ∇D_B(x) − ∇D_B(c) + v,    D_B(x) = −(N/B) Σ_{i in batch} log p(dᵢ | x)

where v is ∇D(c) of all data, or an estimate of it. The prior is exact at every step.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PyTree

from lsmcmc import _checks, _trees, shuffling
from lsmcmc.gradients import Minibatch, OnRows
from lsmcmc.mode import find_mode
from lsmcmc.posterior import Posterior, Target

_ANCHOR_KEY = 2**31  # no step is this large


class Anchor(eqx.Module):
    """A point, and what is known there of D, the part of U that comes from the data."""

    position: PyTree
    gradient: PyTree
    potential: Float[Array, ""]


class Anchored(OnRows):
    """What estimators with an anchor share: each subclass says when the anchor moves."""

    def estimate(self, target: Any, state: Anchor, batch: PyTree, position: PyTree) -> tuple[PyTree, Anchor]:
        """−∇log p(x) + ∇D_B(x) − ∇D_B(c) + v, and the anchor."""
        here = self.seen_from(target, state, batch, position)
        prior = jax.grad(target.prior_potential)(position)
        return _trees.add(prior, here.gradient), self.moved(state, here)

    def potential(self, target: Any, state: Anchor, batch: PyTree, position: PyTree) -> Float[Array, ""]:
        """−log p(x) + D_B(x) − D_B(c) + D(c) + ⟨v − ∇D_B(c), x − c⟩."""
        prior = target.prior_potential(position)
        return prior + self.seen_from(target, state, batch, position).potential.astype(prior.dtype)

    def seen_from(self, target: Any, anchor: Anchor, batch: PyTree, position: PyTree) -> Anchor:
        """The estimates of D and ∇D at a position, from an anchor."""
        data = jax.value_and_grad(lambda x: target.data_potential(x, self.rows_of(batch)))
        (here, new), (there, old) = data(position), data(anchor.position)
        slope = _trees.linear((1, anchor.gradient), (-1, old))
        away = _trees.dot(slope, _trees.linear((1, position), (-1, anchor.position)))
        potential = (here - there).astype(float) + away.astype(float) + anchor.potential
        return Anchor(position, _trees.add(new, slope), potential)

    def rows_of(self, batch: PyTree) -> PyTree:
        """The rows of data in what `fetch` gave."""
        return batch

    def moved(self, anchor: Anchor, here: Anchor) -> Anchor:
        """The anchor after a step that began `here`."""
        del here
        return anchor


class SVRG(Anchored):
    """Stochastic variance-reduced gradients: an anchor c, renewed every `every` steps (Dubey et al. 2016, Alg. 2).

        ∇Û(x) = −∇log p(x) − (N/B) Σ_{i in batch} (∇log p(dᵢ|x) − ∇log p(dᵢ|c)) + v,    c = x at steps 0, m, 2m, …

    v is the data's part of ∇U(c): from all data, or from `anchor` rows drawn without replacement (the
    subsampled form of Zou, Xu and Gu 2018). `every` is m, a pass ⌈N/B⌉ by default. Unbiased given c where v is from
    all data. With `recursive=True` c and v are those of the step before, v the data's part of its estimate (SARAH,
    Nguyen et al. 2017; SRVR-HMC, Zou, Xu and Gu 2019, Alg. 1): its error is a martingale, 0 at every renewal.

    Cost: two gradients on B rows a step, and one on all data (or `anchor` rows) every m steps, never in between.
    State: two copies of the position and a number. `batch_size` may be an `ls.Minibatch`, for another scheme or
    shared batches.

    >>> SVRG(32, every=100).rows.batch_size
    32
    >>> SVRG(Minibatch(32, "epochs"), anchor=1_000, recursive=True).rows.scheme
    'epochs'
    """

    rows: Minibatch
    every: Int[Array, ""] | None
    anchor: int | None = eqx.field(static=True)
    recursive: bool = eqx.field(static=True)

    def __init__(
        self,
        batch_size: Any,
        every: Any = None,
        *,
        anchor: Any = None,
        recursive: bool = False,
    ):
        self.rows = as_minibatch(batch_size)
        self.every = None if every is None else jnp.asarray(_checks.count("every", every), jnp.int32)
        self.anchor = None if anchor is None else _checks.count("anchor", anchor)
        self.recursive = bool(recursive)

    def check(self, target: Posterior | Target) -> None:
        """Refuse a target without data, or with fewer rows than a batch or the anchor's."""
        super().check(target)
        if self.anchor is not None and self.anchor > target.num_examples:
            raise ValueError(
                f"anchor is {self.anchor} but the data have {target.num_examples} rows. "
                f"Leave anchor out for the gradient of all data."
            )

    def init(self, target: Any, position: PyTree) -> Anchor:
        """An empty anchor, which the first step renews."""
        del target
        return Anchor(position, jax.tree.map(jnp.zeros_like, position), jnp.zeros((), float))

    def begin(self, target: Any, state: Anchor, batch: PyTree, position: PyTree, step: Int[Array, ""]) -> Anchor:
        """The anchor of this step; all data are read where it is renewed alone."""
        every = -(-target.num_examples // self.rows.batch_size) if self.every is None else self.every
        return jax.lax.cond(step % every == 0, lambda: self._renewed(target, batch, position), lambda: state)

    def plan(self, key: Array, step: Int[Array, ""], num_examples: int) -> PyTree:
        """The rows of this step's batch, and the key of the anchor's rows if they are drawn."""
        rows = self.rows.plan(key, step, num_examples)
        if self.anchor is None:
            return rows
        return rows, jax.random.fold_in(jax.random.fold_in(key, _ANCHOR_KEY), step)

    def fetch(self, target: Any, rows: PyTree, like: PyTree) -> PyTree:
        """The rows of the batch; those of the anchor are read where it is renewed."""
        if self.anchor is None:
            return self.rows.fetch(target, rows, like)
        return self.rows.fetch(target, rows[0], like), rows[1]

    def rows_of(self, batch: PyTree) -> PyTree:
        """The rows of data in what `fetch` gave."""
        return batch if self.anchor is None else batch[0]

    def moved(self, anchor: Anchor, here: Anchor) -> Anchor:
        """The recursive form takes each position as its next anchor."""
        return here if self.recursive else anchor

    def _renewed(self, target: Any, batch: PyTree, position: PyTree) -> Anchor:
        if self.anchor is None:
            return anchor_at(target, position)
        num = target.num_examples
        rows = shuffling.permuted(batch[1], jnp.arange(self.anchor, dtype=jnp.int32), num)
        data = self.rows.fetch(target, rows, position)
        some = Posterior(target.log_likelihood, target.log_prior, data, chunk_size=target.chunk_size)
        return anchor_at(some, position, num / self.anchor)


class ControlVariate(Anchored):
    """SVRG whose anchor is the posterior mode for the whole run: SGLD-CV (Baker et al. 2019, section 3).

        ∇Û(x) = −∇log p(x) − (N/B) Σ_{i in batch} (∇log p(dᵢ|x) − ∇log p(dᵢ|c)) + ∇D(c)

    Unbiased for any c; its noise is of order (N/√B)‖x − c‖, so c should be near the mode. `center` is c; without one
    `ls.sample` looks for the mode by `ls.find_mode` from the first chain's start, before it samples. By hand `init`
    takes the position it is given, so give it the mode.

    Cost: the search once, then two gradients on B rows a step and never all data. State: two copies of the position
    and a number. `batch_size` may be an `ls.Minibatch`. Start the chains at the mode too, to save the burn-in.

    >>> ControlVariate(32).rows.batch_size
    32
    """

    rows: Minibatch
    center: PyTree

    def __init__(self, batch_size: Any, center: PyTree = None):
        self.rows = as_minibatch(batch_size)
        self.center = None if center is None else _checks.position(center)

    @property
    def is_independent(self) -> bool:  # type: ignore[override]
        """As the batches are: the anchor stays."""
        return self.rows.is_independent

    def init(self, target: Any, position: PyTree) -> Anchor:
        """The anchor for good: `center`, or the position where none was given."""
        center = position if self.center is None else fitting(self.center, target, position)
        return _compiled_anchor(target, center)

    def start(self, target: Any, positions: PyTree, progress: bool | None = None) -> Anchor:
        """The same anchor for all chains."""
        first = jax.tree.map(lambda leaf: leaf[0], positions)
        anchor = self.init(target, find_mode(target, first, progress=progress) if self.center is None else first)
        chains = jax.tree.leaves(positions)[0].shape[0]
        return jax.tree.map(lambda leaf: jnp.repeat(leaf[None], chains, axis=0), anchor)


def anchor_at(target: Posterior, position: PyTree, weight: float = 1.0) -> Anchor:
    """The anchor at a position, from all of the target's data, `weight` times."""
    value, gradient = jax.value_and_grad(lambda x: weight * target.data_potential(x))(position)
    return Anchor(position, gradient, value.astype(float))


@eqx.filter_jit
def _compiled_anchor(target: Posterior, position: PyTree) -> Anchor:
    return anchor_at(target, position)


def as_minibatch(batch_size: Any) -> Minibatch:
    """A batch size, or a `Minibatch` with a scheme."""
    if isinstance(batch_size, Minibatch):
        return batch_size
    if callable(getattr(batch_size, "plan", None)):
        raise TypeError(f"batch_size must be a whole number or an ls.Minibatch, got {batch_size!r}.")
    return Minibatch(_checks.count("batch_size", batch_size))


def fitting(center: PyTree, target: Any, position: PyTree) -> PyTree:
    """The centre's sampled leaves, if they look like a position's."""
    if target.fixed is not None and not _trees.alike(center, position):
        sampled = jax.tree.map(lambda leaf: leaf is None, target.fixed, is_leaf=lambda leaf: leaf is None)
        center = eqx.filter(center, sampled)
    found, needed = _checks.describe(center), _checks.describe(position)
    if found != needed:
        raise ValueError(f"center must look like a position, {needed}, got {found}.")
    return center
