"""`run.json`: what was run, by which versions, on what machine and when, to be read by people."""

import contextlib
import json
import os
import platform
import socket
import subprocess
import warnings
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import jax
import jaxlib.version
import numpy as np

from lsmcmc.runs import checkpoint, files

NAME = "run.json"
FORMAT = 1
_NEEDED = {"format", "lsmcmc", "status", "num_draws_asked", "settings", "sessions"}
_OURS = {NAME, "lock", "checkpoints", "draws.zarr", "fixed.arrays"}


class RunWarning(UserWarning):
    """Something in a run's folder was not as it was written, and what was done about it."""


def read(folder: Path) -> dict[str, Any] | None:
    """The record of a folder, None where no run has begun. Refuses a newer format, and folders of something else.

    Checkpoints hold it too, so one that is torn or missing is taken from there.
    """
    record, wrong = _read(folder / NAME)
    if wrong is not None:
        record = _from_checkpoint(folder)
        if record is not None:
            warnings.warn(
                f"{folder / NAME} {wrong}. Took what the last checkpoint says of it.", RunWarning, stacklevel=5
            )
        elif (folder / NAME).exists():
            raise ValueError(
                f"{folder / NAME} {wrong}, and no whole checkpoint is there to say what was run. Write another path=."
            )
        else:
            _refuse_strangers(folder)
            return None
    assert record is not None
    if record["format"] > FORMAT:
        version = record.get("lsmcmc", "of a later version")
        raise ValueError(
            f"{folder} was written by lsmcmc {version} in format {record['format']}, and this version reads formats up "
            f"to {FORMAT}. Install lsmcmc {version} or later, or write another path=."
        )
    return record


def _read(path: Path) -> tuple[dict[str, Any] | None, str | None]:
    """What is in the file, or what is wrong with it."""
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None, "is missing"
    except ValueError as error:
        return None, f"is torn ({error})"
    known = isinstance(record, dict) and isinstance(record.get("format"), int)
    if not known or (record["format"] <= FORMAT and not {*record} >= _NEEDED):
        return None, "is torn (parts of it are missing)"
    return record, None


def _from_checkpoint(folder: Path) -> dict[str, Any] | None:
    for path in reversed(checkpoint.names(folder / "checkpoints")):
        with contextlib.suppress(checkpoint.Torn, FileNotFoundError):
            return dict(checkpoint.read(path).small["record"])
    return None


def _refuse_strangers(folder: Path) -> None:
    strangers = sorted({path.name for path in folder.iterdir() if not path.name.startswith(".")} - _OURS)
    if strangers:
        raise ValueError(
            f"{folder} has {strangers[0]} in it and no run of lsmcmc. Write a path= of its own for each run."
        )


def write(folder: Path, record: dict[str, Any], durable: bool) -> None:
    """In place of the one before."""
    text = json.dumps(record, indent=2, ensure_ascii=False)
    files.write(folder / NAME, text.encode(), durable=durable)


def begun(before: dict[str, Any] | None, settings: dict[str, Any], asked: int) -> dict[str, Any]:
    """The record at the start of a call, of a run that earlier calls may have begun."""
    import lsmcmc

    sessions = [] if before is None else before["sessions"]
    for session in sessions:
        session.setdefault("ended", "killed")
    return {
        "format": FORMAT,
        "lsmcmc": lsmcmc.__version__,
        "status": "running",
        "num_draws": 0,
        "num_draws_asked": asked,
        "num_steps": 0,
        "seconds": 0.0,
        "compile_seconds": 0.0,
        "settings": settings,
        "sessions": [*sessions, _session(lsmcmc.__version__)],
    }


def now() -> str:
    """The time, to be read by people."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def _session(version: str) -> dict[str, Any]:
    """One call: where, by what and when."""
    return {
        "began": now(),
        "host": socket.gethostname(),
        "process": os.getpid(),
        "system": platform.platform(),
        "cores": os.cpu_count(),
        "devices": [f"{device.platform}: {device.device_kind}" for device in jax.devices()],
        "python": platform.python_version(),
        "lsmcmc": version,
        "jax": jax.__version__,
        "jaxlib": jaxlib.version.__version__,
        "numpy": np.__version__,
        "git": _git(),
    }


def _git() -> dict[str, Any] | None:
    """The commit of the working directory and whether files differ from it, where it is under git."""

    def said(*command: str) -> str:
        return subprocess.run(
            ["git", *command], capture_output=True, text=True, check=True, timeout=5, stdin=subprocess.DEVNULL
        ).stdout.strip()

    try:
        return {"commit": said("rev-parse", "HEAD"), "changed": bool(said("status", "--porcelain", "-uno"))}
    except (OSError, subprocess.SubprocessError):
        return None
