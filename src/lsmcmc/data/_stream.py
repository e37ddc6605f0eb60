"""`ls.data.stream`: which source a path, a pytree of paths or an object with rows is."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from lsmcmc import _checks
from lsmcmc.data._files import format_of
from lsmcmc.data._npy import Arrays
from lsmcmc.streams import Source, Stream

_MOST_ROWS = 2**31 - 1


def stream(
    source: Any,
    *,
    num_examples: int,
    columns: Any = None,
    num_features: int | None = None,
    dtype: Any = None,
    memory: int = 2**28,
    threads: int | None = None,
) -> Stream:
    """Data for `ls.Posterior(data=)` that stay on disk; a batch is read when it is needed."""
    num_examples = _checks.count("num_examples", num_examples)
    found = Arrays(source)
    return Stream(found, num_examples, dtype, memory, threads or 0)
