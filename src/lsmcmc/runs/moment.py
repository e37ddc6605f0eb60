"""One moment of a run, as checkpoints hold it: taken from the run, found again in its folder, put back into it."""

import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np

from lsmcmc.keeping import Totals
from lsmcmc.recording import Recording
from lsmcmc.runs import checkpoint, structure
from lsmcmc.runs.checkpoint import Content, Part, Torn
from lsmcmc.runs.record import RunWarning
from lsmcmc.runs.store import Store

_COUNTS = "num_draws", "num_steps", "step_size", "seconds", "compile_seconds"


def save(folder: Path, recording: Recording, sums: Any, store: Store | None, described: dict[str, Any]) -> None:
    """Where the run is now, as a new checkpoint; `described` is what `ls.load` needs to know besides."""
    small = {**described, **{name: getattr(recording, name) for name in _COUNTS}}
    parts = {
        "state": recording.state,
        "sums": sums,
        "totals": recording.totals,
        "held": {} if recording.spread is None else recording.spread.held,
        "tail": [] if store is None else store.tail(recording.num_draws),
    }
    checkpoint.write(folder / "checkpoints", small, parts)


@dataclass(frozen=True)
class Search:
    """The newest whole checkpoint, None where there is none; the torn ones after it, and what to say of them."""

    content: Content | None
    name: str
    torn: list[Path]
    said: list[str]

    def say(self) -> None:
        """Which were torn, and what was taken."""
        taken = (
            "There is none before: the run starts again"
            if self.content is None
            else f"Took the one before, {self.name}"
        )
        for line in self.said:
            warnings.warn(f"{line} {taken}.", RunWarning, stacklevel=5)


def newest(folder: Path, usable: Any = lambda content: None) -> Search:
    """Looks back until one is whole and `usable` has nothing to say against it."""
    torn: list[Path] = []
    said: list[str] = []
    lost: list[str] = []
    for path in reversed(checkpoint.names(folder / "checkpoints")):
        try:
            content = checkpoint.read(path)
        except FileNotFoundError:  # a newer one has taken its place
            return newest(folder, usable)
        except Torn as error:
            torn.append(path)
            said.append(str(error))
            continue
        objection = usable(content)
        if objection is None:
            return Search(content, path.name, torn, said)
        what, which = objection
        lost.append(f"{what}, so {which} are lost")
        torn.append(path)
        said.append(f"{what}; {which} are made again.")
    if lost:
        raise ValueError(
            f"{lost[0]}: no checkpoint is from before them. Put the file back from a copy, or write another "
            f"path=. ls.load({str(folder)!r}) reads the other chunks, and .state to go on from."
        )
    return Search(None, "", torn, said)


def put_back(content: Content, recording: Recording, sums: Any = None) -> Any:
    """The counts and moments into a recording; gives the sums of the block that is not full.

    `sums` of the same run, empty, say what the nodes are that come back as dicts otherwise.
    """
    for name in _COUNTS:
        setattr(recording, name, content.small[name])
    totals, held = content.parts["totals"], content.parts["held"]
    if totals.leaves:
        like = None if sums is None else Totals(0, 0, sums.mean, sums.squares)  # type: ignore[arg-type]
        recording.totals = _owned(totals, like)
    if recording.spread is not None:
        recording.spread.held = _owned(held, None if sums is None else dict.fromkeys(held.decoded(), sums.mean))
    part = content.parts["sums"]
    return part.decoded(on_device=True) if sums is None else _in(part.arrays(on_device=True), sums)


def _owned(part: Part, like: Any) -> Any:
    """In memory of its own."""
    arrays = [np.array(array) for array in part.arrays()]
    return structure.decode(part.tree, arrays) if like is None else _in(arrays, like)


def _in(leaves: list[Any], like: Any) -> Any:
    return jax.tree.unflatten(jax.tree.structure(like), leaves)


def carry_of(content: Content, like: Any) -> Any:
    """The state in the structure of `like`, and on its devices."""
    found = content.parts["state"].arrays(on_device=True)
    return _in([_placed(leaf, other) for leaf, other in zip(found, jax.tree.leaves(like), strict=True)], like)


def _placed(leaf: Any, like: Any) -> Any:
    if leaf.shape != like.shape or leaf.dtype != like.dtype:
        raise ValueError(f"the checkpoint has {leaf.dtype}{leaf.shape} where the sampler has {like.dtype}{like.shape}.")
    return jax.device_put(leaf, like.sharding) if len(like.sharding.device_set) > 1 else leaf
