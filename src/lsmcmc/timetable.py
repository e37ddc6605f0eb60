"""When a run keeps a draw: how many steps it makes, and which of them are kept."""

from typing import Any

import equinox as eqx


class Timetable(eqx.Module):
    """After `burn_in` steps every `thin`-th is kept. The loop asks how many draws there are after so many steps.

    A timetable of your own says which steps of a run keep a draw (`made`, `at`), and may change the step size
    and temperature of each (`values`): `ls.cyclical` is one.

    >>> table = Timetable(burn_in=5, thin=3, num_draws=2)
    >>> table.total, [table.made(steps) for steps in (7, 8, 11)], table.at(2)
    (11, [0, 1, 2], 11)
    """

    burn_in: int = eqx.field(static=True, default=0)
    thin: int = eqx.field(static=True, default=1)
    num_draws: int = eqx.field(static=True, default=0)

    @property
    def total(self) -> int:
        """The steps of the run."""
        return self.at(self.num_draws)

    @property
    def why_fixed(self) -> str:
        """Why a run cannot be made longer afterwards; empty where it can."""
        return ""

    def planned(self, burn_in: int, thin: int, num_draws: int, first: int) -> "Timetable":
        """The timetable of a run of that length whose first step is step `first` of its chains."""
        del first  # the same from any step on
        return Timetable(burn_in, thin, num_draws)

    def made(self, steps: Any) -> Any:
        """How many draws are kept within the first `steps` steps, a number or an array."""
        return (steps - self.burn_in) * (steps > self.burn_in) // self.thin

    def at(self, number: int) -> int:
        """How many steps are made when draw `number`, counted from 1, is kept."""
        return self.burn_in + self.thin * number

    def values(self, step: Any, step_size: Any, temperature: Any) -> tuple[Any, Any]:
        """The step size and temperature of a step of the chains, from what the sampler says of it."""
        del step  # as it says
        return step_size, temperature
