"""The one equation: a dynamics seen through a preconditioner, one step at a time.

g     = ∇Û(x)                    gradient estimator
m, a' = D(a, Bᵀg, ε; h, T)       dynamics
x'    = x + B m                  push forward
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PyTree
from numpy.typing import NDArray

from lsmcmc import _checks, _trees
from lsmcmc.dynamics import Dynamics
from lsmcmc.gradients import as_oracle
from lsmcmc.preconditioners import Identity, Preconditioner, as_preconditioner
from lsmcmc.schedules import Schedule, at, schedule
from lsmcmc.timetable import Timetable


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


class Seen(eqx.Module):
    """What a dynamics sees of U: the step's oracle in the coordinates y, around the particle, where x = B y."""

    oracle: Any
    position: PyTree
    here: PyTree  # ∇Û(x), which is asked for once
    push: Callable[[PyTree], PyTree]
    pull: Callable[[PyTree], PyTree]
    step: Int[Array, ""]  # the same for all chains in a loop, so that a branch on it stays one

    def there(self, m: PyTree | None = None) -> PyTree:
        """The position x + B m."""
        return self.position if m is None else _trees.add(self.position, self.push(m))

    def gradient(self, m: PyTree | None = None) -> PyTree:
        """Bᵀ∇Û at displacement m, at the particle itself without one."""
        return self.pull(self.here if m is None else self.oracle.gradient(self.there(m)))

    def potential(self, m: PyTree | None = None) -> Float[Array, ""]:
        """Û at displacement m, on this step's batch."""
        return _energy(self.oracle, "potential")(self.there(m))

    def full_potential(self, m: PyTree | None = None) -> Float[Array, ""]:
        """U at displacement m, from all data."""
        return _energy(self.oracle, "full_potential")(self.there(m))


class Sampler(eqx.Module):
    """A dynamics seen through a preconditioner.

    `init` and `step` are pure functions for use under `jax.jit`, `jax.vmap` and `lax.scan`:

    >>> import jax, jax.numpy as jnp, lsmcmc as ls
    >>> sampler = ls.ls_sgld(0.1, sigma=1.0)
    >>> state = sampler.init(jnp.zeros(3), key=jax.random.key(0))
    >>> state, info = sampler.step(state, lambda x: x, key=jax.random.key(1))
    >>> state.position.shape, int(state.step)
    ((3,), 1)
    """

    step_size: Schedule | None
    temperature: Schedule | None
    dynamics: Dynamics
    preconditioner: Preconditioner
    timetable: Timetable | None
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
        self.timetable = Timetable()
        self.reads_all_data = reads_all_data or dynamics.reads_all_data
        dynamics.check(self.preconditioner)

    def planned(self, burn_in: int, thin: int, num_draws: int, first: int = 0) -> "Sampler":
        """The sampler for a run of that length, whose first step is step `first` of its chains."""
        assert self.timetable is not None  # outside the loop
        timetable = self.timetable.planned(burn_in, thin, num_draws, first)
        if first + timetable.total >= 2**31:
            raise ValueError(
                f"a run ends before step 2**31, this one at {first + timetable.total}: it makes {timetable.total} "
                "steps. Write a smaller thin or num_draws, or start another run from this one's draws."
            )
        plans = self.dynamics.planned(burn_in, thin, num_draws), timetable
        return eqx.tree_at(lambda s: (s.dynamics, s.timetable), self, plans)

    def values(self, step: Any) -> tuple[Any, Any]:
        """Step size and temperature of a step."""
        assert self.timetable is not None  # outside the loop
        return self.timetable.values(step, at(self.step_size, step), at(self.temperature, step))

    def init(self, position: PyTree, *, key: Array) -> State:
        """The state at a position."""
        position = _checks.position(position)
        return State(
            position,
            self.dynamics.init(position, key, self.start_temperature()),
            self.preconditioner.init(position),
            jnp.zeros((), jnp.int32),
        )

    def start_temperature(self) -> Float[Array, ""]:
        """That of the first step."""
        assert self.timetable is not None  # outside the loop
        step = jnp.zeros((), jnp.int32)
        return self.timetable.values(step, jnp.ones(()), at(self.temperature, step))[1]

    def noise(self, key: Array, position: PyTree) -> PyTree:
        """ε of one step, as data."""
        return self.dynamics.noise(key, position)

    def step(self, state: State, oracle: Any, *, key: Array) -> tuple[State, Info]:
        """One transition. `oracle` is this step's estimate of ∇U: an `Oracle`, or a function of the position."""
        return self.transition(state, oracle, self.noise(key, state.position), *self.values(state.step))

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

        def Bt(v: PyTree) -> PyTree:
            return self.preconditioner.apply_transpose(learned, v)

        step = getattr(oracle, "step", None)
        step = state.step if step is None else step
        m, a = self.dynamics.move(state.dynamics, Seen(oracle, x, g, B, Bt, step), noise, h, temperature)
        new = _trees.add(x, B(m))
        correction = self.preconditioner.divergence(state.preconditioner, oracle.gradient, x, num_examples)
        if correction is not None:  # the drift h·T·Γ of the complete recipe
            new = _trees.add(new, _trees.cast_like(_trees.scale(h * temperature, correction), x))
        return State(new, a, learned, state.step + 1), Info(g, m)

    def statistics(self, state: State) -> dict[str, Array]:
        """Numbers about the step that led to this state, kept beside each draw: acceptance, energies."""
        return self.dynamics.statistics(state.dynamics)

    def is_finite(self, state: State) -> Bool[Array, ""]:
        """Whether a chain is finite, in its position and in what the sampler remembers."""
        return _trees.all_finite((state.position, state.preconditioner)) & self.dynamics.is_finite(state.dynamics)

    def check_schedules(self, step_sizes: NDArray[np.float64], temperatures: NDArray[np.float64]) -> None:
        """Refuse step sizes and temperatures that the sampler cannot take."""
        self.dynamics.check_schedules(step_sizes, temperatures)

    def without_schedules(self) -> "Sampler":
        """The sampler with step size and temperature left to the loop, which feeds their values in as data."""
        return eqx.tree_at(lambda s: (s.step_size, s.temperature, s.timetable), self, (None, None, None))


def _energy(oracle: Any, name: str) -> Callable[[PyTree], Float[Array, ""]]:
    """The oracle's energies, for the methods that need them."""
    energy = getattr(oracle, name, None)
    if energy is None:
        raise TypeError(
            f"this sampler compares energies, and the oracle has no {name}(position): a function gives the gradient "
            "alone. Step with that of an estimator, such as ls.FullBatch().oracle(target, key, state.position)."
        )
    return energy


def _same(what: str, model: str, expected: PyTree, found: PyTree) -> None:
    """Structures, shapes and dtypes agree."""
    if _checks.describe(expected) != _checks.describe(found):
        raise ValueError(f"{what} must look like {model}, {_checks.describe(expected)}, got {_checks.describe(found)}.")
