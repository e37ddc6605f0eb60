"""What every loader returns."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Rows = tuple[NDArray[np.float32], NDArray[Any]]


class Dataset(NamedTuple):
    """A training and a test part, each `(X, y)`."""

    train: Rows
    test: Rows
