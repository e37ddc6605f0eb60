"""One process writes a run: the `lock` of its folder, which the system frees when the process ends, however it ends."""

import contextlib
import errno
import os
import socket
from collections.abc import Iterator
from pathlib import Path

try:
    import fcntl
except ImportError:  # not offered by this system
    fcntl = None  # type: ignore[assignment]

_NOT_WRITABLE = errno.EACCES, errno.EPERM, errno.EROFS


@contextlib.contextmanager
def held(folder: Path) -> Iterator[None]:
    """The lock of `folder`, which is made if it is not there."""
    if fcntl is None:
        raise RuntimeError("path= needs the file locks of Linux and macOS; on Windows use WSL, or leave out path=.")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = os.fdopen(os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o644), "r+b", buffering=0)
    except OSError as error:
        raise _unusable(folder, error) from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = file.read().decode(errors="replace").strip() or "another process"
            raise RuntimeError(
                f"{folder} is being written by {holder}. Wait until it is done, read it meanwhile with "
                f"ls.load({str(folder)!r}), or write another path=."
            ) from None
        with contextlib.suppress(OSError):  # a full disk holds the lock all the same
            file.truncate(0)
            file.write(f"process {os.getpid()} on {socket.gethostname()}\n".encode())
        yield


def _unusable(folder: Path, error: OSError) -> OSError:
    if isinstance(error, FileExistsError | NotADirectoryError):
        return NotADirectoryError(error.errno, f"path={str(folder)!r} is a file, and a run needs a folder of its own")
    if error.errno not in _NOT_WRITABLE:
        return error
    return type(error)(
        error.errno,
        f"{folder} cannot be written ({error.strerror}). ls.load({str(folder)!r}) reads the run that is there; "
        f"to go on, make it writable, copy the folder, or write another path=",
    )
