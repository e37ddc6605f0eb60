"""Cyclical SG-MCMC: a step size that falls and starts again, to explore with large steps and sample with small ones."""

import math
from fractions import Fraction
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from lsmcmc import _checks
from lsmcmc.equation import Sampler
from lsmcmc.timetable import Timetable


def cyclical(
    sampler: Sampler, num_cycles: int, exploration: float = 0.8, *, exploration_temperature: Any = 0.0
) -> Sampler:
    """A sampler whose step size goes through cycles, with draws at their ends (Zhang et al. 2020, Alg. 1).

        h_k = (h/2)(cos(π p/C) + 1),   p = k mod C,   p/C < exploration: explore;  else: sample

    k counts the steps after burn-in, C = ⌈K/M⌉ is the length of one of the M = `num_cycles` cycles, and h is the step
    size of `sampler`, a number or a schedule. While exploring the temperature is `exploration_temperature`, 0 as
    published, which is optimisation; while sampling it is the sampler's own, and every `thin`-th step is kept.
    Their α_k is h_k. A run is burn_in + M·C steps with C = ⌈thin·⌈num_draws/M⌉/(1 − exploration)⌉, and `burn_in` steps
    of the sampler as it is come first. Where M does not divide num_draws, some cycles keep one draw fewer, their first.

    The draws are of the posterior as far as the cycles find all modes; each is weighted by how often it was found, not
    by its mass. Takes any sampler without a Metropolis test. Cost: that of the sampler, 1/(1 − exploration) times as
    many steps per draw.

    >>> import lsmcmc as ls
    >>> target = ls.Target(lambda x: -0.5 * jnp.sum(x**2))
    >>> sampler = cyclical(ls.sgld(0.5), num_cycles=4, exploration=0.75)
    >>> run = ls.sample(sampler, target, jnp.zeros(2), num_draws=20, thin=2)
    >>> run.draws.shape, run.num_steps                      # 5 draws a cycle of 40 steps, 10 of them sampling
    ((1, 20, 2), 160)
    >>> run.step_sizes[:5].round(3)
    array([0.06 , 0.037, 0.019, 0.007, 0.001])
    """
    check(sampler)
    cycles = Cycles(
        num_cycles=_checks.count("num_cycles", num_cycles),
        exploration=_share(exploration),
        exploration_temperature=_checks.hyper("exploration_temperature", exploration_temperature),
    )
    return eqx.tree_at(lambda s: s.timetable, sampler, cycles)


class Cycles(Timetable):
    """The timetable of `cyclical`: draws in the sampling phase at the end of each cycle."""

    num_cycles: int = eqx.field(static=True, default=1)
    exploration: Fraction = eqx.field(static=True, default=Fraction(4, 5))
    exploration_temperature: Float[Array, ""] | None = None
    first: int = eqx.field(static=True, default=0)

    @property
    def length(self) -> int:
        """C, the steps of a cycle."""
        sampling = self.thin * -(-self.num_draws // self.num_cycles)
        return math.ceil(sampling / (1 - self.exploration))

    @property
    def total(self) -> int:
        """Whole cycles."""
        return self.burn_in + self.num_cycles * self.length

    @property
    def why_fixed(self) -> str:
        """The schedule knows the end."""
        return "the cycles of ls.cyclical are as long as num_draws makes them, so a longer run is another one"

    def planned(self, burn_in: int, thin: int, num_draws: int, first: int) -> "Cycles":
        """Long enough for all draws."""
        if num_draws < self.num_cycles:
            raise ValueError(
                f"num_draws is {num_draws} and num_cycles {self.num_cycles}: a cycle without a draw finds a mode for "
                f"nothing. Write num_draws={self.num_cycles} or more, or fewer cycles."
            )
        return Cycles(burn_in, thin, num_draws, self.num_cycles, self.exploration, self.exploration_temperature, first)

    def made(self, steps: Any) -> Any:
        """Those of the cycles that are complete, and those at the end of the one that is not."""
        after = np.maximum(np.asarray(steps) - self.burn_in, 0)
        cycle, position = after // self.length, after % self.length
        to_come = -(-(self.length - position) // self.thin)
        return np.maximum(self._before(cycle), self._before(cycle + 1) - to_come)

    def at(self, number: int) -> int:
        """`thin` steps apart, the last one at the end of its cycle."""
        if number > self.num_draws:
            return self.total
        cycle = (number - 1) * self.num_cycles // self.num_draws
        return self.burn_in + (cycle + 1) * self.length - self.thin * int(self._before(cycle + 1) - number)

    def values(self, step: Any, step_size: Any, temperature: Any) -> tuple[Any, Any]:
        """The cosine, and the temperature of the phase."""
        if not self.num_draws:
            raise ValueError(
                "ls.cyclical needs to know the length of the run: by hand, write "
                "sampler = sampler.planned(burn_in=0, thin=1, num_draws=1_000) first."
            )
        xp: Any = jnp if isinstance(step, jax.Array) else np
        after = step - self.first - self.burn_in
        position = after % self.length
        cosine = (xp.cos(xp.asarray(position, float) * (math.pi / self.length)) + 1) / 2
        explores = position < math.ceil(self.exploration * self.length)  # p/C < exploration, in whole numbers
        quiet = xp.asarray(self.exploration_temperature, temperature.dtype)
        is_cycle = after >= 0
        return xp.where(is_cycle, step_size * cosine, step_size), xp.where(is_cycle & explores, quiet, temperature)

    def _before(self, cycle: Any) -> Any:
        """Draws of the cycles before this one: spread over them as evenly as whole numbers can be."""
        return -(-(cycle * self.num_draws) // self.num_cycles)


def check(sampler: Any) -> None:
    """Refuse what cannot go through cycles."""
    if not isinstance(sampler, Sampler):
        raise TypeError(f"ls.cyclical takes a sampler such as ls.sgld(1e-4), got {sampler!r}.")
    if sampler.dynamics.is_exact:
        raise ValueError(
            f"{type(sampler.dynamics).__name__} has a Metropolis test, which is right for any one step size and not "
            "for a phase without noise. ls.cyclical takes samplers such as ls.sgld and ls.sghmc."
        )


def _share(exploration: Any) -> Fraction:
    """A share of a cycle, without the rounding of a float: 0.8 is four fifths."""
    _checks.hyper("exploration", exploration, below=1.0)
    return Fraction(float(exploration)).limit_denominator(10**6)
