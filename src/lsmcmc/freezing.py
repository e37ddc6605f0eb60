"""Sampling some leaves of a position while the others stay as they are: last layers, frozen backbones."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
from jax.tree_util import keystr
from jaxtyping import PyTree


class Completed(eqx.Module):
    """`fn` of the whole position, as a function of the sampled leaves: the others are held here, as data."""

    fn: Callable[..., Any]
    fixed: PyTree

    def __call__(self, position: PyTree, *rest: Any) -> Any:
        """Fn at the position put together again."""
        return self.fn(eqx.combine(position, self.fixed), *rest)


def partition(position: PyTree, mask: PyTree) -> tuple[PyTree, PyTree]:
    """The sampled leaves and the fixed ones, each with None where the other has a leaf."""
    for path, leaf in jax.tree_util.tree_leaves_with_path(mask):
        if not isinstance(leaf, bool):
            raise TypeError(
                f"trainable{keystr(path)} must be True (sampled) or False (fixed), got {leaf!r}. Write one for each "
                "branch of the position, such as {'body': False, 'head': True}, or jax.tree.map(is_sampled, position)."
            )
    try:
        sampled, fixed = eqx.partition(position, mask)
    except (ValueError, TypeError) as error:
        raise ValueError(
            f"trainable is no prefix of the position. trainable: {jax.tree.structure(mask)}, "
            f"position: {jax.tree.structure(position)}. Write True or False for each branch of the position."
        ) from error
    if not jax.tree.leaves(sampled):
        raise ValueError("trainable is False everywhere, so there is nothing to sample; write True for some branch.")
    return sampled, fixed


def completed(fn: Callable[..., Any], target: Any) -> Callable[..., Any]:
    """A function of whole positions as one of the positions that `target` has."""
    return fn if target.fixed is None else Completed(fn, target.fixed)
