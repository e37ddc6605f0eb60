"""`cnn`: a step of the paper's network on MNIST, batch 100, inside `ls.sample`, beside PyTorch by hand."""

import tempfile
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import lsmcmc as ls
from benchmarks import peers, problems
from benchmarks.timing import Contender, Size, gate, interleaved, table

BATCH, ROWS, SIGMA, STEP_SIZE = 100, 10_000, 0.5, 1e-8
MODEL = ls.models.mnist_cnn(prior=lambda position: jnp.zeros(()))


def cnn(size: Size) -> dict[str, Any]:
    """Seconds of a step, plain and smoothed."""
    batch = 4 if size.tiny else BATCH
    X, y = _images(size)
    position = MODEL.init(jax.random.key(0))
    target = ls.Posterior(MODEL.log_likelihood, MODEL.log_prior, (X, y))
    found = {}
    with tempfile.TemporaryDirectory() as folder, peers.installed(*([] if size.tiny else ["torch"])) as there:
        weights = str(Path(folder) / "weights.npz")
        np.savez(weights, X=X, y=y, **_as_in_pytorch(position))
        for name, sigma in (("SGLD", 0.0), ("LS-SGLD", SIGMA)):
            contenders = [
                Contender(f"lsmcmc {name}", _ours(target, position, sigma, batch), _value(position, X, y, batch))
            ]
            if "torch" in there:
                setting = {"weights": weights, "batch": batch, "sigma": sigma, "step_size": STEP_SIZE}
                contenders.append(there["torch"].contender(f"PyTorch {name}", job="cnn", **setting))
            errors = gate(contenders, _value(position, X, y, batch)(), 2e-3)
            found[name] = table(interleaved(contenders, size), contenders[0].name, errors)
    return {"unit": "one step", "by_sampler": found}


def _images(size: Size) -> tuple[Any, Any]:
    if size.tiny:
        rng = np.random.default_rng(0)
        return rng.random((8, 28, 28, 1)).astype(np.float32), np.arange(8, dtype=np.int32)
    X, y = ls.data.mnist().train
    return np.asarray(X[:ROWS], np.float32).reshape(-1, 28, 28, 1), np.asarray(y[:ROWS], np.int32)


def _ours(target: Any, position: Any, sigma: float, batch: int) -> Any:
    sampler = ls.ls_sgld(STEP_SIZE, sigma=sigma, axes=MODEL.axes) if sigma else ls.sgld(STEP_SIZE)

    def run(count: int) -> Any:
        settings = {"num_draws": 1, "thin": count, "batch_size": batch, "progress": False}
        return ls.sample(sampler, target, position, **settings).draws

    return problems.timed(run)


def _as_in_pytorch(position: Any) -> dict[str, Any]:
    """Tensors as (out, in, h, w) and (out, in), in the order of the layers."""
    tensors = []
    for layer in ("conv1", "conv2", "fc", "out"):
        kernel = np.asarray(position[layer]["kernel"])
        tensors += [kernel.transpose(3, 2, 0, 1) if kernel.ndim == 4 else kernel.T, np.asarray(position[layer]["bias"])]
    return {f"w{i}": np.ascontiguousarray(tensor) for i, tensor in enumerate(tensors)}


def _value(position: Any, X: Any, y: Any, batch: int) -> Any:
    """U of the first rows, and the norm of its gradient for each tensor."""

    def potential(position: Any) -> Any:
        return -MODEL.log_likelihood(position, (X[:batch], y[:batch])).sum()

    def value() -> list[float]:
        U, gradient = jax.jit(jax.value_and_grad(potential))(position)
        parts = [gradient[layer][part] for layer in ("conv1", "conv2", "fc", "out") for part in ("kernel", "bias")]
        return [float(U), *(float(jnp.linalg.norm(part.reshape(-1))) for part in parts)]

    return value
