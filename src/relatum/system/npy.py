"""Arrays in `.npy` format from files that may be damaged or hostile: sizes are checked before memory is allocated."""

from __future__ import annotations

import math
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray


def read_array(file: IO[bytes], available: int, limit: int) -> NDArray[Any]:
    """Read one `.npy` array from the current position of a file.

    Args:
        file: open for reading in binary mode.
        available: number of bytes that the file holds from here on.
        limit: the largest size of the array in bytes.

    Raises:
        ValueError: the header is damaged, or promises more than `available` or `limit` bytes, or Python objects.
    """
    version = np.lib.format.read_magic(file)
    if version not in ((1, 0), (2, 0)):
        raise ValueError(f"unknown version {version} of the .npy format")
    read_header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, fortran_order, dtype = read_header(file)
    count = math.prod(shape)
    size = count * dtype.itemsize
    if dtype.hasobject:
        raise ValueError("the array holds Python objects, which are never loaded")
    if any(length < 0 for length in shape):
        raise ValueError(f"an array cannot have shape {shape}")
    if max(size, count) > limit:
        raise ValueError(f"an array of {size:,} bytes is larger than the limit of {limit:,}")
    if size > available:
        raise ValueError(f"an array of {size:,} bytes does not fit in the {available:,} bytes of the file")
    array = np.zeros(count, dtype)
    if size:
        rest = memoryview(array.view(np.uint8).data)
        while rest and (done := file.readinto(rest)):  # type: ignore[attr-defined]
            rest = rest[done:]
        if rest:
            raise ValueError(f"the array ends {len(rest):,} bytes too early")
    return array.reshape(shape, order="F" if fortran_order else "C")
