"""Subsets of arrays that are too large to copy into memory.

STL-10's 100,000 unlabelled images are a memory map of 2.7 GB. Selecting images by index makes a copy; a copy of more
than 1 GB is written to an unnamed temporary file in the cache folder instead of memory.
"""

from __future__ import annotations

import tempfile

import numpy as np
from numpy.typing import NDArray

from relatum.data.paths import cache_dir
from relatum.errors import RelatumError

_LARGE = 1 << 30  # bytes
_CHUNK = 1024  # images copied at a time


def take(images: NDArray[np.uint8], indices: NDArray[np.int64]) -> NDArray[np.uint8]:
    """`images[indices]`: a view if the indices are consecutive, a memory map on disk if the copy is large.

    Streamed images are not decoded: the result is a stream as well.
    """
    if hasattr(images, "select"):
        return images.select(indices)  # type: ignore[no-any-return]
    if len(indices) and indices[0] >= 0 and np.array_equal(indices, np.arange(indices[0], indices[0] + len(indices))):
        return images[int(indices[0]) : int(indices[0]) + len(indices)]
    shape = (len(indices), *images.shape[1:])
    if not isinstance(images, np.memmap) or np.prod(shape, dtype=np.int64) < _LARGE:
        return np.asarray(images[indices])
    with tempfile.TemporaryFile(dir=cache_dir()) as file:  # the memory map keeps the file open
        try:  # a stream, not the map: where the disk is full, writing to a map ends the process with SIGBUS
            for start in range(0, len(indices), _CHUNK):
                file.write(images[indices[start : start + _CHUNK]].data)
            file.flush()
        except OSError as error:
            raise RelatumError(
                f"a temporary copy of {np.prod(shape, dtype=np.int64) / 1e9:.1f} GB could not be written to "
                f"{cache_dir()}: {error.strerror or error}.\nSet RELATUM_CACHE to a folder with free space."
            ) from error
        return np.memmap(file, np.uint8, "r", shape=shape)
