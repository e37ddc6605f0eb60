"""Laplacian smoothing for optimisers, as an optax transformation."""

from typing import TYPE_CHECKING, Any

from lsmcmc.preconditioners import Laplacian

if TYPE_CHECKING:
    import optax


def laplacian_smoothing(
    sigma: Any = 1.0, scope: str = "leaf", *, axes: Any = None, order: int = 1
) -> "optax.GradientTransformation":
    """G ↦ A_σ⁻¹g: Laplacian smoothing gradient descent (LSSGD, Osher et al. 2018) in any optax chain.

    The options are those of `ls.Laplacian`. LS-Adam is `optax.chain(laplacian_smoothing(1.0), optax.adam(1e-3))`.

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
