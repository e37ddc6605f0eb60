"""How ∇U is estimated: which rows a step reads, how they are fetched, and what is made of them.

An estimator is three steps, so that rows can be planned long before they are read:

    plan(key, step, N) → rows          touches no data
    fetch(target, rows, like) → batch  a gather here; a prefetch from disk elsewhere
    begin(target, state, batch, x, step) → state       renews what is remembered, where it is time
    estimate(target, state, batch, x) → (∇Û(x), state)

`state` (an anchor, a table) belongs to the loop. An `Oracle` is one step's view of all this.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PyTree

from lsmcmc import _checks, _trees, shuffling
from lsmcmc.posterior import Posterior, Target
from lsmcmc.streams import Stream, refusal

_BLOCK, _WINDOW = 2**10, 2**16  # rows


class GradientEstimator(eqx.Module):
    """What every estimator offers. The key given to `plan` is the chain's own; it is the same at every step."""

    shared = False  # whether all chains see the same batches
    is_independent = False  # whether an estimate is a function of the position and of a batch that is its step's alone

    def check(self, target: Posterior | Target) -> None:
        """Raise where this estimator cannot serve this target."""

    def init(self, target: Posterior | Target, position: PyTree) -> PyTree:
        """What the estimator remembers from step to step; nothing by default."""
        del target, position  # stateless
        return ()

    def start(self, target: Posterior | Target, positions: PyTree, progress: bool | None = None) -> PyTree:
        """`init` for all chains, before a run and outside of compiled code: where a long search has its place."""
        del progress  # nothing takes long
        return jax.vmap(lambda x: self.init(target, x))(positions)

    def begin(self, target: Any, state: PyTree, batch: PyTree, position: PyTree, step: Int[Array, ""]) -> PyTree:
        """The state at the start of a step: where an anchor is renewed.

        `step` is one number for all chains, so a `lax.cond` on it stays a branch under `vmap`.
        """
        del target, batch, position, step  # nothing to renew
        return state

    def plan(self, key: Array, step: Int[Array, ""], num_examples: int) -> PyTree:
        """What step `step` reads."""
        raise NotImplementedError

    def fetch(self, target: Any, rows: PyTree, like: PyTree) -> PyTree:
        """What `estimate` needs of it."""
        raise NotImplementedError

    def potential(self, target: Any, state: PyTree, batch: PyTree, position: PyTree) -> Float[Array, ""]:
        """Û(x), whose gradient is the estimate."""
        raise NotImplementedError

    def estimate(self, target: Any, state: PyTree, batch: PyTree, position: PyTree) -> tuple[PyTree, PyTree]:
        """∇Û(x) and the next state."""
        return jax.grad(lambda x: self.potential(target, state, batch, x))(position), state

    def variance_of_differences(self, target: Any, state: PyTree, batch: PyTree, positions: PyTree) -> Any:
        """Var[Û(x) − Û(x')] of neighbours among stacked positions, from the batch; None where it is not known."""
        del target, state, batch, positions
        return None

    def oracle(
        self, target: Posterior | Target, key: Array, position: PyTree, step: Any = None, state: PyTree = None
    ) -> "Oracle":
        """One step's oracle, for stepping by hand from `position`.

        With a `step` the key may be the chain's, the same at every step; without one it must be the step's own.
        `state` is what the last step's `oracle.next_state` gave; without one the estimator begins anew at `position`.
        """
        self.check(target)
        number = jnp.asarray(0 if step is None else step, jnp.int32)
        batch = self.fetch(target, self.plan(key, number, target.num_examples), position)
        if state is None:
            state = self.begin(target, self.init(target, position), batch, position, jnp.zeros_like(number))
        else:
            state = self.begin(target, state, batch, position, number)
        return Oracle(target, self, state, batch, None if step is None else number)


class Minibatch(GradientEstimator):
    """∇Û(x) = −∇log p(x) − (N/B) Σ_{i in batch} ∇log p(dᵢ | x), B rows a step.

    `scheme` says how rows are drawn: "iid" with replacement; "subset" without replacement within a
    batch (the paper's Algorithm 1), every subset equally likely; "epochs" in reshuffled passes, each
    row at most once a pass and the N mod B rows left over different ones every time; "blocks" in
    passes for data on disk: blocks of `block` consecutive rows (1,024) come in a new order, shuffled
    within windows of at most `window` rows (65,536), so that a batch has rows of several blocks and a
    disk reads nearly in order. All are unbiased. With "blocks" alone the spread of the estimate depends
    on the order of the data: rows sorted by label want a window of many blocks. Cost per step: O(B),
    "subset" O(B²) small integers; never O(N). With `shared=True` all chains see the same batches.

    >>> Minibatch(32, scheme="epochs").batch_size
    32
    >>> Minibatch(32, scheme="blocks", block=100, window=1_000).window
    1000
    """

    batch_size: int = eqx.field(static=True)
    scheme: str = eqx.field(static=True)
    shared: bool = eqx.field(static=True)
    block: int | None = eqx.field(static=True)
    window: int | None = eqx.field(static=True)

    def __init__(
        self,
        batch_size: int,
        scheme: str = "iid",
        *,
        shared: bool = False,
        block: int | None = None,
        window: int | None = None,
    ):
        self.batch_size = _checks.count("batch_size", batch_size)
        self.scheme = _checks.choice("scheme", scheme, tuple(shuffling.SCHEMES))
        self.shared = bool(shared)
        self.block, self.window = _block_and_window(scheme, block, window)

    def check(self, target: Posterior | Target) -> None:
        """Refuse a target without data, or with fewer rows than a batch."""
        if not isinstance(target, Posterior):
            raise TypeError(
                "a Target has no data to draw minibatches from: leave out batch_size and gradient, "
                "or write ls.Posterior(log_likelihood, log_prior, data)."
            )
        if self.batch_size > target.num_examples:
            raise ValueError(
                f"batch_size is {self.batch_size} but the data have {target.num_examples} rows. "
                f"Write a batch_size of at most {target.num_examples}, or gradient=ls.FullBatch()."
            )
        if isinstance(target.data, Stream):
            target.data.source.check_plan(self)

    @property
    def is_independent(self) -> bool:  # type: ignore[override]
        """Not in passes, where a batch depends on those before."""
        return self.scheme in ("iid", "subset")

    def plan(self, key: Array, step: Int[Array, ""], num_examples: int) -> Int[Array, " B"]:
        """The rows of this step's batch."""
        lengths = {} if self.block is None else {"block": self.block, "window": self.window}
        return shuffling.SCHEMES[self.scheme](key, step, self.batch_size, num_examples, **lengths)

    def fetch(self, target: Posterior, rows: Int[Array, " B"], like: PyTree) -> PyTree:
        """Those rows of the data."""
        del like  # a batch has the shapes of the data
        return target.take(rows)

    def potential(self, target: Posterior, state: PyTree, batch: PyTree, position: PyTree) -> Float[Array, ""]:
        """−log p(x) − (N/B) Σ log p(dᵢ | x)."""
        return target.potential(position, batch)

    def variance_of_differences(
        self, target: Posterior, state: PyTree, batch: PyTree, positions: PyTree
    ) -> Float[Array, " pairs"]:
        """(N²/B)(1 − B/N)s² with s² the variance over the batch's rows; no 1 − B/N with replacement. Unbiased."""
        if self.batch_size == 1:
            raise _checks.ContractError(
                "a batch of one row does not show how noisy energies are: write a batch_size of 2 or more, or give the "
                "variance of their differences, ls.tempering(…, energy_variance=…)."
            )
        values = jax.vmap(lambda x: target.per_example(x, batch))(positions)
        spread = jnp.var(values[:-1] - values[1:], axis=1, ddof=1)
        share = 0 if self.scheme == "iid" else self.batch_size / target.num_examples
        return target.num_examples**2 / self.batch_size * (1 - share) * spread


class OnRows(GradientEstimator):
    """What estimators share that read the rows of a `Minibatch` and make something else of them."""

    rows: eqx.AbstractVar[Minibatch]

    @property
    def shared(self) -> bool:  # type: ignore[override]
        """Whether all chains see the same batches."""
        return self.rows.shared

    def check(self, target: Posterior | Target) -> None:
        """Refuse what the minibatch refuses, and streamed data."""
        self.rows.check(target)
        if isinstance(getattr(target, "data", None), Stream):
            raise refusal(f"ls.{type(self).__name__}")

    def plan(self, key: Array, step: Int[Array, ""], num_examples: int) -> PyTree:
        """The rows of this step's batch."""
        return self.rows.plan(key, step, num_examples)

    def fetch(self, target: Any, rows: PyTree, like: PyTree) -> PyTree:
        """Those rows of the data."""
        return self.rows.fetch(target, rows, like)


def _block_and_window(scheme: str, block: int | None, window: int | None) -> tuple[int | None, int | None]:
    """The lengths of the scheme that has them."""
    if scheme != "blocks":
        if block is not None or window is not None:
            raise ValueError(f"block and window belong to scheme='blocks'; leave them out for scheme={scheme!r}.")
        return None, None
    block = _checks.count("block", _BLOCK if block is None else block)
    window = _checks.count("window", max(_WINDOW, block) if window is None else window)
    if window < block:
        raise ValueError(f"window must be at least block, got window={window} and block={block}; take several blocks.")
    return block, window


class FullBatch(GradientEstimator):
    """∇U(x) itself, from all data, a chunk in memory at a time: O(N) per step.

    On a `Target` with a `noise_scale` s it is ∇U(x) + s ξ, ξ ~ N(0, I) fresh for every step.

    >>> FullBatch()
    FullBatch()
    """

    is_independent = True

    def check(self, target: Posterior | Target) -> None:
        """Refuse streamed data."""
        if isinstance(target, Posterior) and isinstance(target.data, Stream):
            raise refusal("the full gradient")

    def plan(self, key: Array, step: Int[Array, ""], num_examples: int) -> Array:
        """Every row is read; the key is that of ξ."""
        del num_examples
        return jax.random.fold_in(key, step)

    def fetch(self, target: Any, rows: Array, like: PyTree) -> PyTree:
        """S ξ, or nothing."""
        return target.gradient_noise(rows, like) if isinstance(target, Target) else ()

    def potential(self, target: Any, state: PyTree, batch: PyTree, position: PyTree) -> Float[Array, ""]:
        """U(x)."""
        del state, batch
        return -target.log_density(position)

    def estimate(self, target: Any, state: PyTree, batch: PyTree, position: PyTree) -> tuple[PyTree, PyTree]:
        """∇U(x) + s ξ."""
        gradient = jax.grad(lambda x: self.potential(target, state, batch, x))(position)
        return (_trees.add(gradient, batch) if jax.tree.leaves(batch) else gradient), state

    def variance_of_differences(
        self, target: Any, state: PyTree, batch: PyTree, positions: PyTree
    ) -> Float[Array, " pairs"]:
        """0: energies are of all data."""
        return jnp.zeros(jax.tree.leaves(positions)[0].shape[0] - 1, float)


class Oracle(eqx.Module):
    """One step's answers about U, all from one minibatch."""

    target: Any
    estimator: GradientEstimator
    state: PyTree
    batch: PyTree
    step: Int[Array, ""] | None = None  # one number for all chains, where there is a loop
    known: tuple[PyTree, PyTree] | None = None  # a position and the gradient there

    @classmethod
    def of_step(
        cls, target: Any, estimator: GradientEstimator, state: PyTree, batch: PyTree, position: PyTree, step: Any
    ) -> tuple["Oracle", PyTree]:
        """The oracle of a step from `position`, and the estimator's state after it."""
        state = estimator.begin(target, state, batch, position, step)
        gradient, after = estimator.estimate(target, state, batch, position)
        return cls(target, estimator, state, batch, step, (position, gradient)), after

    @property
    def num_examples(self) -> int:
        """N, 1 for a target without data."""
        return int(self.target.num_examples)

    def gradient(self, position: PyTree) -> PyTree:
        """∇Û at any point, as often as asked."""
        if self.known is not None and _trees.same(position, self.known[0]):
            return self.known[1]
        return self.estimator.estimate(self.target, self.state, self.batch, position)[0]

    def potential(self, position: PyTree) -> Float[Array, ""]:
        """Û at any point, from the same minibatch."""
        return self.estimator.potential(self.target, self.state, self.batch, position)

    def variance_of_differences(self, positions: PyTree) -> Any:
        """Var[Û(x) − Û(x')] of neighbours among stacked positions, None where it is not known."""
        return self.estimator.variance_of_differences(self.target, self.state, self.batch, positions)

    def full_potential(self, position: PyTree) -> Float[Array, ""]:
        """U at any point, from all data."""
        return -self.target.log_density(position)

    def next_state(self, position: PyTree) -> PyTree:
        """The estimator's state after a step from `position`."""
        return self.estimator.estimate(self.target, self.state, self.batch, position)[1]


class FunctionOracle(eqx.Module):
    """A plain function x → ∇Û(x) as an oracle. A preconditioner that learns divides it by `num_examples`.

    >>> FunctionOracle(lambda x: 2 * x, num_examples=100).gradient(3.0)
    6.0
    """

    gradient: Callable[[PyTree], PyTree]
    num_examples: int = eqx.field(static=True, default=1)
    step = None


def as_oracle(oracle: Any) -> Any:
    """An oracle, or a function that gives the gradient."""
    if hasattr(oracle, "gradient"):
        return oracle if hasattr(oracle, "num_examples") else FunctionOracle(oracle.gradient)
    return FunctionOracle(_checks.function("oracle", oracle, "(position), or have a .gradient"))


def choose(sampler: Any, target: Posterior | Target, gradient: Any, batch_size: Any) -> GradientEstimator:
    """The estimator that `ls.sample(…, gradient=, batch_size=)` asks for."""
    if gradient is not None and batch_size is not None:
        raise ValueError(
            "both gradient= and batch_size= are given; batch_size=32 is short for gradient=ls.Minibatch(32)."
        )
    if batch_size is not None:
        gradient = Minibatch(batch_size)
    if gradient is not None and not isinstance(gradient, GradientEstimator):
        raise TypeError(f"gradient must be an estimator such as ls.Minibatch(32), got {gradient!r}.")
    if sampler.reads_all_data:
        if gradient is not None and not isinstance(gradient, FullBatch):
            _refuse_for_exact(sampler.dynamics)
            raise ValueError(
                "this sampler reads all data at every step; leave out batch_size and gradient, "
                "or take its stochastic form, such as ls.sgld for ls.lmc."
            )
        gradient = FullBatch()
    elif gradient is None and isinstance(target, Posterior):
        raise ValueError(
            f"a stochastic sampler on {target.num_examples} rows of data needs a batch size: "
            "write batch_size=32, or gradient=ls.Minibatch(32, scheme='epochs'), or gradient=ls.FullBatch()."
        )
    gradient = FullBatch() if gradient is None else gradient
    gradient.check(target)
    sampler.dynamics.check_gradient(gradient)
    return gradient


def _refuse_for_exact(dynamics: Any) -> None:
    """One that tests its steps has no stochastic form."""
    if dynamics.is_exact:
        raise ValueError(
            f"{type(dynamics).__name__} tests every step on all data: leave out batch_size and gradient. For "
            "minibatches write ls.sgld or ls.baoab, which are biased, or ls.amagold, which reads all data at its tests."
        )
