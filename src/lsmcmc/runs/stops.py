"""SIGTERM as a request to stop: what preemptible machines and schedulers send before they kill."""

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType

TERMINATED = 128 + signal.SIGTERM


@contextlib.contextmanager
def by_signal() -> Iterator[None]:
    """SIGTERM raises `SystemExit` within, as Ctrl-C raises `KeyboardInterrupt`. A handler of the caller's stays."""
    ours = threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    if ours:
        signal.signal(signal.SIGTERM, _stop)
    try:
        yield
    finally:
        if ours:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _stop(number: int, frame: FrameType | None) -> None:
    del number, frame
    raise SystemExit(TERMINATED)
