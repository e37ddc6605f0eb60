"""Find a file: in the folder LSMCMC_DATA names, else in the user's cache, else download it there, once."""

import hashlib
import os
from pathlib import Path

FOLDER_VARIABLE = "LSMCMC_DATA"


def fetch(name: str, sha256: str, mirrors: tuple[str, ...]) -> Path:
    """The path of `name` (such as a3a/a3a), its content checked against `sha256`.

    Downloads are atomic (a partial file never has the final name), and the mirrors are tried in
    order. The cache is the user's own, by the conventions of the system.
    """
    folder = os.environ.get(FOLDER_VARIABLE)
    if folder:
        path = Path(folder) / name
        if not path.is_file():
            raise FileNotFoundError(
                f"{FOLDER_VARIABLE} is {folder}, but there is no file {path}. "
                f"Put {name} there (sha256 {sha256}), or unset {FOLDER_VARIABLE} to download it."
            )
        _check(path, sha256)
        return path
    return _download(name, sha256, mirrors)


def _check(path: Path, sha256: str) -> None:
    found = hashlib.sha256(path.read_bytes()).hexdigest()
    if found != sha256:
        raise ValueError(
            f"{path} is not the expected file: its sha256 is {found}, it should be {sha256}. "
            f"It may be truncated or another version; remove it and fetch it again."
        )


def _download(name: str, sha256: str, mirrors: tuple[str, ...]) -> Path:
    import pooch
    import requests

    folder = Path(pooch.os_cache("lsmcmc"))
    path = folder / name
    failures = []
    for url in mirrors:
        try:
            return Path(pooch.retrieve(url, known_hash=f"sha256:{sha256}", fname=path.name, path=path.parent))
        except (
            requests.RequestException,
            OSError,
            ValueError,
        ) as error:  # unreachable, unwritable, wrong content
            failures.append(f"  {url}: {error}")
    tried = "\n".join(failures)
    raise ConnectionError(
        f"could not download {name}:\n{tried}\n"
        f"Without a network, put the file at {path}, or in a folder named by {FOLDER_VARIABLE} as {name} "
        f"(sha256 {sha256})."
    )
