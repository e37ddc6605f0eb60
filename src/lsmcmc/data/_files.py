"""What files say about themselves: their format, by their first bytes, their size and their time."""

from datetime import UTC, datetime
from pathlib import Path

from lsmcmc.data._libsvm import is_row

_MAGIC = {b"\x93NUMPY": "npy", b"PAR1": "parquet", b"ARROW1": "arrow"}
_HINTS = {
    b"PK\x03\x04": "an .npz archive or a zip file; save each array with numpy.save",
    b"\x1f\x8b": "compressed by gzip; unzip it",
    b"\xff\xff\xff\xff": "an Arrow stream, which has no random access; write an Arrow file (pyarrow.ipc.new_file)",
}
_FIRST_LINE = 2**16  # bytes


def format_of(path: Path) -> str:
    """One of npy, parquet, arrow and libsvm."""
    if path.is_dir():
        raise ValueError(f"{path} is a folder; of .npy files write their paths, such as ('X.npy', 'y.npy').")
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}.")
    with path.open("rb") as file:
        start = file.read(_FIRST_LINE)
    for magic, name in _MAGIC.items():
        if start.startswith(magic):
            return name
    if is_row(start.partition(b"\n")[0].rstrip(b"\r")):
        return "libsvm"
    hint = next((hint for magic, hint in _HINTS.items() if start.startswith(magic)), None)
    raise ValueError(
        f"{path.name} is {hint}."
        if hint
        else f"{path.name} is no .npy, Parquet, Arrow or LIBSVM file: it starts with {start[:20]!r}."
    )


def file_identity(path: Path) -> dict[str, str | int]:
    """Size in bytes, and when it was changed last."""
    status = path.stat()
    changed = datetime.fromtimestamp(status.st_mtime_ns // 10**9, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    return {
        f"{path.name}, bytes": status.st_size,
        f"{path.name}, changed": f"{changed}.{status.st_mtime_ns % 10**9:09d}Z",
    }
