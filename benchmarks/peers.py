"""Peers that need an environment of their own: a process each, which is asked to work and says how long it took."""

import contextlib
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.timing import Contender

ROOT = Path(__file__).parents[1]
ENVIRONMENTS = {"torch": ROOT / ".bench-torch", "old_jax": ROOT / ".bench-jax"}


class Peer:
    """A worker process: one JSON object a line, there and back."""

    def __init__(self, environment: str):
        python = ENVIRONMENTS[environment] / "bin" / "python"
        worker = Path(__file__).parent / f"{environment}_worker.py"
        self.process = subprocess.Popen(
            [python, "-W", "ignore", worker], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def ask(self, **request: Any) -> Any:
        """What the worker answers."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"the peer's process ended while it was asked {request}; its error is above")
        return json.loads(line)

    def contender(self, name: str, **setting: Any) -> Contender:
        """One of its jobs."""
        return Contender(
            name,
            lambda count: self.ask(**setting, do="seconds", count=count),
            lambda: self.ask(**setting, do="value"),
        )


@contextlib.contextmanager
def installed(*environments: str) -> Iterator[dict[str, Peer]]:
    """Those of the environments that are there (`make bench` installs them)."""
    peers = {name: Peer(name) for name in environments if (ENVIRONMENTS[name] / "bin" / "python").exists()}
    try:
        yield peers
    finally:
        for peer in peers.values():
            peer.process.stdin.close()  # type: ignore[union-attr]
            peer.process.wait()
