"""One small pool of threads for compiled kernels that release the GIL.

numba's own parallel loops are not used: its workqueue layer aborts the process when two Python threads enter it, and a
second pool that spins beside OpenMP's slows both down. Here a job is cut into parts that do not depend on the number of
threads, so neither do the bits of the result. The caller works too, so a busy pool can delay a job but never block it.
"""

from __future__ import annotations

import itertools
import os
import sys
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

_pool: ThreadPoolExecutor | None = None
_told = False


def available_cpus() -> int:
    """Cores that this process may use (a container's or a scheduler's share, not the machine's)."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def cached_njit(signature: Any, **options: Any) -> Callable[[Any], Any]:
    """`numba.njit` for a `nogil` kernel with one signature, compiled once and kept on disk for later processes.

    numba keeps the code beside the source or, where that is read-only, in the user's cache folder ($NUMBA_CACHE_DIR
    goes before both), apart for each kind of CPU. Where nothing can be written, every process compiles anew.
    """
    import numba

    def decorate(function: Any) -> Any:
        try:
            kernel = numba.njit(signature, nogil=True, cache=True, **options)(function)
            _say_that_it_takes_a_while(sum(kernel.stats.cache_misses.values()))
            return kernel
        except RuntimeError as error:
            if "cannot cache" not in str(error):
                raise
            warnings.warn("no writable folder for compiled kernels: set NUMBA_CACHE_DIR to one.", stacklevel=2)
            return numba.njit(signature, nogil=True, **options)(function)

    return decorate


def _say_that_it_takes_a_while(compiled: int) -> None:
    """Once, when the first kernel had to be compiled: the others will have to be, too."""
    global _told
    if compiled and not _told:
        _told = True
        print("compiling kernels for this machine: some 20 s, once", file=sys.stderr, flush=True)


def run_chunks(function: Callable[..., Any], parts: Sequence[tuple[Any, ...]], threads: int | None = None) -> None:
    """Call `function(*part)` for every part, on up to `threads` threads (all cores by default).

    Parts must be independent and must not be chosen by the number of threads. Any thread may call this at any time.
    """
    count = min(threads or available_cpus(), len(parts))
    numbers = itertools.count()  # next() is atomic

    def work() -> None:
        while (number := next(numbers)) < len(parts):
            function(*parts[number])

    helpers = [_executor().submit(work) for _ in range(count - 1)]
    try:
        work()
    finally:
        started = [helper for helper in helpers if not helper.cancel()]
        errors = [error for helper in started if (error := helper.exception()) is not None]
    if errors:
        raise errors[0]


def _executor() -> ThreadPoolExecutor:
    global _pool
    if _pool is None:
        _pool = ThreadPoolExecutor(max(available_cpus(), 2) * 2, thread_name_prefix="relatum")
    return _pool


def _forget() -> None:
    """A forked child has none of its parent's threads."""
    global _pool
    _pool = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
