"""The LIBSVM text format: rows of `label index:value …`, indices from 1."""

import re
from collections.abc import Iterable

import numpy as np
from jaxtyping import Float32

# ++, *+ and ?+ never give back what they took. A row needs no backtracking, and this is twice as fast.
_NUMBER = rb"[-+]?+(?:\d++\.?+\d*+|\.\d++)(?:[eE][-+]?+\d++)?+"
_ROW = re.compile(rb"%s(?:[ \t]++[1-9]\d*+:%s)*+[ \t]*+" % (_NUMBER, _NUMBER))


def parse_libsvm(
    content: bytes, num_features: int, source: str
) -> tuple[Float32[np.ndarray, "n d"], Float32[np.ndarray, " n"]]:
    """Dense features and labels; features above `num_features` are dropped. `source` names the file in errors."""
    lines = content.splitlines()
    check_rows(lines, source, range(1, len(lines) + 1))
    return parse_rows(lines, num_features)


def parse_rows(lines: list[bytes], num_features: int) -> tuple[Float32[np.ndarray, "n d"], Float32[np.ndarray, " n"]]:
    """Of lines that were checked."""
    num_entries = np.array([line.count(b":") for line in lines], int)
    # All numbers in one array: a row is its label, then its (index, value) pairs.
    numbers = np.array(b" ".join(lines).replace(b":", b" ").split(), float)
    row_lengths = 1 + 2 * num_entries
    labels = np.cumsum(row_lengths) - row_lengths
    index, value = np.delete(numbers, labels).reshape(-1, 2).T
    row, kept = np.repeat(np.arange(len(lines)), num_entries), index <= num_features
    X = np.zeros((len(lines), num_features), np.float32)
    X[row[kept], index[kept].astype(int) - 1] = value[kept]
    return X, numbers[labels].astype(np.float32)


def is_row(line: bytes) -> bool:
    """Whether a line is one of this format."""
    return _ROW.fullmatch(line) is not None


def check_rows(lines: list[bytes], source: str, numbers: Iterable[int]) -> None:
    """Refuse the first line that is none of this format, by its number."""
    for number, line in zip(numbers, lines, strict=True):
        if not is_row(line):
            text = line[:60].decode(errors="replace")
            raise ValueError(
                f"{source}, row {number}: {text!r} is not a LIBSVM row. Write a label, then index:value pairs "
                f"with indices from 1, such as '-1 3:1 11:0.5'."
            )


def check_features(lines: list[bytes], num_features: int, source: str, numbers: Iterable[int]) -> None:
    """Refuse the first line with a feature above `num_features`."""
    for number, line in zip(numbers, lines, strict=True):
        highest = max((int(pair.partition(b":")[0]) for pair in line.split()[1:]), default=0)
        if highest > num_features:
            raise ValueError(f"{source}, row {number} has feature {highest}. Write num_features={highest} or more.")
