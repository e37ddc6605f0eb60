"""A file of gigabytes is sampled in the memory that was asked for: the anonymous memory of a process."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

NUM, DIM, MEMORY = 750_000, 1_000, 2**26  # 3 GB in float32

SCRIPT = """
import json, sys, threading
from pathlib import Path
import jax, jax.numpy as jnp
import numpy as np
import lsmcmc as ls

folder, num, dim, memory = Path(sys.argv[1]), *map(int, sys.argv[2:])

def sparse(name, shape):
    "Zeros that take no room on the disk."
    np.lib.format.open_memmap(folder / name, "w+", np.float32, shape)
    return folder / name

stream = ls.data.stream((sparse("X.npy", (num, dim)), sparse("y.npy", (num,))), num_examples=num, memory=memory)
posterior = ls.Posterior(
    lambda x, batch: -0.5 * (batch[1] - batch[0] @ x) ** 2, lambda x: -0.5 * jnp.sum(x**2), stream
)

def anonymous():
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("RssAnon"))

def peak(work):
    "What `work` adds at most, and what it gives."
    before, most, stop = anonymous(), [0], threading.Event()
    def watch():
        while not stop.wait(0.005):
            most[0] = max(most[0], anonymous())
    watching = threading.Thread(target=watch)
    watching.start()
    made = work()
    stop.set()
    watching.join()
    return most[0] - before, made

def sample(num_steps, gradient):
    ls.sample(ls.sgld(1e-6), posterior, jnp.zeros(dim), num_draws=1, thin=num_steps, keep="last", gradient=gradient)

found = {}
for name, plan in {"blocks": ls.Minibatch(100, "blocks"), "iid": ls.Minibatch(100)}.items():
    sample(10, plan)  # compiles, and takes what a process takes once
    found[name], _ = peak(lambda: sample(2_000, plan))
found["all rows"], _ = peak(lambda: posterior.log_density(jnp.zeros(dim)))
found["held"], held = peak(lambda: stream.read(range(100_000)))
print(json.dumps(found))
"""


@pytest.mark.slow
@pytest.mark.skipif(
    not Path("/proc/self/status").exists(), reason="Linux alone tells anonymous memory from mapped files"
)
def test_a_file_of_gigabytes_takes_the_memory_that_was_asked_for(tmp_path):
    options = [str(value) for value in (tmp_path, NUM, DIM, MEMORY)]
    done = subprocess.run([sys.executable, "-c", SCRIPT, *options], capture_output=True, text=True, check=True)
    found = json.loads(done.stdout.splitlines()[-1])
    allowed = 1.25 * MEMORY
    assert found["blocks"] < allowed
    assert found["iid"] < allowed
    assert found["all rows"] < allowed
    assert found["held"] > 3 * DIM * 100_000 > allowed  # 400 MB that are held are seen
