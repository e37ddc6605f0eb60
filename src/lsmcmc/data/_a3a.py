"""a3a: census rows as binary features, the paper's logistic regression data (LIBSVM's preparation of UCI Adult)."""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lsmcmc.data._fetch import fetch

_NUM_FEATURES = 122  # the 123rd occurs in the test part alone
_MIRRORS = (
    "https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/binary/",
    "https://raw.githubusercontent.com/cjlin1/libsvm/datasets/binary/",
)
_FILES = {
    "a3a": "2d513572f103d25e84bebe4b9f2f52ee9445764b5a393caff7db9c482cfc1ee4",
    "a3a.t": "c46c9ea67e06f38e81d59c4883e3d670cbe55de6a5c32564b38fc89dcda3adac",
}

Rows = tuple[NDArray[np.float32], NDArray[Any]]


class Dataset(NamedTuple):
    """A training and a test part, each `(X, y)`."""

    train: Rows
    test: Rows


def a3a() -> Dataset:
    """a3a: X float32 (3185, 122) and (29376, 122) of zeros and ones, y float32 in {−1, +1}.

    Feature 123, which never occurs in the training part, is dropped from the test part. Read from
    the folder in LSMCMC_DATA if that is set, else downloaded once into the user's cache; the sha256
    of the content is checked every time.
    """
    train, test = (
        _read_libsvm(fetch(f"a3a/{name}", sha256, tuple(mirror + name for mirror in _MIRRORS)), _NUM_FEATURES)
        for name, sha256 in _FILES.items()
    )
    return Dataset(train, test)


def _read_libsvm(path: Path, num_features: int) -> Rows:
    """Rows of `label index:value …`, indices from 1; features above `num_features` are dropped."""
    lines = path.read_text().splitlines()
    X, y = np.zeros((len(lines), num_features), np.float32), np.zeros(len(lines), np.float32)
    for i, line in enumerate(lines):
        label, *entries = line.split()
        y[i] = float(label)
        for entry in entries:
            index, value = entry.split(":")
            if int(index) <= num_features:
                X[i, int(index) - 1] = float(value)
    return X, y
