"""Laplacian smoothing for optimisers, as optax transformations; with privacy too."""

from typing import TYPE_CHECKING, Any

from jaxtyping import Array

from lsmcmc import _checks
from lsmcmc.preconditioners import Laplacian

if TYPE_CHECKING:
    import optax


def laplacian_smoothing(
    sigma: Any = 1.0, scope: str = "leaf", *, axes: Any = None, order: int = 1
) -> "optax.GradientTransformation":
    """G ↦ A_σ⁻¹g: Laplacian smoothing gradient descent (LSSGD, Osher et al. 2018) in any optax chain.

    The options are those of `ls.Laplacian`. LS-Adam is `optax.chain(laplacian_smoothing(1.0), optax.adam(1e-3))`; so
    with `optax.rmsprop`, and with momentum by `optax.sgd(0.1, 0.9)`: what comes after sees the smoothed gradient.

    >>> import optax, jax.numpy as jnp
    >>> lssgd = optax.chain(laplacian_smoothing(1.0), optax.sgd(0.1))
    >>> updates, _ = lssgd.update(jnp.array([3.0, 0.0]), lssgd.init(jnp.zeros(2)))
    >>> [round(float(u), 6) for u in updates]
    [-0.2, -0.1]
    """
    import optax

    smoother = Laplacian(sigma, scope, axes=axes, order=order)

    def update(updates: Any, params: Any = None) -> Any:
        del params  # smoothing looks at the gradient alone
        return smoother.apply((), smoother.apply_transpose((), updates))

    return optax.stateless(update)


def dp_lssgd(
    learning_rate: Any,
    *,
    clip: Any,
    noise_multiplier: Any,
    key: Array,
    sigma: Any = 1.0,
    scope: str = "leaf",
    axes: Any = None,
    order: int = 1,
) -> "optax.GradientTransformation":
    """Differentially private LSSGD (Wang, Gu, Boedihardjo, Wang, Barekat and Osher 2020), on per-example gradients.

        w ← w − η A_σ⁻¹ (1/B)(Σ_{i in batch} gᵢ min(1, C/‖gᵢ‖) + N(0, (zC)² I)),   C = `clip`, z = `noise_multiplier`

    `update` takes gradients with a leading axis of examples, minus `posterior.log_likelihood_gradients(x, batch)`;
    ‖gᵢ‖ is over all leaves. σ = 0 is DP-SGD (Abadi et al. 2016, Alg. 1). Smoothing comes after the noise and costs no
    privacy: `ls.privacy.epsilon` says what the run gives away. The options of smoothing are those of `ls.Laplacian`.
    A key is for one run: the same key is the same noise.

    >>> import jax, jax.numpy as jnp, optax
    >>> optimiser = dp_lssgd(0.5, clip=1.0, noise_multiplier=1.0, key=jax.random.key(0), sigma=1.0)
    >>> x = jnp.zeros(3)
    >>> updates, state = optimiser.update(jnp.ones((8, 3)), optimiser.init(x))
    >>> optax.apply_updates(x, updates).shape
    (3,)
    """
    import optax

    clip, noise = _checks.hyper("clip", clip), _checks.hyper("noise_multiplier", noise_multiplier)
    if not _checks.is_traced(clip) and float(clip) == 0:
        raise ValueError("clip must be above zero, got 0: gradients of no length say nothing.")
    return optax.chain(
        optax.contrib.differentially_private_aggregate(clip, noise, key),
        laplacian_smoothing(sigma, scope, axes=axes, order=order),
        optax.sgd(learning_rate),
    )
