"""Finished parts of a long experiment on disk, so that a killed one goes on with the part that it was at."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import lsmcmc

Arrays = dict[str, NDArray[Any]]


class Parts:
    """Arrays by the name of the part that made them. Without a folder nothing is kept.

    >>> Parts().get("a", lambda: {"x": np.arange(3)})["x"].tolist()
    [0, 1, 2]
    """

    def __init__(self, folder: Path | None = None):
        self.folder = folder

    @staticmethod
    def of(out: Path, name: str, *, quick: bool, seed: int) -> "Parts":
        """Those of one experiment at one size and seed, by this version of the library."""
        size = "quick" if quick else "full"
        return Parts(out / f".{name}-parts" / f"{lsmcmc.__version__}-{size}-{seed}")

    def get(self, name: str, make: Callable[[], Arrays]) -> Arrays:
        """The part if it was finished before, else made now and kept: whole or absent, whenever it is killed."""
        if self.folder is None:
            return make()
        path, scratch = self.folder / f"{name}.npz", self.folder / f".{name}-new.npz"
        if path.is_file():
            with np.load(path, allow_pickle=False) as held:
                return dict(held)
        made = make()
        self.folder.mkdir(parents=True, exist_ok=True)
        np.savez(scratch, **made)  # type: ignore[arg-type]  # its own flag is read as one of the arrays
        os.replace(scratch, path)
        return made

    def forget(self) -> None:
        """The experiment is finished: its parts of all sizes, seeds and versions go."""
        if self.folder is not None:
            shutil.rmtree(self.folder.parent, ignore_errors=True)
