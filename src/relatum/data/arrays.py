"""Image arrays in `.npy` files: written as a stream, and mapped only after the header and the size were checked.

A stream fails with an ordinary error when the disk is full. Writing through a memory map would end the process with
SIGBUS instead, without a message.
"""

from __future__ import annotations

import errno
import math
import os
from collections.abc import Iterable
from pathlib import Path
from typing import IO

import numpy as np
from numpy.typing import NDArray

from relatum.errors import RelatumError


class Damaged(Exception):
    """A cached file that cannot be used as it is; the text is the reason."""


def write_header(out: IO[bytes], shape: tuple[int, ...]) -> int:
    """Write the header of a uint8 array; returns its length, which is the same for any first dimension."""
    np.lib.format.write_array_header_1_0(out, {"descr": "|u1", "fortran_order": False, "shape": shape})
    return out.tell()


def write_array(path: Path, shape: tuple[int, ...], chunks: Iterable[NDArray[np.uint8]]) -> None:
    """Write an array of a known shape, given in chunks of rows."""
    with path.open("wb") as out:
        write_header(out, shape)
        for chunk in chunks:
            out.write(np.ascontiguousarray(chunk).data)


def open_array(path: Path, shape: tuple[int, ...]) -> NDArray[np.uint8]:
    """Map a uint8 array of this shape, read-only.

    Raises:
        Damaged: the file is missing, has another shape or is truncated.
        RelatumError: the file is good, but there is not enough memory to map it.
    """
    try:
        with path.open("rb") as file:
            header = _read_header(file)
            start, size = file.tell(), os.fstat(file.fileno()).st_size
            if header != (shape, False, np.dtype(np.uint8)) or size != start + math.prod(shape):
                raise Damaged(f"{path.name} is not an array of {' × '.join(map(str, shape))} bytes")
            return np.memmap(file, np.uint8, "r", start, shape)
    except (OSError, MemoryError) as error:
        raise_unless_damaged(error, path)
        raise Damaged(f"{path.name}: {getattr(error, 'strerror', None) or error}") from None


def _read_header(file: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[np.generic]]:
    try:
        if np.lib.format.read_magic(file) != (1, 0):
            raise ValueError("another version of the format")
        return np.lib.format.read_array_header_1_0(file)
    except (OSError, MemoryError):
        raise
    except Exception as error:  # a damaged header may raise any exception
        raise Damaged(f"the header is not readable ({type(error).__name__})") from None


def raise_unless_damaged(error: OSError | MemoryError, path: Path) -> None:
    """Raise a `RelatumError` for an error of the machine: the file may be good, and must not be removed."""
    if isinstance(error, MemoryError) or error.errno == errno.ENOMEM:
        raise RelatumError(
            f"there is not enough memory to read {path}: raise the memory limit (ulimit -v), or free memory."
        ) from None
    if error.errno in (errno.EMFILE, errno.ENFILE, errno.EACCES, errno.EPERM):
        raise RelatumError(f"{path} cannot be read: {error.strerror}.") from None
