"""`ls.load`: the run in a folder, without the model and without writing anything."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jaxtyping import PyTree

from lsmcmc.keeping import Keep, Moments
from lsmcmc.recording import Recording
from lsmcmc.run import Run
from lsmcmc.runs import checkpoint, moment, record, structure
from lsmcmc.runs.checkpoint import Content
from lsmcmc.runs.store import Store
from lsmcmc.runs.zarrays import Column


@dataclass(frozen=True)
class Absent:
    """In place of the target of a run that was loaded."""

    path: Path
    fixed: PyTree


def load(path: Any) -> Run:
    """The run in the folder `path`, as far as it is saved, also while another process makes it.

    Nothing is written, and nothing in the folder is ever run. The model is not there: `predict` and `summary` work,
    `to_arviz(log_likelihood=True)` does not. Positions of a class of your own come back as dicts of its fields.

    >>> import tempfile
    >>> import jax.numpy as jnp, lsmcmc as ls
    >>> folder = tempfile.mkdtemp() + "/run"
    >>> target = ls.Target(lambda x: -0.5 * jnp.sum(x**2))
    >>> run = ls.sample(ls.sgld(0.1), target, jnp.zeros(3), num_draws=10, path=folder)
    >>> load(folder).draws.shape
    (1, 10, 3)
    """
    folder = Path(path)
    if not (folder / record.NAME).exists() and not checkpoint.names(folder / "checkpoints"):
        raise FileNotFoundError(f"there is no run in {folder}: it has no {record.NAME}.")
    record.read(folder)  # refuses a newer format
    search = moment.newest(folder)
    if search.content is None:
        raise ValueError(
            f"{folder} has no whole checkpoint{' left' if search.said else ' yet'}, so there is nothing to load. "
            f"The ls.sample(…, path=) that began it begins again."
        )
    if search.said:
        search.say()
    return _run(folder, search.content)


def _run(folder: Path, content: Content) -> Run:
    about = content.small
    weighted, rank = about.get("weighted", False), about.get("rank", 0)
    keep = Keep(None, Moments(weighted=weighted, rank=rank) if about["kind"] == "moments" else None)
    store = _store(folder, content) if "columns" in about else None
    state = content.parts["state"].decoded(on_device=True)
    target = Absent(folder, _fixed(folder))
    recording = Recording(target, keep, store, about["chains"], about["thin"], state)
    sums = moment.put_back(content, recording)
    return recording.run(sums)


def _store(folder: Path, content: Content) -> Store:
    about = content.small
    columns = [Column(**{**column, "shape": tuple(column["shape"])}) for column in about["columns"]]
    store = Store(
        folder / "draws.zarr",
        columns,
        about["chains"],
        about["each"],
        lambda arrays: structure.decode(about["layout"], arrays),
        about["layout"],
    )
    store.hold(about["num_draws"], content.parts["tail"].arrays())
    return store


def _fixed(folder: Path) -> PyTree:
    path = folder / "fixed.arrays"
    return checkpoint.read(path).parts["fixed"].decoded(on_device=True) if path.exists() else None
