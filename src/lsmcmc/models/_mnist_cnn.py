"""The paper's convolutional network for MNIST."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PyTree, Shaped

from lsmcmc import _checks
from lsmcmc.models._priors import gamma_prior

_IMAGE = (28, 28, 1)
_KERNELS = {"conv1": (5, 5, 1, 20), "conv2": (5, 5, 20, 20), "fc": (320, 128), "out": (128, 10)}
_AS_IN_PYTORCH = {4: (3, 2, 0, 1), 2: (1, 0), 1: (0,)}  # axes by rank: (out, in, h, w), (out, in), (out)
_PREDICT_ROWS = 100  # images in memory at once: more are slower, their windows do not fit the cache

AnyArray = Array | np.ndarray
Position = dict[str, dict[str, Float[Array, "..."]]]


class MnistCNN(eqx.Module):
    """The network and its prior, see `mnist_cnn`.

    >>> MnistCNN().axes["conv1"]
    {'kernel': (3, 2, 0, 1), 'bias': (0,)}
    """

    prior: Callable[[PyTree], Float[Array, ""]]
    dense_relu: bool = eqx.field(static=True)

    def __init__(self, prior: Any = None, *, dense_relu: bool = False):
        prior = gamma_prior(rate=1.0, scale=5e-4) if prior is None else prior
        self.prior = _checks.function("prior", prior, "(position)")
        self.dense_relu = bool(dense_relu)

    @property
    def axes(self) -> dict[str, dict[str, tuple[int, ...]]]:
        """For `Laplacian(axes=)`: each tensor laid out in PyTorch's order (out, in, h, w) or (out, in)."""
        return {
            layer: {"kernel": _AS_IN_PYTORCH[len(shape)], "bias": _AS_IN_PYTORCH[1]}
            for layer, shape in _KERNELS.items()
        }

    def init(self, key: Array) -> Position:
        """A start as PyTorch's: kernels and biases uniform on ±1/√fan_in."""
        keys = jax.random.split(key, len(_KERNELS))
        return {layer: _uniform(k, shape) for k, (layer, shape) in zip(keys, _KERNELS.items(), strict=True)}

    def logits(self, position: Position, X: Shaped[AnyArray, "B ..."]) -> Float[Array, "B 10"]:
        """The ten class scores of each image, before the softmax."""
        if jnp.shape(X)[1:] != _IMAGE:
            raise ValueError(
                f"images must have shape (B, 28, 28, 1), got {jnp.shape(X)}. Write X.reshape(-1, 28, 28, 1)."
            )
        x = jnp.asarray(X, position["conv1"]["kernel"].dtype)
        x = jax.nn.relu(_convolve_and_pool(x, **position["conv1"]))
        x = jax.nn.relu(_convolve_and_pool(x, **position["conv2"]))
        x = _dense(_as_rows(x), **position["fc"])
        return _dense(jax.nn.relu(x) if self.dense_relu else x, **position["out"])

    def log_likelihood(
        self, position: Position, batch: tuple[Shaped[AnyArray, "B ..."], Int[AnyArray, " B"]]
    ) -> Float[Array, " B"]:
        """The log softmax at the label, one value per image."""
        X, y = batch
        log_p = jax.nn.log_softmax(self.logits(position, X))
        return jnp.sum(log_p * _one_hot(y, log_p), axis=-1)

    def log_prior(self, position: Position) -> Float[Array, ""]:
        """The prior's log density."""
        return self.prior(position)

    def predict(self, position: Position, X: Shaped[AnyArray, "B ..."]) -> Float[Array, "B 10"]:
        """The probabilities of the ten classes for each image, 100 in memory at a time."""

        def one(image: Array) -> Array:
            return jax.nn.softmax(self.logits(position, image[None])[0])

        return jax.lax.map(one, jnp.asarray(X), batch_size=_PREDICT_ROWS)


def mnist_cnn(prior: Any = None, *, dense_relu: bool = False) -> MnistCNN:
    """The paper's network (§4.3), for images (B, 28, 28, 1) and labels 0 … 9.

        conv 5×5, 20 channels → max-pool 2 → ReLU → conv 5×5, 20 channels → max-pool 2 → ReLU → dense 128 → dense 10

    52,918 parameters, as a dictionary of layers with "kernel" (h, w, in, out) or (in, out) and "bias"
    (out). The 320 inputs of the first dense layer are ordered (channel, row, column), so every tensor
    is PyTorch's but for the order of its axes; `axes=model.axes` smooths each in the order in which
    the authors flatten it. As in their released code there is no ReLU between the dense layers;
    `dense_relu=True` puts one there. `prior` is a function of the position: the paper's
    `gamma_prior(rate=1.0, scale=5e-4)` unless given. Where several values of a pooling window are the
    largest, they share its gradient. A label that is no class makes the likelihood NaN, which stops a
    run at its first step.

    >>> import lsmcmc as ls
    >>> model = mnist_cnn()
    >>> position = model.init(jax.random.key(0))
    >>> position["conv2"]["kernel"].shape, sum(leaf.size for leaf in jax.tree.leaves(position))
    ((5, 5, 20, 20), 52918)
    >>> model.predict(position, jnp.zeros((2, 28, 28, 1))).sum(axis=1).round(5).tolist()
    [1.0, 1.0]
    >>> sampler = ls.ls_sgld(1e-7, sigma=0.5, axes=model.axes)
    """
    return MnistCNN(prior, dense_relu=dense_relu)


def _one_hot(y: Any, like: Float[Array, "B classes"]) -> Float[Array, "B classes"]:
    one = jax.nn.one_hot(y, like.shape[-1], dtype=like.dtype)
    return one / one.sum(axis=-1, keepdims=True)  # 0/0 for a label that is no class, which would cost nothing


def _uniform(key: Array, shape: tuple[int, ...]) -> dict[str, Array]:
    """A layer uniform on ±1/√fan_in."""
    *rest, num_out = shape
    bound = jnp.sqrt(1 / jnp.prod(jnp.array(rest)))
    kernel, bias = jax.random.split(key)
    return {
        "kernel": jax.random.uniform(kernel, shape, float, -bound, bound),
        "bias": jax.random.uniform(bias, (num_out,), float, -bound, bound),
    }


def _convolve_and_pool(
    x: Float[Array, "B H W in"], kernel: Float[Array, "5 5 in out"], bias: Float[Array, " out"]
) -> Float[Array, "B h w out"]:
    """The maxima over 2×2 of a 5×5 convolution, as one matrix product.

    Four values that are pooled together come from one 6×6 window of the input. So the windows, at
    stride 2, are multiplied by the kernel at its four places in a window, (B h w, 36 in) × (36 in, 4 out).
    These are 44 % more multiplications than needed, and yet on a CPU this takes 0.6 of the time of
    25 shifted copies times the kernel, and a twentieth of that of `lax.conv` in a compiled loop.
    """
    windows = _windows(x)
    places = [(a, b) for a in (0, 1) for b in (0, 1)]
    placed = [jnp.pad(kernel, ((a, 1 - a), (b, 1 - b), (0, 0), (0, 0))) for a, b in places]
    values = windows @ jnp.stack(placed, axis=-2).reshape(windows.shape[-1], -1)
    return values.reshape(*windows.shape[:-1], len(places), -1).max(axis=-2) + bias


def _windows(x: Float[Array, "B H W in"]) -> Float[Array, "B h w window"]:
    """The 6×6 windows of x at stride 2, each as one row (row, column, channel): three by three blocks of 2×2."""
    batch, height, width, channels = x.shape
    h, w = height // 2 - 2, width // 2 - 2
    blocks = x.reshape(batch, height // 2, 2, width // 2, 2, channels).transpose(0, 1, 3, 2, 4, 5)
    wide = jnp.concatenate([blocks[:, :, j : j + w] for j in range(3)], axis=4)
    square = jnp.concatenate([wide[:, i : i + h] for i in range(3)], axis=3)
    return square.reshape(batch, h, w, 36 * channels)


def _as_rows(x: Float[Array, "B h w c"]) -> Float[Array, "B features"]:
    """Each image as one row in PyTorch's order (channel, row, column)."""
    return x.transpose(0, 3, 1, 2).reshape(x.shape[0], -1)


def _dense(
    x: Float[Array, "B in"], kernel: Float[Array, "in out"], bias: Float[Array, " out"]
) -> Float[Array, "B out"]:
    return x @ kernel + bias
