"""The IDX format of MNIST: two zero bytes, the type, the number of axes, their big-endian lengths, the numbers."""

import math

import numpy as np
from jaxtyping import UInt8

_UNSIGNED_BYTES = 0x08


def parse_idx(content: bytes, num_axes: int, source: str) -> UInt8[np.ndarray, "..."]:
    """The array in an IDX file of unsigned bytes, read-only. `source` names the file in errors."""
    magic = bytes([0, 0, _UNSIGNED_BYTES, num_axes])
    header_bytes = 4 + 4 * num_axes
    if content[:4] != magic or len(content) < header_bytes:
        raise ValueError(
            f"{source} is not an IDX file of unsigned bytes with {num_axes} axes: it should start with "
            f"{magic.hex(' ')} and {num_axes} lengths of 4 bytes, and starts with "
            f"{content[:header_bytes].hex(' ') or 'nothing'}."
        )
    shape = np.frombuffer(content, ">u4", num_axes, offset=4).tolist()
    found, needed = len(content) - header_bytes, math.prod(shape)
    if found != needed:
        raise ValueError(
            f"{source} is an IDX file of shape {tuple(shape)}, which needs {needed:,} bytes after its header; "
            f"it has {found:,}."
        )
    return np.frombuffer(content, np.uint8, offset=header_bytes).reshape(shape)
