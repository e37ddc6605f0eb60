"""Named samplers: compositions of a dynamics and a preconditioner, and the one equation that steps them.

g     = ∇Û(x)                    gradient estimator
m, a' = D(a, Bᵀg, ε; h, T)       dynamics
x'    = x + B m                  push forward
"""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PyTree

from lsmcmc import _checks, _trees
from lsmcmc.dynamics import Dynamics, Overdamped
from lsmcmc.gradients import as_oracle
from lsmcmc.preconditioners import Identity, Laplacian, Preconditioner, RMSprop, as_preconditioner
from lsmcmc.schedules import Schedule, at, schedule


class State(eqx.Module):
    """What the next step needs."""

    position: PyTree
    dynamics: PyTree
    preconditioner: PyTree
    step: Int[Array, ""]


class Info(eqx.Module):
    """What diagnostics may want of a step: the raw gradient estimate and the displacement in y."""

    gradient: PyTree
    displacement: PyTree


class Sampler(eqx.Module):
    """A dynamics seen through a preconditioner.

    `init` and `step` are pure functions for use under `jax.jit`, `jax.vmap` and `lax.scan`:

    >>> import jax, jax.numpy as jnp
    >>> sampler = ls_sgld(0.1, sigma=1.0)
    >>> state = sampler.init(jnp.zeros(3), key=jax.random.key(0))
    >>> state, info = sampler.step(state, lambda x: x, key=jax.random.key(1))
    >>> state.position.shape, int(state.step)
    ((3,), 1)
    """

    step_size: Schedule | None
    temperature: Schedule | None
    dynamics: Dynamics
    preconditioner: Preconditioner
    reads_all_data: bool = eqx.field(static=True)

    def __init__(
        self,
        step_size: Any,
        dynamics: Dynamics,
        preconditioner: Any = Identity(),
        temperature: Any = 1.0,
        *,
        reads_all_data: bool = False,
    ):
        self.step_size = schedule("step_size", step_size)
        self.temperature = schedule("temperature", temperature)
        self.dynamics = dynamics
        self.preconditioner = as_preconditioner(preconditioner)
        self.reads_all_data = reads_all_data

    def init(self, position: PyTree, *, key: Array) -> State:
        """The state at a position."""
        position = _checks.position(position)
        return State(
            position,
            self.dynamics.init(position, key),
            self.preconditioner.init(position),
            jnp.zeros((), jnp.int32),
        )

    def noise(self, key: Array, position: PyTree) -> PyTree:
        """ε of one step, as data."""
        return self.dynamics.noise(key, position)

    def step(self, state: State, oracle: Any, *, key: Array) -> tuple[State, Info]:
        """One transition. `oracle` is this step's estimate of ∇U: an `Oracle`, or a function of the position."""
        h, temperature = at(self.step_size, state.step), at(self.temperature, state.step)
        return self.transition(state, oracle, self.noise(key, state.position), h, temperature)

    def transition(
        self, state: State, oracle: Any, noise: PyTree, h: Float[Array, ""], temperature: Float[Array, ""]
    ) -> tuple[State, Info]:
        """The one equation: x' = x + B m, m = D(a, Bᵀ∇Û(x), ε; h, T), deterministic in all of these."""
        oracle, x = as_oracle(oracle), state.position
        num_examples = oracle.num_examples
        g = oracle.gradient(x)
        _same("the gradient", "the position", x, g)  # broadcasting would hide a mistake
        learned = self.preconditioner.observe(state.preconditioner, g, num_examples)
        _same("what the preconditioner remembers", "before its update", state.preconditioner, learned)

        def B(m: PyTree) -> PyTree:
            return self.preconditioner.apply(learned, m)

        def gradient(m: PyTree | None = None) -> PyTree:
            there = g if m is None else oracle.gradient(_trees.add(x, B(m)))
            return self.preconditioner.apply_transpose(learned, there)

        m, a = self.dynamics.move(state.dynamics, gradient, noise, h, temperature)
        new = _trees.add(x, B(m))
        correction = self.preconditioner.divergence(state.preconditioner, oracle.gradient, x, num_examples)
        if correction is not None:  # the drift h·T·Γ of the complete recipe
            new = _trees.add(new, _trees.cast_like(_trees.scale(h * temperature, correction), x))
        return State(new, a, learned, state.step + 1), Info(g, m)

    def without_schedules(self) -> "Sampler":
        """The sampler with step size and temperature left to the loop, which feeds their values in as data."""
        return eqx.tree_at(lambda s: (s.step_size, s.temperature), self, (None, None))


def _same(what: str, model: str, expected: PyTree, found: PyTree) -> None:
    """Structures, shapes and dtypes agree."""
    if _checks.describe(expected) != _checks.describe(found):
        raise ValueError(f"{what} must look like {model}, {_checks.describe(expected)}, got {_checks.describe(found)}.")


def sgld(step_size: Any, *, preconditioner: Any = Identity(), temperature: Any = 1.0) -> Sampler:
    """Stochastic gradient Langevin dynamics, x' = x − h B Bᵀg + √(2hT) B ε (Welling and Teh 2011; their ε is 2h).

    B is the identity unless a preconditioner is given. Biased by O(h) and by the minibatch noise, O(h).
    Cost: one gradient estimate, one normal draw.

    >>> sgld(1e-3).preconditioner
    Identity()
    """
    return Sampler(step_size, Overdamped(), preconditioner, temperature)


def lmc(step_size: Any, *, preconditioner: Any = Identity(), temperature: Any = 1.0) -> Sampler:
    """Langevin Monte Carlo: `sgld` on the full gradient (the paper's Eq. lmc); with a Laplacian, LS-LD (Eq. LS-LD).

    Reads all data at every step. Biased by O(h).

    >>> lmc(1e-3, preconditioner=Laplacian(1.0)).reads_all_data
    True
    """
    return Sampler(step_size, Overdamped(), preconditioner, temperature, reads_all_data=True)


def psgld(
    step_size: Any, *, decay: Any = 0.99, eps: Any = 1e-5, gamma: bool = False, temperature: Any = 1.0
) -> Sampler:
    """Preconditioned SGLD, x' = x − h G g + √(2hT) G^{1/2} ε, G by `RMSprop` (Li et al. 2016, Eq. 10).

    Γ is dropped as published unless gamma=True, which costs d more gradients a step; see `RMSprop`.
    Their step ε is 2h, and 1/N is in their gradients.

    >>> psgld(1e-3).preconditioner.gamma
    False
    """
    return Sampler(step_size, Overdamped(), RMSprop(decay, eps, gamma=gamma), temperature)


def ls_sgld(
    step_size: Any,
    *,
    sigma: Any = 1.0,
    scope: str = "leaf",
    axes: Any = None,
    order: int = 1,
    temperature: Any = 1.0,
) -> Sampler:
    """Laplacian smoothing SGLD, x' = x − h A_σ⁻¹g + √(2hT) A_σ^{-1/2} ε (the paper's Eq. LS-SGLD).

    With h = η/N and T = N/β in the paper's η and β. σ = 0 is `sgld`. The options are those of `Laplacian`.

    >>> ls_sgld(1e-3, sigma=0.5).preconditioner.scope
    'leaf'
    """
    return Sampler(step_size, Overdamped(), Laplacian(sigma, scope, axes=axes, order=order), temperature)


def ls_psgld(
    step_size: Any,
    *,
    sigma: Any = 1.0,
    decay: Any = 0.99,
    eps: Any = 1e-5,
    scope: str = "leaf",
    axes: Any = None,
    order: int = 1,
    temperature: Any = 1.0,
) -> Sampler:
    """Laplacian smoothing pSGLD: B = G^{1/2} A_σ^{-1/2} (§4 of the paper), drift and noise consistent.

    The authors' code smooths before V is accumulated and its drift and noise do not match; here V is
    of the raw gradient and B Bᵀ is in both. Γ is dropped, see `RMSprop`.

    >>> ls_psgld(1e-3, sigma=0.5).preconditioner.first.gamma
    False
    """
    preconditioner = RMSprop(decay, eps) @ Laplacian(sigma, scope, axes=axes, order=order)
    return Sampler(step_size, Overdamped(), preconditioner, temperature)
