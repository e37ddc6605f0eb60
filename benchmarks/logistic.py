"""`blr` and `chains`: logistic regression on a3a, batch 5, every draw kept."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

import lsmcmc as ls
from benchmarks import peers, problems
from benchmarks.timing import Contender, Size, compared, gate, interleaved, table

_TOLERANCE = 0.05  # of the mean of U over half a short chain


def blr(size: Size) -> dict[str, Any]:
    """One chain: steps a second."""
    h, expected = problems.step_size(size.tiny), problems.expected_level(0.0, size.tiny)
    with _others(size) as others:
        plain = [problems.ours("lsmcmc SGLD", ls.sgld(h), size), problems.blackjax_sgld("blackjax SGLD", size), *others]
        rows = compared(plain, expected, _TOLERANCE, size)
    smooth = problems.ours("lsmcmc LS-SGLD", ls.ls_sgld(h, sigma=1.0), size)
    errors = gate([smooth], problems.expected_level(1.0, size.tiny), _TOLERANCE)
    seconds = interleaved([smooth, problems.blackjax_sgld("blackjax SGLD", size)], size)
    return {"unit": "one step", "rows": rows, "smoothed": table(seconds, smooth.name, errors)}


def chains(size: Size) -> dict[str, Any]:
    """1, 10 and 100 chains: seconds of a step of all of them."""
    h, expected = problems.step_size(size.tiny), problems.expected_level(0.0, size.tiny)
    found = {}
    for number in (1, 2) if size.tiny else (1, 10, 100):
        pair = [
            problems.ours("lsmcmc SGLD", ls.sgld(h), size, number),
            problems.blackjax_sgld("blackjax SGLD, vmapped", size, number),
        ]
        found[str(number)] = compared(pair, expected, _TOLERANCE, size)
    return {"unit": "one step of all chains", "by_chains": found}


@contextmanager
def _others(size: Size) -> Iterator[list[Contender]]:
    """The peers of other environments, where they are installed."""
    with (
        tempfile.TemporaryDirectory() as folder,
        peers.installed(*([] if size.tiny else ["torch", "old_jax"])) as there,
    ):
        data = str(Path(folder) / "a3a.npz")
        X, y = problems.a3a(size.tiny)
        np.savez(data, X=X, y=y)
        setting = {"data": data, "step_size": problems.step_size(size.tiny), "batch": problems.BATCH}
        names = {"torch": ["posteriors"], "old_jax": ["sgmcmcjax", "jax_sgmc"]}
        yield [there[where].contender(job, job=job, **setting) for where in there for job in names[where]]
