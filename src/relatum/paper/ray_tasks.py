"""Jobs as tasks of a Ray cluster: the one that $RAY_ADDRESS names, or one of this machine's cores.

Run folders are written where the scheduler expects them: a cluster of several machines needs a shared disk.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Generator, Mapping
from types import FrameType
from typing import Any, TypeVar

from relatum.errors import InputError, Interrupted

T = TypeVar("T")
_SECONDS_TO_SAVE = 60.0


def import_ray() -> Any:
    """The `ray` package, or an error that says how to install it."""
    try:
        import ray
    except ImportError:
        raise InputError("--executor ray needs ray, which is not installed: pip install ray.") from None
    return ray


def run_tasks(jobs: Mapping[str, Callable[[], T]]) -> Generator[tuple[str, T | str], None, None]:
    """Run jobs as Ray tasks and yield (name, return value) as they finish; a lost task yields its error as text.

    If the generator is closed early, remaining tasks are interrupted and given time to save.
    """
    ray = import_ray()
    if not ray.is_initialized():
        ray.init()
    task = ray.remote(_call)
    names = {task.remote(job): name for name, job in jobs.items()}
    pending = list(names)
    try:
        while pending:
            (finished,), pending = ray.wait(pending, num_returns=1)
            try:
                value = ray.get(finished)
            except Exception as error:  # a lost worker must not stop the others
                value = (str(error).strip().splitlines() or [type(error).__name__])[-1][:300]
            yield names[finished], value
    finally:
        for reference in pending:
            ray.cancel(reference)  # raises KeyboardInterrupt in the task, whose command then saves
        if pending:
            ray.wait(pending, num_returns=len(pending), timeout=_SECONDS_TO_SAVE)


def _call(job: Callable[[], T]) -> T:
    return job()


def interrupt(number: int, frame: FrameType | None) -> None:
    """Signal handler for a process that waits for tasks."""
    raise Interrupted(number, f"interrupted by {signal.Signals(number).name}; run the same command to resume.")
