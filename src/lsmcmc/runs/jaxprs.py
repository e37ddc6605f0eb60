"""What a function computes, as a hash: of its jaxpr without names, and of the arrays closed over."""

import hashlib
import re
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np
from jax.extend import core

from lsmcmc import _checks
from lsmcmc.runs.structure import to_host

_NAMES = {"name", "debug_info", "ctx_mesh"}  # parameters that change nothing
_BYTES = 8


def fingerprint(fn: Callable[..., Any], *arguments: Any) -> str:
    """A hash of `fn` on arguments of these shapes: the same for the same computation, whatever things are called.

    >>> import jax.numpy as jnp
    >>> a, b = (fingerprint(lambda x: c * x**2, 1.0) for c in (2.0, 3.0))
    >>> a == b, a == fingerprint(lambda y: 2.0 * y**2, 1.0)
    (False, True)
    """
    try:
        closed = jax.make_jaxpr(fn)(*arguments)
    except _checks.ContractError as error:
        raise ValueError(str(error)) from error.__cause__
    return _hash(_closed(closed))


def of_array(leaf: Any) -> str:
    """Dtype, shape and a hash of every byte.

    >>> import jax.numpy as jnp
    >>> of_array(jnp.zeros((2, 3)))
    'float32[2, 3] 2bb6ae06ad472028'
    """
    kind, numbers = to_host(leaf)
    name = numbers.dtype.name if kind == "array" else kind
    return f"{name}{list(numbers.shape)} {_hash([np.ascontiguousarray(numbers).reshape(-1).view(np.uint8)])}"


def _hash(pieces: Any) -> str:
    total = hashlib.blake2b(digest_size=_BYTES)
    for piece in pieces:
        total.update(piece.encode() + b"\0" if isinstance(piece, str) else piece)
    return total.hexdigest()


def _closed(closed: core.ClosedJaxpr) -> Iterator[str]:
    for const in closed.consts:
        yield of_array(const)
    yield from _open(closed.jaxpr)


def _open(jaxpr: core.Jaxpr) -> Iterator[str]:
    """Variables by the order in which they appear."""
    numbers: dict[Any, int] = {}

    def said(atom: Any) -> str:
        if isinstance(atom, core.Literal):
            return f"{np.asarray(atom.val).tolist()!r}:{atom.aval}"
        return f"{numbers.setdefault(atom, len(numbers))}:{atom.aval}"

    yield " ".join(said(atom) for atom in (*jaxpr.constvars, *jaxpr.invars))
    for equation in jaxpr.eqns:
        yield equation.primitive.name
        for name in sorted(set(equation.params) - _NAMES):
            yield name
            yield from _parameter(equation.params[name])
        yield " ".join(said(atom) for atom in (*equation.invars, *equation.outvars))
    yield " ".join(said(atom) for atom in jaxpr.outvars)


def _parameter(value: Any) -> Iterator[str]:
    if isinstance(value, core.ClosedJaxpr):
        yield from _closed(value)
    elif isinstance(value, core.Jaxpr):
        yield from _open(value)
    elif isinstance(value, list | tuple) and not hasattr(value, "_fields"):
        for child in value:
            yield from _parameter(child)
        yield str(len(value))
    elif isinstance(value, np.ndarray | jax.Array):
        yield of_array(value)
    elif callable(value):
        yield type(value).__name__  # a rule for derivatives, which the jaxpr has applied already
    else:
        yield re.sub(r" at 0x[0-9a-f]+", "", repr(value))
