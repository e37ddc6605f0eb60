"""A progress bar on long runs, only where somebody is watching."""

import sys
import time
from types import TracebackType
from typing import Any

_QUIET_SECONDS = 1.0


class Progress:
    """Counts steps; after a second shows a bar on the terminal. `show` True or False overrides where it shows."""

    def __init__(self, total: int, show: bool | None = None, label: str = "sampling"):
        self.total, self.done, self.label = total, 0, label
        self.show = sys.stderr.isatty() if show is None else show
        self.began = time.monotonic()
        self.bar: Any = None
        self.task: Any = None

    def __enter__(self) -> "Progress":
        return self

    def advance(self, steps: int) -> None:
        """`steps` more are done."""
        self.done += steps
        if self.show and self.bar is None and time.monotonic() - self.began > _QUIET_SECONDS:
            self._open()
        if self.bar is not None:
            self.bar.update(self.task, completed=self.done)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.bar is not None:
            self.bar.stop()

    def _open(self) -> None:
        from rich import progress
        from rich.console import Console

        self.bar = progress.Progress(
            progress.TextColumn("{task.description}"),
            progress.BarColumn(),
            *self._counters(),
            progress.TimeRemainingColumn(),
            console=Console(stderr=True, force_terminal=True),  # asked for, or a terminal it is
            transient=True,
        )
        self.task = self.bar.add_task(self.label, total=self.total or None)
        self.bar.start()

    def _counters(self) -> list[Any]:
        from rich import progress

        return [progress.MofNCompleteColumn(), progress.TextColumn("steps")]
