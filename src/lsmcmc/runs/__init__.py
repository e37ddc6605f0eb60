"""A run on disk: draws in a Zarr store, state in checkpoints, and going on from them.

saving.py      `ls.sample(…, path=)`: what happens between compiled calls
loading.py     `ls.load`
identity.py    what makes a run the run that it is; jaxprs.py: what a function computes, as a hash
record.py      run.json
moment.py      one moment of a run, to and from checkpoints
checkpoint.py  a checkpoint, one file; structure.py: pytrees as JSON and arrays
store.py       draws in chunks; zarrays.py: arrays of a Zarr store
lock.py        one process at a time; stops.py: SIGTERM; files.py: whole or not there
"""

from lsmcmc.runs.loading import load
from lsmcmc.runs.record import RunWarning
from lsmcmc.runs.saving import sample

__all__ = ["RunWarning", "load", "sample"]
