"""Find a file: in the folder LSMCMC_DATA names, else in the user's cache, else download it there, once."""

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

FOLDER_VARIABLE = "LSMCMC_DATA"
CACHE_VARIABLE = "LSMCMC_CACHE"
_CHUNK_BYTES = 1 << 16


@dataclass(frozen=True)
class PublishedFile:
    """A file that has one right content.

    `name` is its place below the folder or the cache (a3a/a3a), `checksum` is `algorithm:hexdigest`
    for any algorithm of hashlib, `urls` are tried in order.
    """

    name: str
    checksum: str
    urls: tuple[str, ...]


def fetch(file: PublishedFile) -> bytes:
    """The content of `file`, its checksum verified on every call.

    A folder named by LSMCMC_DATA is the user's: what is missing or wrong there is an error. The cache
    is ours: what is missing or corrupt there is downloaded.
    """
    folder = os.environ.get(FOLDER_VARIABLE)
    return _from_folder(file, Path(folder).expanduser()) if folder else _from_cache(file, _cache() / file.name)


def _from_folder(file: PublishedFile, folder: Path) -> bytes:
    path = folder / file.name
    if not path.is_file():
        raise FileNotFoundError(
            f"{FOLDER_VARIABLE} is {folder}, but there is no file {path}. Put {file.name} there "
            f"({file.checksum}, from {_any_of(file.urls)}), or unset {FOLDER_VARIABLE} to download it."
        )
    try:
        return _read(path, file)
    except ValueError as error:
        raise ValueError(
            f"{error} Replace it by the file from {_any_of(file.urls)}, or unset {FOLDER_VARIABLE} to download it."
        ) from None


def _from_cache(file: PublishedFile, path: Path) -> bytes:
    problems = []
    if path.is_file():
        try:
            return _read(path, file)
        except ValueError as error:
            problems.append(str(error))
    for url in file.urls:
        try:
            return _download(url, file, path)
        except (OSError, ValueError) as error:  # unreachable, refused, cut off, wrong content, cache not writable
            problems.append(f"{url}: {error}")
    reasons = "".join(f"\n  {problem}" for problem in problems) or " no mirror is given."
    raise ConnectionError(
        f"Could not download {file.name}:{reasons}\n"
        f"Without a network put the file at {path}, or put it at {file.name} in a folder of your own and set "
        f"{FOLDER_VARIABLE} to that folder ({file.checksum}). {CACHE_VARIABLE} moves the cache."
    )


def _download(url: str, file: PublishedFile, path: Path) -> bytes:
    """One attempt. A file gets its name in one step, after its check: nobody ever sees a part of it there.

    `pooch.retrieve` would do, but for three things: it logs to stderr, it leaves a file that its owner
    alone can read, and its checksum is that of the bytes sent, not of what is in a compressed file.
    """
    import pooch

    path.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=path.parent, prefix=f".{path.name}-") as scratch:
        arrived = Path(scratch) / path.name
        pooch.HTTPDownloader(chunk_size=_CHUNK_BYTES)(url, str(arrived), None)
        content = _read(arrived, file, source="what was sent")
        os.replace(arrived, path)
    return content


def _read(path: Path, file: PublishedFile, source: str = "") -> bytes:
    """The content of `path`. A file that is published compressed would be unpacked here, before its check."""
    content = path.read_bytes()
    algorithm = file.checksum.partition(":")[0]
    found = f"{algorithm}:{hashlib.new(algorithm, content, usedforsecurity=False).hexdigest()}"
    if found != file.checksum:
        raise ValueError(
            f"{source or path} is not the published {file.name} (truncated, corrupted, or another version): "
            f"{len(content):,} bytes with checksum {found}, it should be {file.checksum}."
        )
    return content


def _cache() -> Path:
    chosen = os.environ.get(CACHE_VARIABLE)
    if chosen:
        return Path(chosen).expanduser()
    import pooch

    return Path(pooch.os_cache("lsmcmc"))


def _any_of(urls: tuple[str, ...]) -> str:
    return " or ".join(urls)
