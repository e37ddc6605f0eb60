"""Find a file: in the folder LSMCMC_DATA names, else in the user's cache, else download it there, once."""

import contextlib
import hashlib
import os
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from lsmcmc.data._bar import DownloadBar

FOLDER_VARIABLE = "LSMCMC_DATA"
CACHE_VARIABLE = "LSMCMC_CACHE"
_CHUNK_BYTES = 1 << 16
_GZIP_MAGIC = b"\x1f\x8b"


@dataclass(frozen=True)
class PublishedFile:
    """A file that has one right content.

    `name` is its place below the folder or the cache (a3a/a3a), `checksum` is `algorithm:hexdigest`
    for any algorithm of hashlib, `urls` are tried in order. Where the name ends in .gz, the content
    and its checksum are those of the unzipped file, and the file may lie unzipped under the name
    without .gz: the same content can be zipped in many ways, and browsers and servers unzip unasked.
    """

    name: str
    checksum: str
    urls: tuple[str, ...]

    @classmethod
    def at(cls, mirrors: Sequence[str], name: str, checksum: str) -> "PublishedFile":
        """The file whose last name is below each of the web folders `mirrors`."""
        if isinstance(mirrors, str):
            raise TypeError(f"mirrors must be a tuple of addresses, got the string {mirrors!r}. Write ({mirrors!r},).")
        urls = tuple(f"{mirror.rstrip('/')}/{Path(name).name}" for mirror in mirrors)
        return cls(name, checksum, urls)

    @property
    def names(self) -> tuple[str, ...]:
        """Where it may lie."""
        return (self.name, self.name.removesuffix(".gz")) if self.gzipped else (self.name,)

    @property
    def gzipped(self) -> bool:
        """Whether it is published gzipped."""
        return self.name.endswith(".gz")

    @property
    def identity(self) -> str:
        """The checksum, and what of."""
        return f"{self.checksum} of the unzipped content" if self.gzipped else self.checksum


class ChecksumError(ValueError):
    """A file whose content is not what was published."""


def fetch(file: PublishedFile) -> bytes:
    """The content of `file`, its checksum verified on every call.

    A folder named by LSMCMC_DATA is the user's: what is missing or wrong there is an error. The cache
    is ours: what is missing or corrupt there is downloaded.
    """
    folder = os.environ.get(FOLDER_VARIABLE)
    return _from_folder(file, Path(folder).expanduser()) if folder else _from_cache(file, cache_folder())


def _from_folder(file: PublishedFile, folder: Path) -> bytes:
    path = next((folder / name for name in file.names if (folder / name).is_file()), None)
    if path is None:
        raise FileNotFoundError(
            f"{FOLDER_VARIABLE} is {folder}, but there is no file {folder / file.name}. "
            f"Put {_any_name(file)} there ({file.identity}, from {_any_of(file.urls)}), "
            f"or unset {FOLDER_VARIABLE} to download it."
        )
    try:
        return _read(path, file)
    except ValueError as error:
        raise ChecksumError(
            f"{error} Replace it by the file from {_any_of(file.urls)}, or unset {FOLDER_VARIABLE} to download it."
        ) from None


def _from_cache(file: PublishedFile, cache: Path) -> bytes:
    path, problems = cache / file.name, []
    for place in (cache / name for name in file.names):
        if place.is_file():
            try:
                return _read(place, file)
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
        f"Without a network put the file at {path}, or put it at {_any_name(file)} in a folder of your own "
        f"and set {FOLDER_VARIABLE} to that folder ({file.identity}). {CACHE_VARIABLE} moves the cache."
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
        with DownloadBar(f"downloading {file.name}") as bar:
            pooch.HTTPDownloader(progressbar=bar, chunk_size=_CHUNK_BYTES)(url, str(arrived), None)
        content = _read(arrived, file, source="what was sent")
        os.replace(arrived, path)
    return content


def _read(path: Path, file: PublishedFile, source: str = "") -> bytes:
    """The content of `path`, unzipped, if it is the published one."""
    stored = path.read_bytes()
    zipped = file.gzipped and stored.startswith(_GZIP_MAGIC)
    content = _unzip(stored) if zipped else stored
    algorithm = file.checksum.partition(":")[0]
    found = f"{algorithm}:{hashlib.new(algorithm, content, usedforsecurity=False).hexdigest()}"
    if found != file.checksum:
        raise ChecksumError(
            f"{source or path} is not the published {file.name} (truncated, corrupted, or another version): "
            f"{len(content):,} {'unzipped ' if zipped else ''}bytes with checksum {found}, "
            f"it should be {file.checksum}."
        )
    return content


def _unzip(stored: bytes) -> bytes:
    """What can be unzipped. Of a damaged file that is the part before the damage, which has another checksum."""
    unzipper, pieces = zlib.decompressobj(wbits=16 + zlib.MAX_WBITS), []
    with contextlib.suppress(zlib.error):
        for start in range(0, len(stored), _CHUNK_BYTES):
            pieces.append(unzipper.decompress(stored[start : start + _CHUNK_BYTES]))
    return b"".join(pieces)


def cache_folder() -> Path:
    """Where downloads, and programs that the command line compiled, are kept."""
    chosen = os.environ.get(CACHE_VARIABLE)
    if chosen:
        return Path(chosen).expanduser()
    import pooch

    return Path(pooch.os_cache("lsmcmc"))


def _any_of(urls: tuple[str, ...]) -> str:
    return " or ".join(urls)


def _any_name(file: PublishedFile) -> str:
    return " or, unzipped, ".join(file.names)
