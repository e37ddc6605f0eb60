"""`ls.sample(…, path=)`: a run that is saved while it is made, and goes on from what is saved."""

import contextlib
import errno
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np

from lsmcmc.driver import Chains, Cut, InMemory, drive
from lsmcmc.loop import Carry, Job
from lsmcmc.recording import Recording
from lsmcmc.run import Run
from lsmcmc.runs import checkpoint, identity, lock, moment, record, stops, structure, zarrays
from lsmcmc.runs.record import RunWarning
from lsmcmc.runs.store import Store

_SHARE = 0.005  # of the time goes into saving, and some more into what the system does to write it
_EVERY = 1.0, 10.0  # seconds of work before the first save, and between two at most
_FULL = errno.ENOSPC, errno.EDQUOT
_MOST_WAITING = 2**26  # bytes of draws that are not saved


def sample(
    path: Any, job: Job, start: list[Carry], cut: Cut, like: Any, given: dict[str, Any], progress: bool | None
) -> Run:
    """A run in the folder `path`, begun, gone on with, or given back where it is finished."""
    folder = Path(path)
    with lock.held(folder), stops.by_signal():
        before = record.read(folder)
        settings = {**identity.settings(job, start[0], given), **identity.timetable(cut.table)}
        _refuse_another(folder, before, settings, cut)
        return _Saved(folder, job, start, cut, before, {**settings, **_schedules(cut, cut.num_draws)}).sample(progress)


def _schedules(cut: Cut, num_draws: int) -> dict[str, Any]:
    """Step sizes and temperatures over a run of so many draws."""
    return identity.schedules_over(cut.sampler, cut.first, cut.first + cut.table.at(num_draws))


def _refuse_another(folder: Path, before: dict[str, Any] | None, settings: dict[str, Any], cut: Cut) -> None:
    """Schedules are compared over the steps that were asked for before."""
    if before is None:
        return
    now = {**settings, **_schedules(cut, before["num_draws_asked"])}
    lines = identity.differences(before["settings"], now)
    if lines:
        if any(line.startswith("num_draws:") for line in lines):
            lines.append(f"({cut.table.why_fixed})")
        listing = "".join(f"  {line}\n" for line in lines)
        raise ValueError(
            f"{folder} holds a run of other settings:\n{listing}Write them as they were, or another path=. To go on "
            f"from its last state with these: ls.sample(…, state=ls.load({str(folder)!r}).state, path=another folder)."
        )


class _Saved(InMemory):
    """What is called between compiled calls, and where the run is saved."""

    def __init__(self, folder: Path, job: Job, start: list[Carry], cut: Cut, before: Any, settings: dict[str, Any]):
        self.folder, self.job, self.cut, self.before = folder, job, cut, before
        self.chains = int(start[0].keys.noise.shape[0])
        self.store = None if job.keep.fn is None else _store(folder, job, start[0], self.chains)
        self.recording = Recording(job.target, job.keep, self.store, self.chains, cut.thin, start[0])
        self.sums, self.start = job.keep.no_sums(start[0].sampler.position), start
        self.record = record.begun(before, settings, cut.num_draws)
        self.saved, self.due, self.wait = 0, 0.0, _EVERY[0]

    def sample(self, progress: bool | None) -> Run:
        """From where it is to its end."""
        self._go_on()
        if self.cut.done >= self.cut.total:
            if self.before["status"] != "finished":  # killed when all was saved but this
                self._write_record("finished")
            return self.recording.run(self.sums)
        with self._saying_what_failed():
            self._begin()
        return drive(self.job, self.start, self.cut, self.recording, progress, self.sums, self)

    def _go_on(self) -> None:
        """From the newest whole checkpoint, if there is one."""
        search = moment.newest(self.folder, self._usable)
        if search.said:
            search.say()
        for path in search.torn:
            path.unlink()
        if search.content is None:
            return
        self.sums = moment.put_back(search.content, self.recording, self.sums)
        self.start[0] = self.recording.state = moment.carry_of(search.content, self.start[0])
        self.cut.done, self.saved = self.recording.num_steps, self.recording.num_draws
        if self.saved > self.cut.num_draws:
            raise ValueError(
                f"{self.folder} has {self.saved} draws already, num_draws={self.cut.num_draws} is fewer. Write "
                f"num_draws={self.saved} or more, or another path=; run.draws[:, :{self.cut.num_draws}] are the first."
            )
        with self._saying_what_failed():
            self._mend(search.content)

    def _usable(self, content: checkpoint.Content) -> tuple[str, str] | None:
        """What is torn of the draws that it counts on, and which they are."""
        if self.store is None:
            return None
        self.store.each = content.small["each"]
        return self.store.lost(content.small["num_draws"])

    def _mend(self, content: checkpoint.Content) -> None:
        """The last chunk of draws, from the checkpoint, where its files are not whole."""
        if self.store is None:
            return
        self.store.hold(self.saved, content.parts["tail"].arrays())
        torn = self.store.torn_tail(self.saved)
        if torn:
            self.store.write(self.saved)
        self.store.show(self.saved)
        for line in torn:
            warnings.warn(f"{line}. Written again from the checkpoint: no draw is lost.", RunWarning, stacklevel=5)

    def _begin(self) -> None:
        """The folder, as it is while the run is made."""
        (self.folder / "checkpoints").mkdir(exist_ok=True)
        if self.before is None:
            _write_fixed(self.folder, self.job.target)
        if self.store is not None:
            zarrays.prepare(self.store.path, self.chains)
        self._write_record("running")
        self.due = time.monotonic() + self.wait

    def called(self, chains: Chains) -> None:
        """Saves when it is time; draws alone when there are many."""
        if time.monotonic() >= self.due:
            self._save(chains, "running")
        elif self.store is not None and self.store.waiting_bytes > _MOST_WAITING:
            with self._saying_what_failed():
                self.store.write(self.recording.num_draws)

    def finished(self, chains: Chains) -> None:
        """Saves the end."""
        self._save(chains, "finished")

    def stopped(self, chains: Chains, error: BaseException, status: str) -> None:
        """Saves what there is, if it can be, and says how to go on."""
        with contextlib.suppress(OSError):  # that is why it stops, or the error goes before it
            self._save(chains, status)
        again = "meets the same step again" if status == "diverged" else "goes on from there"
        note = (
            f"{self.saved} draws are saved in {self.folder}. The same call {again}; "
            f"ls.load({str(self.folder)!r}) reads them."
        )
        error.add_note(note)
        if isinstance(error, SystemExit):  # which shows no notes
            with contextlib.suppress(RunWarning):  # where warnings are errors, the exit code goes before
                warnings.warn(f"Stopped by a signal. {note}", RunWarning, stacklevel=3)

    def _save(self, chains: Chains, status: str) -> None:
        """Draws first, then the state that counts on them, then what readers see."""
        if any(leaf.is_deleted() for leaf in jax.tree.leaves(chains.sums)):
            return  # interrupted where moments were not to be had; what is saved stays
        began, number = time.monotonic(), self.recording.num_draws
        with self._saying_what_failed():
            if self.store is not None:
                self.store.write(number)
            moment.save(self.folder, self.recording, chains.sums, self.store, self._described())
            self.saved = number
            if self.store is not None:
                self.store.show(number, durable=status != "running")
            self._write_record(status)
        ended = time.monotonic()
        self.wait = float(np.clip((ended - began) / _SHARE, _EVERY[0], min(2 * self.wait, _EVERY[1])))
        self.due = ended + self.wait

    @contextlib.contextmanager
    def _saying_what_failed(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise _not_saved(error, self.folder, self.recording.num_draws, self.saved) from error

    def _described(self) -> dict[str, Any]:
        """What `ls.load` needs to know besides."""
        moments = self.job.keep.moments
        kind = self.job.keep.kind
        about: dict[str, Any] = {"record": self.record, "chains": self.chains, "thin": self.cut.thin, "kind": kind}
        if moments is not None:
            about.update(weighted=moments.weighted, rank=moments.rank)
        return about if self.store is None else {**about, **self.store.described()}

    def _write_record(self, status: str) -> None:
        counts = {name: getattr(self.recording, name) for name in ("num_draws", "num_steps", "seconds")}
        self.record.update(counts, status=status, compile_seconds=self.recording.compile_seconds)
        ended = {} if status == "running" else {"ended": record.now()}
        self.record["sessions"][-1].update(status=status, **ended)
        record.write(self.folder, self.record, durable=status != "running")


def _store(folder: Path, job: Job, start: Carry, chains: int) -> Store:
    """Room for what this job keeps."""
    slots = jax.eval_shape(job.empty_slots, start.sampler)
    draws, statistics = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[2:], leaf.dtype), slots)
    form = jax.tree.structure((draws, statistics))
    columns = zarrays.columns(draws, statistics, chains)
    layout, _ = structure.encode((draws, statistics))
    return Store(folder / "draws.zarr", columns, chains, None, lambda arrays: jax.tree.unflatten(form, arrays), layout)


def _write_fixed(folder: Path, target: Any) -> None:
    """The leaves that `trainable` holds, for `run.predict` after loading."""
    if target.fixed is not None:
        checkpoint.write_one(folder / "fixed.arrays", {}, {"fixed": target.fixed})


def _not_saved(error: OSError, folder: Path, number: int, saved: int) -> OSError:
    remedy = "Free some space there" if error.errno in _FULL else "Make it writable"
    return type(error)(
        error.errno,
        f"{error.strerror}: draw {number} could not be saved in {folder}. The {saved} draws saved before stay readable "
        f"(ls.load({str(folder)!r})). {remedy} and make the same call again: it goes on from them",
    )
