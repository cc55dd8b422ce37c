"""The runs of a grid as tasks of a ray cluster: the one that $RAY_ADDRESS names, or one of this machine's cores.

A task is a run with its evaluations, in order, so that nothing waits for a task of the same grid. Runs are written to
the grid's own folders: on a cluster of several machines these must be on a disk that all of them share.
"""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable, Generator, Iterator, Mapping
from types import FrameType
from typing import Any, TypeVar

from relatum.errors import InputError, Interrupted
from relatum.paper.processes import handling

T = TypeVar("T")
EXECUTORS = ("local", "ray")
_TO_SAVE = 60.0  # seconds that tasks are given to save and end


def check(name: str) -> None:
    """Refuse an executor that does not exist or is not installed."""
    if name not in EXECUTORS:
        raise InputError(f"executor '{name}' is not known; use {' or '.join(EXECUTORS)}.")
    if name == "ray":
        _ray()


def _ray() -> Any:
    try:
        import ray
    except ImportError:
        raise InputError("--executor ray needs ray, which is not installed: pip install 'relatum[ray]'.") from None
    return ray


def on_ray(jobs: Mapping[str, Callable[[], T]]) -> Generator[tuple[str, T | str], None, None]:
    """Run jobs as ray tasks; gives each name with what its job returned, or why the task broke down, as they end.

    Closed before the end, it interrupts the tasks that are left and waits until they have saved.
    """
    ray = _ray()
    if not ray.is_initialized():
        ray.init()
    task = ray.remote(_call)
    names = {task.remote(job): name for name, job in jobs.items()}
    left = list(names)
    try:
        while left:
            (ended,), left = ray.wait(left, num_returns=1)
            yield names[ended], _result(ray, ended)
    finally:
        for waiting in left:
            ray.cancel(waiting)  # like Ctrl-C in the task: its command saves and ends
        if left:
            ray.wait(left, num_returns=len(left), timeout=_TO_SAVE)


def _call(job: Callable[[], T]) -> T:
    return job()


def _result(ray: Any, ended: Any) -> Any:
    try:
        return ray.get(ended)
    except Exception as error:  # a worker that was lost must not stop the others
        return (str(error).strip().splitlines() or [type(error).__name__])[-1][:300]


@contextlib.contextmanager
def stopping() -> Iterator[None]:
    """SIGINT and SIGTERM end what is inside with `Interrupted`."""
    stopped: list[int] = []

    def stop(number: int, frame: FrameType | None) -> None:
        stopped.append(number)
        raise KeyboardInterrupt

    try:
        with handling(stop):
            yield
    except KeyboardInterrupt:
        raise Interrupted((stopped or [signal.SIGINT])[0], "stopped; the same command goes on from here.") from None
