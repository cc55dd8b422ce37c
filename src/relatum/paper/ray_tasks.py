"""Jobs as tasks of a Ray cluster: the one that $RAY_ADDRESS names, or one of this machine's cores.

Run folders are written where the scheduler expects them: a cluster of several machines needs a shared disk. Ray starts
a task again whose worker or machine was lost; the task's command then resumes from the last checkpoint.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, TypeVar

from relatum.config import Recipe
from relatum.errors import InputError, Interrupted

T = TypeVar("T")
_SECONDS_TO_SAVE = 60.0
_POLL_SECONDS = 2.0  # seconds between two updates of the progress of all runs
_RETRIES = 3  # of a task whose worker or machine was lost
# Variables that tasks get from the process that plans them; the other ones are those of their machine.
_PASSED_ON = ("RELATUM_", "WANDB_", "NUMBA_")
_PASSED_PATHS = ("RELATUM_DATA", "RELATUM_CACHE", "XDG_CACHE_HOME")


@dataclass(frozen=True)
class Resources:
    """What a task reserves on its machine, and how many threads each process of its run uses."""

    cpus: int = 1
    gpus: int = 0
    threads: int = 1


def import_ray() -> Any:
    """The `ray` package, or an error that says how to install it."""
    try:
        import ray
    except ImportError:
        raise InputError("--executor ray needs ray, which is not installed: pip install ray.") from None
    return ray


def connect() -> Any:
    """Ray, connected to its cluster."""
    ray = import_ray()
    if not ray.is_initialized():
        ray.init()
    return ray


def resources(recipe: Recipe, *, cluster_gpus: float) -> Resources:
    """The resources of a run: its threads for each of its processes, and a GPU for each unless it trains on CPUs.

    Args:
        recipe: the run's.
        cluster_gpus: the number of GPUs of the cluster; `auto` uses one where there is one.
    """
    run = recipe.run
    wants_gpu = run.device == "cuda" or (run.device == "auto" and cluster_gpus >= 1)
    threads = run.threads or 1
    return Resources(cpus=threads * run.devices, gpus=run.devices if wants_gpu else 0, threads=threads)


def environment() -> dict[str, str]:
    """The variables that tasks get: all settings of relatum, with absolute paths."""
    passed = {name: value for name, value in os.environ.items() if name.startswith(_PASSED_ON)}
    paths = {name: os.environ[name] for name in _PASSED_PATHS if os.environ.get(name)}
    return {**passed, **{name: str(Path(path).expanduser().absolute()) for name, path in paths.items()}}


def run_tasks(
    jobs: Mapping[str, Callable[[], T]],
    needs: Mapping[str, Resources] | None = None,
    *,
    watch: Callable[[], None] = lambda: None,
) -> Generator[tuple[str, T | str], None, None]:
    """Run jobs as Ray tasks and yield (name, return value) as they finish; a lost task yields its error as text.

    If the generator is closed early, remaining tasks are interrupted and given time to save.

    Args:
        jobs: by name.
        needs: what each job reserves; by default one CPU.
        watch: called every two seconds while tasks run.
    """
    ray = connect()
    task = ray.remote(_call)
    names = {}
    for name, job in jobs.items():
        need = (needs or {}).get(name, Resources())
        options = {"num_cpus": need.cpus, "num_gpus": need.gpus, "max_retries": _RETRIES, "name": name}
        names[task.options(**options).remote(job)] = name
    pending = list(names)
    try:
        while pending:
            finished, pending = ray.wait(pending, num_returns=1, timeout=_POLL_SECONDS)
            watch()
            for reference in finished:
                try:
                    value = ray.get(reference)
                except Exception as error:  # a lost worker must not stop the others
                    value = (str(error).strip().splitlines() or [type(error).__name__])[-1][:300]
                yield names[reference], value
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
