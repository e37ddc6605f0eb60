"""How fast and in how much memory a file larger than memory is sampled: the paper's network on MNIST, repeated on disk.

    python examples/streaming.py make FOLDER GIGABYTES    writes X.npy and y.npy
    python examples/streaming.py measure FOLDER           prints JSON

Steps of the streamed file and of its first 60,000 rows in memory alternate, each going on where it was. The anonymous
memory is that of the process while it streams, before anything is loaded.
"""

import json
import os
import platform
import statistics
import sys
import threading
from pathlib import Path

import jax
import numpy as np

import lsmcmc as ls

STEPS, ROUNDS, PART = 1_000, 5, 60_000
PLAN = ls.Minibatch(100, "blocks")


def make(folder: Path, gigabytes: float) -> None:
    """MNIST's training images, normalised, over and over."""
    X, y = ls.data.mnist().train
    repeats = max(1, round(gigabytes * 1e9 / X.nbytes))
    whole = np.lib.format.open_memmap(folder / "X.npy", "w+", X.dtype, (repeats * len(X), *X.shape[1:]))
    for k in range(repeats):
        whole[k * len(X) : (k + 1) * len(X)] = X
    whole.flush()
    np.save(folder / "y.npy", np.tile(y, repeats))


class AnonymousMemory:
    """The most that this process had, in bytes, as Linux counts it."""

    def __enter__(self) -> "AnonymousMemory":
        self.peak, self._stop = 0, threading.Event()
        self._watching = threading.Thread(target=self._watch)
        self._watching.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        self._watching.join()

    def _watch(self) -> None:
        while not self._stop.wait(0.02):
            lines = Path("/proc/self/status").read_text().splitlines()
            kilobytes = next(int(line.split()[1]) for line in lines if line.startswith("RssAnon"))
            self.peak = max(self.peak, 1024 * kilobytes)


class Chain:
    """A run of the network, a piece at a time."""

    def __init__(self, data: object):
        model = ls.models.mnist_cnn()
        self.posterior = ls.Posterior(model.log_likelihood, model.log_prior, data)
        self.where = {"position": model.init(jax.random.key(0))}

    def steps(self, num: int) -> ls.Run:
        """Go on."""
        sampler = ls.ls_sgld(1e-7, sigma=1.0)
        options = {"num_draws": 1, "thin": num, "keep": "last", "gradient": PLAN}
        run = ls.sample(sampler, self.posterior, **options, **self.where)
        self.where = {"state": run.state}
        return run


def measure(folder: Path) -> dict[str, object]:
    """Both rates, their ratio round by round, and memory."""
    X, y = (np.load(folder / name, mmap_mode="r") for name in ("X.npy", "y.npy"))
    streamed = Chain(ls.data.stream((folder / "X.npy", folder / "y.npy"), num_examples=len(y)))
    with AnonymousMemory() as memory:
        streamed.steps(STEPS)
    in_memory = Chain((np.array(X[:PART]), np.array(y[:PART])))
    in_memory.steps(100)
    pairs = [[STEPS / chain.steps(STEPS).seconds for chain in (streamed, in_memory)] for _ in range(ROUNDS)]
    ratios = [a / b for a, b in pairs]
    return {
        "file, GB": os.path.getsize(folder / "X.npy") / 1e9,
        "machine's memory, GB": os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 1e9,
        "anonymous memory, GB": memory.peak / 1e9,
        "streamed, steps/s": statistics.median(a for a, _ in pairs),
        "in memory, steps/s": statistics.median(b for _, b in pairs),
        "ratio, median": statistics.median(ratios),
        "ratio, least and most": [min(ratios), max(ratios)],
        "rounds": ROUNDS,
        "steps each": STEPS,
        "device": str(jax.devices()[0]),
        "cores": os.cpu_count(),
        "host": platform.machine(),
        "jax": jax.__version__,
        "lsmcmc": ls.__version__,
    }


if __name__ == "__main__":
    command, where, *more = sys.argv[1:]
    if command == "make":
        make(Path(where), float(more[0]))
    else:
        print(json.dumps(measure(Path(where)), indent=2))
