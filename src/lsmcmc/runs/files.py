"""Files that are whole or not there: written beside, put on the disk, then moved into their place."""

import os
from pathlib import Path
from typing import Any

import google_crc32c

_PIECE = 2**24  # bytes given to the checksum at once


def write(path: Path, *parts: Any, durable: bool = True) -> None:
    """Bytes and arrays one after the other; `durable` waits for the disk, so that a loss of power finds them too."""
    beside = path.with_name(f".{path.name}.part")
    try:
        with open(beside, "wb") as file:
            for part in parts:
                file.write(part)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        os.replace(beside, path)
    except BaseException:
        beside.unlink(missing_ok=True)  # a full disk needs the room
        raise
    if durable:
        _sync_names(path.parent)


def _sync_names(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def checksum(*parts: Any) -> bytes:
    """CRC-32C of all parts together, four bytes, the least first."""
    total = google_crc32c.Checksum()
    for part in parts:
        view = memoryview(part).cast("B")
        for start in range(0, len(view), _PIECE):
            total.update(bytes(view[start : start + _PIECE]))
    return total.digest()[::-1]
