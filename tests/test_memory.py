"""A network of ten million parameters is sampled in a few copies of itself: the peak memory of a process."""

import json
import subprocess
import sys

import pytest

SCRIPT = """
import json, resource, sys
import jax, jax.numpy as jnp
import numpy as np
import lsmcmc as ls

WIDTH = 12_600  # 784·12,600 + 12,600·10 + … = 10 million

def network(x, images):
    return jnp.tanh(images @ x["in"] + x["bias"]) @ x["out"]

def log_likelihood(x, batch):
    images, labels = batch
    return jnp.take_along_axis(jax.nn.log_softmax(network(x, images)), labels[:, None], 1)[:, 0]

def log_prior(x):
    return -0.5 * sum(jnp.sum(leaf**2) for leaf in x.values())

rng = np.random.default_rng(0)
data = rng.normal(size=(500, 784)).astype(np.float32), rng.integers(0, 10, 500).astype(np.int32)
posterior = ls.Posterior(log_likelihood, log_prior, data)

def sample(width, num_draws):
    start = {"in": jnp.zeros((784, width)), "bias": jnp.zeros(width), "out": jnp.zeros((width, 10))}
    keep = {
        "moments": "moments",
        "last": "last",
        "predictions": ls.Moments(lambda x, images: jax.nn.softmax(network(x, images)), data[0][:50]),
    }[sys.argv[1]]
    run = ls.sample(ls.ls_sgld(1e-6, sigma=1.0), posterior, start, num_draws=num_draws, batch_size=32, keep=keep)
    values = run.draws if keep == "last" else run.mean()
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(values))
    return sum(leaf.size for leaf in start.values())

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

sample(10, 2)
before = peak()
size = sample(WIDTH, 6)
print(json.dumps({"size": size, "copies": (peak() - before) / (4 * size)}))
"""


@pytest.mark.slow
@pytest.mark.parametrize(("keep", "most"), [("moments", 18), ("last", 11), ("predictions", 11)])
def test_ten_million_parameters_are_sampled_in_a_few_copies_of_the_position(keep, most):
    done = subprocess.run([sys.executable, "-c", SCRIPT, keep], capture_output=True, text=True, check=True)
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["size"] >= 10_000_000
    assert found["copies"] < most


ON_DISK = """
import json, resource, sys
import jax.numpy as jnp
import lsmcmc as ls

target = ls.Target(lambda x: -0.5 * jnp.sum(x**2))

def sample(path, num_draws):
    return ls.sample(ls.sgld(0.1), target, jnp.zeros(100_000), num_draws=num_draws, chains=2, path=path)

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

sample(sys.argv[1] + "/first", 2)
before = peak()
run = sample(sys.argv[1] + "/second", 1_000)
print(json.dumps({"bytes": 4 * 2 * 100_000 * run.num_draws, "more": peak() - before}))
"""


@pytest.mark.slow
def test_draws_on_disk_need_not_fit_in_memory(tmp_path):
    done = subprocess.run([sys.executable, "-c", ON_DISK, tmp_path], capture_output=True, text=True, check=True)
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["bytes"] == 800_000_000
    assert found["more"] < 300_000_000
