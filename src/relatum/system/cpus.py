"""The number of CPU cores."""

from __future__ import annotations

import os


def available_cpus() -> int:
    """The number of CPU cores that this process may use.

    In a container or under a scheduler this can be less than the number of cores of the machine.
    """
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
