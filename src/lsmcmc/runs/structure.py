"""Pytrees as JSON and plain arrays: what a checkpoint can write, and read without running anybody's code.

    encode(tree) → (description, leaves)      decode(description, leaves) → tree

A description is nested lists: leaves by number, lists, tuples and dicts as such, every other node by its class and the
names of its fields. `decode` makes this library's own classes again; those of others become dicts of their fields.
"""

import sys
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

_PLAIN: dict[type, str] = {list: "list", tuple: "tuple", dict: "dict"}


def encode(tree: PyTree) -> tuple[Any, list[Any]]:
    """The structure as JSON, and the leaves in JAX's order.

    >>> encode({"w": (1.0, 2.0), "b": None})
    ({'dict': [['b', None], ['w', {'tuple': [0, 1]}]]}, [1.0, 2.0])
    """
    leaves: list[Any] = []
    return _encode(tree, leaves), leaves


def _encode(node: Any, leaves: list[Any]) -> Any:
    if node is None:
        return None
    children, _ = jax.tree_util.tree_flatten_with_path(node, is_leaf=lambda inner: inner is not node)
    if len(children) == 1 and children[0][0] == ():
        leaves.append(node)
        return len(leaves) - 1
    named = [[_name(path[0]), _encode(child, leaves)] for path, child in children]
    if type(node) in (list, tuple):
        return {_PLAIN[type(node)]: [described for _, described in named]}
    if type(node) is dict:
        return {"dict": named}
    return {"class": f"{type(node).__module__}:{type(node).__qualname__}", "fields": named}


def _name(key: Any) -> Any:
    """What a key path calls a child: a field, a dict's key, or a place."""
    for attribute in ("name", "key", "idx"):
        if hasattr(key, attribute):
            name = getattr(key, attribute)
            return name if isinstance(name, str | int) else str(name)
    return str(key)


def decode(description: Any, leaves: list[Any]) -> PyTree:
    """The tree again.

    >>> decode({"dict": [["b", None], ["w", {"tuple": [0, 1]}]]}, [1.0, 2.0])
    {'b': None, 'w': (1.0, 2.0)}
    """
    if description is None:
        return None
    if isinstance(description, int):
        return leaves[description]
    if "list" in description:
        return [decode(child, leaves) for child in description["list"]]
    if "tuple" in description:
        return tuple(decode(child, leaves) for child in description["tuple"])
    fields = {name: decode(child, leaves) for name, child in description.get("dict", description.get("fields"))}
    return _made_again(description["class"], fields) if "class" in description else fields


def _made_again(name: str, fields: dict[Any, Any]) -> Any:
    """A node of this library's own, without calling anything of it; otherwise its fields."""
    module, _, qualname = name.partition(":")
    found = getattr(sys.modules.get(module), qualname, None) if module.split(".")[0] == "lsmcmc" else None
    if not isinstance(found, type):
        return fields
    if issubclass(found, tuple) and tuple(fields) == getattr(found, "_fields", None):
        return tuple.__new__(found, fields.values())
    if not issubclass(found, eqx.Module) or set(fields) != set(found.__dataclass_fields__):
        return fields
    made = object.__new__(found)
    for field, value in fields.items():
        object.__setattr__(made, field, value)
    return made


def to_host(leaf: Any) -> tuple[str, Any]:
    """What kind of leaf it is, and its numbers in NumPy: keys are told from arrays.

    >>> to_host(jnp.ones(2))
    ('array', array([1., 1.], dtype=float32))
    """
    if isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        return f"key {jax.random.key_impl(leaf)}", np.asarray(jax.random.key_data(leaf))
    return "array", np.asarray(leaf)


def from_host(kind: str, numbers: Any) -> Any:
    """The leaf again, in JAX, in its own dtype whether 64 bits are switched on or not."""
    with jax.enable_x64(True):
        array = jnp.asarray(numbers)
    return jax.random.wrap_key_data(array, impl=kind.removeprefix("key ")) if kind.startswith("key ") else array
