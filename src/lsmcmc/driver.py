"""Python's side of the loop: how a run is cut into compiled calls, and what happens between them."""

import contextlib
import time
from collections.abc import Iterator
from typing import Any, NoReturn

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from lsmcmc import _checks, _trees, feeding, schedules
from lsmcmc.equation import Sampler
from lsmcmc.keeping import Sums
from lsmcmc.loop import MOST_STEPS, Carry, Job, Plan, advance
from lsmcmc.lowrank import stride
from lsmcmc.progress import Progress
from lsmcmc.recording import Recording
from lsmcmc.run import DivergenceError, Run

_CALL_SECONDS = 0.5  # after which Python gets a look
_DRAW_BYTES = 2**23  # of draws waiting inside one compiled call: more is fresh memory at every call
_MOMENT_BLOCK = 4096  # draws summed in float32 before they are added up in float64
_ASKED = KeyboardInterrupt, SystemExit  # to stop
_MOST_LOOKED_AT = 2**20  # steps of a schedule that are checked before any sampling


def num_slots(bytes_of_a_draw: int) -> int:
    """The most draws that one compiled call keeps; of draws that are only summed, a block."""
    return min(MOST_STEPS, max(1, _DRAW_BYTES // bytes_of_a_draw)) if bytes_of_a_draw else _MOMENT_BLOCK


class Cut:
    """How a run is cut into compiled calls, by the sampler's timetable. Where the cuts are changes no number.

    A call ends when its slots are full, at the same draws in every run, so moments are the same to the last bit; and
    at each draw that is held for the covariance, of `rank` and more; and where the batches end that are read `ahead`
    of it. `done` steps were made before.
    """

    def __init__(self, sampler: Sampler, first: int, slots: int, chunk: int, rank: int = 0, ahead: int | None = None):
        assert sampler.timetable is not None  # planned
        self.sampler, self.first, self.table, self.done = sampler, first, sampler.timetable, 0
        self.num_draws, self.burn_in, self.thin = self.table.num_draws, self.table.burn_in, self.table.thin
        self.slots, self.rank, self.ahead, self.fixed = slots, rank, ahead, chunk < MOST_STEPS
        self.next_count = min(chunk, MOST_STEPS) if self.fixed else 1
        self.total = self.table.total
        looked_at = np.unique(np.linspace(0, self.total - 1, min(self.total, _MOST_LOOKED_AT)).astype(np.int64))
        self._schedules(looked_at)  # bad values should be met now

    def nothing(self) -> Plan:
        """A call of no steps, which compiles."""
        return self._as_plan(np.zeros(0), np.zeros(0), np.zeros(0, np.int32))

    def __iter__(self) -> Iterator[tuple[Plan, NDArray[np.float64]]]:
        """The plan of each call, with the step sizes of the draws it keeps."""
        done = self.done
        while done < self.total:
            made = int(self.table.made(done))
            end = min(made + each - made % each for each in (self.slots, *self._stride(made)))
            count = min(self.next_count, self.table.at(end) - done, self.total - done, *self._read(done))
            number = self.table.made(np.arange(done, done + count + 1))
            kept = np.diff(number) > 0
            h, temperature = self._schedules(np.arange(done, done + count))
            slots = np.where(kept, number[1:] - made - 1, -1)
            yield self._as_plan(h, temperature, slots.astype(np.int32)), h[kept]
            done += count

    def took(self, seconds: float) -> None:
        """Lengthen the calls while they are short, shorten them when they are long."""
        if not self.fixed:
            wanted = self.next_count * _CALL_SECONDS / max(seconds, 1e-9)
            self.next_count = int(np.clip(wanted, 1, min(8 * self.next_count, MOST_STEPS)))

    def _stride(self, made: int) -> tuple[int, ...]:
        return (stride(made + 1, self.rank),) if self.rank else ()

    def _read(self, done: int) -> tuple[int, ...]:
        return (self.ahead - (self.first + done) % self.ahead,) if self.ahead else ()

    def _schedules(self, steps: NDArray[np.int64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        at = self.first + steps
        given = (schedules.over(name, getattr(self.sampler, name), at) for name in ("step_size", "temperature"))
        h, temperature = self.table.values(at, *given)
        self.sampler.check_schedules(h, temperature)
        return h, temperature

    @staticmethod
    def _as_plan(h: Any, temperature: Any, slots: Any) -> Plan:
        room = (0, MOST_STEPS - len(h))
        return Plan(
            jnp.asarray(len(h), jnp.int32),
            jnp.asarray(np.pad(h, room), float),
            jnp.asarray(np.pad(temperature, room), float),
            jnp.asarray(np.pad(slots, room, constant_values=-1)),
        )


class InMemory:
    """A run that is not saved. What is called between compiled calls: `runs` has one that writes to disk."""

    def called(self, chains: "Chains") -> None:
        """A call came back and was recorded."""

    def finished(self, chains: "Chains") -> None:
        """All calls did."""

    def stopped(self, chains: "Chains", error: BaseException, status: str) -> None:
        """The run ends before its time."""


def drive(
    job: Job,
    carry: list[Carry],
    cut: Cut,
    recording: Recording,
    progress: bool | None,
    sums: Sums | None = None,
    saving: InMemory = InMemory(),
) -> Run:
    """Call the compiled function until the run is done. Takes the carry out of its list, to hold the only one.

    `sums` are the moments of a block that an earlier call began.
    """
    feed = feeding.feed(job, carry[0].keys, cut.ahead, cut.first + cut.total)
    chains = Chains(job, feed, carry.pop(), recording, sums)
    try:
        chains.compile(cut.nothing())
        with Progress(cut.total, progress) as bar:
            bar.advance(cut.done)
            for plan, step_sizes in cut:
                cut.took(chains.advance(plan, step_sizes))
                bar.advance(int(plan.count))
                saving.called(chains)
        saving.finished(chains)
    except _checks.ContractError as error:
        raise ValueError(str(error)) from error.__cause__
    except DivergenceError as error:
        saving.stopped(chains, error, "diverged")
        raise
    except (KeyboardInterrupt, SystemExit, Exception) as error:
        if isinstance(error, _ASKED):
            with contextlib.suppress(*_ASKED, DivergenceError):  # what was interrupted goes before
                chains.settle()
        run = error.run = recording.run(chains.sums)  # type: ignore[union-attr]
        error.add_note(f"{run.num_draws} draws were made before; they are in this error's .run")
        saving.stopped(chains, error, "stopped" if isinstance(error, _ASKED) else "failed")
        raise
    finally:
        feed.close()
    return recording.run(chains.sums)


class Chains:
    """Where the chains are, and the call that is under way."""

    def __init__(self, job: Job, feed: feeding.Feed, now: Carry, recording: Recording, sums: Sums | None = None):
        self.job, self.feed, self.now, self.recording = job, feed, now, recording
        self.sums = job.keep.no_sums(now.sampler.position) if sums is None else sums
        self.under_way: tuple[Plan, Any, float, Any] | None = None

    def compile(self, nothing: Plan) -> None:
        """A call of no steps."""
        job, began = self._job(), time.perf_counter()
        self.sums, self.now, *_ = jax.block_until_ready(advance((job, self.now, nothing), self.sums))
        self.recording.compile_seconds += time.perf_counter() - began

    def advance(self, plan: Plan, step_sizes: Any) -> float:
        """One call; the seconds it took."""
        began = time.perf_counter()
        self.under_way = plan, step_sizes, began, advance((self._job(), self.now, plan), self.sums)
        return self.settle()

    def settle(self) -> float:
        """Wait for the call that is under way, if there is one, and take what it made."""
        if self.under_way is None:
            return 0.0
        plan, step_sizes, began, made = self.under_way
        sums, after, kept, finite = jax.block_until_ready(made)
        seconds, self.sums = time.perf_counter() - began, sums
        if not bool(finite.all()):
            self.under_way = None
            self._stop(plan)
        number = self.recording.num_draws + len(step_sizes)
        is_full = self.job.keep.moments is not None and len(step_sizes) > 0 and number % self.job.slots == 0
        fresh = self._no_sums() if is_full else sums
        if int(plan.count) and int(plan.slots[int(plan.count) - 1]) >= 0:
            self.recording.hold(number, after)
        self.recording.take(kept, step_sizes, after, int(plan.count), seconds, sums if is_full else None)
        self.under_way, self.now, self.sums = None, after, fresh
        return seconds

    def _job(self) -> Job:
        return self.feed.job(int(self.now.step))

    def _no_sums(self) -> Sums | None:
        return self.job.keep.no_sums(self.now.sampler.position)

    def _stop(self, plan: Plan) -> NoReturn:
        """Find the step at which the first chain diverged, by halving; raise with what was drawn before it."""

        def to(count: int) -> Any:
            shorter = eqx.tree_at(lambda p: p.count, plan, jnp.asarray(count, jnp.int32))
            return advance((self._job(), self.now, shorter), self._no_sums())

        good, bad = 0, int(plan.count)
        while bad - good > 1:
            middle = (good + bad) // 2
            good, bad = (middle, bad) if bool(to(middle)[3].all()) else (good, middle)
        _, before, kept, _ = to(good)
        chain = int(np.flatnonzero(~np.asarray(to(bad)[3]))[0])
        h, step = np.asarray(plan.step_sizes), int(self.now.step) + bad
        self.recording.take(kept, h[:good][np.asarray(plan.slots)[:good] >= 0], before, good, 0.0, None)
        raise DivergenceError(self.recording.run(self.sums), chain, step, float(h[bad - 1]))


def bytes_of_a_draw(like: Any, num_chains: int) -> int:
    """What all chains keep of one draw."""
    return num_chains * _trees.num_bytes(like)
