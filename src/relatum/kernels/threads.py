"""A thread pool for compiled kernels, which release the GIL.

numba's parallel loops are not used: its workqueue layer aborts the process when two Python threads enter it, and a
second pool that spins beside OpenMP's slows both down. Here a job is cut into parts that do not depend on the number of
threads, so neither do the bits of the result. The calling thread works too, so a busy pool never blocks a job.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from relatum.system.cpus import available_cpus

_pool: ThreadPoolExecutor | None = None


def run_chunks(function: Callable[..., Any], parts: Sequence[tuple[Any, ...]], threads: int | None = None) -> None:
    """Call `function(*part)` for every part, on up to `threads` threads (by default as many as there are cores).

    The parts must be independent of one another and of the number of threads. Any thread may call this at any time.
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


def _drop_pool() -> None:
    """In a forked child: the threads of the parent's pool do not exist there."""
    global _pool
    _pool = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_drop_pool)
