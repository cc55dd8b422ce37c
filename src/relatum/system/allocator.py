"""Keep freed memory for the next training step instead of giving it back to the system.

A step on the CPU allocates and frees the same large activations each time. glibc serves blocks above 32 MiB by `mmap`
and returns them on `free`: every step pays for tens of thousands of page faults, and the kernel zeroes each page anew.
That was 15–40 % of a plain compiled step on two cores (docs/log.md). Two settings make glibc reuse what it has, after
some ten steps and at the price of a larger heap: aligned blocks leave gaps, up to 40 % of the peak was seen.
"""

from __future__ import annotations

import ctypes
import platform

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # malloc.h
_GIB = 2**30


def keep_freed_memory() -> bool:
    """Ask the C library to keep freed blocks (up to 2 GiB at the heap's end) for this process; call it before training.

    Returns:
        Whether it could: True with glibc, False with other C libraries, where nothing is changed.
    """
    if platform.libc_ver()[0] != "glibc":
        return False
    mallopt = ctypes.CDLL(None).mallopt
    mallopt.argtypes, mallopt.restype = (ctypes.c_int, ctypes.c_int), ctypes.c_int
    # Old versions refuse a threshold above 32 MiB: then blocks up to that size are kept.
    kept = mallopt(_MMAP_THRESHOLD, _GIB) or mallopt(_MMAP_THRESHOLD, 32 * 2**20)
    return bool(kept and mallopt(_TRIM_THRESHOLD, 2 * _GIB - 1))
