"""`compile`: seconds until the first step, in a process of its own, and again with other hyper-parameters."""

import json
import os
import statistics
import subprocess
import sys
from typing import Any

from benchmarks.timing import GateError, Size

_SCRIPT = """
import json, sys, time
import jax, jax.numpy as jnp
import lsmcmc as ls
from benchmarks import cnn, problems
from benchmarks.timing import FULL, TINY
tiny, what = json.loads(sys.argv[1])
if what == "a3a":
    target, x, batch = problems.posterior(tiny), jnp.zeros(problems.DIM), 5
    make = lambda h, sigma: ls.ls_sgld(h, sigma=sigma)
else:
    X, y = cnn._images(TINY if tiny else FULL)
    target, x = ls.Posterior(cnn.MODEL.log_likelihood, cnn.MODEL.log_prior, (X, y)), cnn.MODEL.init(jax.random.key(0))
    batch = 4 if tiny else cnn.BATCH
    make = lambda h, sigma: ls.ls_sgld(h, sigma=sigma, axes=cnn.MODEL.axes)

def first_step(h, sigma):
    began = time.perf_counter()
    run = ls.sample(make(h, sigma), target, x, num_draws=1, batch_size=batch, progress=False)
    return time.perf_counter() - began, run.compile_seconds

jax.block_until_ready(jnp.zeros(3) + 1)
first, compiled = first_step(1e-9, 0.5)
again, recompiled = first_step(2e-9, 1.0)
print(json.dumps({"first": first, "compile": compiled, "again": again, "compile_again": recompiled}))
"""


def compiling(size: Size) -> dict[str, Any]:
    """Medians over fresh processes; the gate is that the second call compiles nothing."""
    found = {}
    for what in ("a3a", "cnn"):
        runs = [_fresh(what, size.tiny) for _ in range(1 if size.tiny else 3)]
        found[what] = {key: statistics.median(run[key] for run in runs) for key in runs[0]}
        if found[what]["compile_again"] > 0.5 * found[what]["compile"]:
            raise GateError(f"{what}: a second call with other hyper-parameters compiled again, {found[what]}.")
    return {"unit": "seconds", "by_model": found}


def _fresh(what: str, tiny: bool) -> dict[str, float]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(["src", ".", os.environ.get("PYTHONPATH", "")])}
    arguments = [sys.executable, "-c", _SCRIPT, json.dumps([tiny, what])]
    done = subprocess.run(arguments, capture_output=True, text=True, env=environment)
    if done.returncode:
        raise RuntimeError(f"a fresh process failed: {done.stderr[-2000:]}")
    return dict(json.loads(done.stdout.splitlines()[-1]))
