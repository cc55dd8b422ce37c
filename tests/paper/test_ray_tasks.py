"""Ray is not installed in the tests: a module of the same few functions stands in for it, with threads for tasks."""

from __future__ import annotations

import os
import pickle
import signal
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import closing
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from relatum import config
from relatum.errors import InputError, Interrupted
from relatum.paper import ray_tasks
from relatum.paper.cells import Request
from relatum.paper.measured import DONE, Results, score
from relatum.paper.plan import plan
from relatum.paper.reproduce import reproduce
from relatum.paper.scheduler import execute
from relatum.system import signals


@pytest.fixture
def ray(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A stand-in for ray; what goes to a task and comes back is pickled, as between processes."""
    pool, module = ThreadPoolExecutor(2), ModuleType("ray")
    state = SimpleNamespace(started=False, tasks=[], cancelled=[], options=[], gpus=0)

    def remote(function: Callable[..., Any]) -> SimpleNamespace:
        def submit(*args: Any) -> Future[bytes]:
            sent = pickle.dumps(args)
            state.tasks.append(pool.submit(lambda: pickle.dumps(function(*pickle.loads(sent)))))
            return state.tasks[-1]

        def options(**needs: Any) -> SimpleNamespace:
            state.options.append(needs)
            return SimpleNamespace(remote=submit)

        return SimpleNamespace(options=options)

    def ready(tasks: list[Future[bytes]], num_returns: int = 1, timeout: float | None = None) -> Any:
        done, _ = wait(tasks, timeout, FIRST_COMPLETED)
        first = [t for t in tasks if t in done][:num_returns]
        return first, [t for t in tasks if t not in first]

    functions = {
        "is_initialized": lambda: state.started,
        "init": lambda: setattr(state, "started", True),
        "remote": remote,
        "cluster_resources": lambda: {"CPU": 2.0, "GPU": state.gpus},
        "wait": ready,
        "get": lambda task: pickle.loads(task.result()),
        "cancel": state.cancelled.append,
    }
    for name, function in functions.items():
        setattr(module, name, function)
    monkeypatch.setitem(sys.modules, "ray", module)
    yield state
    pool.shutdown()


def test_without_ray_one_line_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(InputError, match="pip install ray"):
        reproduce(["grain"], executor="ray", dry_run=True)


def test_runs_are_tasks_and_results_are_in_the_same_folders(
    ray: Any, tmp_path: Path, trace: Path, stub: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    asked = plan(["linear-evaluation"], Request(("cifar10",), ("conv4",), ("relational", "simclr", "random"), (1, 2)))
    results, said = Results("out"), list[str]()
    outcome = execute(asked, results, command=stub, executor="ray", log=said.append)
    assert not outcome.failed
    assert len(outcome.ran) == 12  # six runs and their evaluations
    assert len(ray.tasks) == 6
    assert all(needs["num_cpus"] == 1 and needs["num_gpus"] == 0 for needs in ray.options)
    assert all(needs["max_retries"] == 3 for needs in ray.options)
    assert {score(c, results).status for c in asked.tables[0].cells} == {DONE}
    assert len(list((tmp_path / "out" / "ledger").glob("*.json"))) == 6
    assert sum("done in" in line for line in said) == 12
    assert execute(asked, results, command=stub, executor="ray").ran == []


def test_a_failed_command_and_a_lost_task_do_not_stop_the_others(
    ray: Any, tmp_path: Path, trace: Path, stub: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STUB_FAIL", "simclr")
    asked = plan(["linear-evaluation"], Request(("cifar10",), ("conv4",), ("relational", "simclr"), (1,)))
    outcome = execute(asked, Results(tmp_path), command=stub, executor="ray")
    assert len(outcome.ran) == 2
    assert [why.split(" Do")[0] for why in outcome.failed.values()] == ["error: something went wrong here"]
    ended = dict(ray_tasks.run_tasks({"good": int, "lost": _lost}))
    assert ended == {"good": 0, "lost": "the node is gone"}


def test_a_task_reserves_what_its_recipe_says() -> None:
    def needs(gpus: float, **values: Any) -> tuple[int, int]:
        recipe = config.Draft({"data.name": "cifar10", **values}).recipe()
        found = ray_tasks.resources(recipe, cluster_gpus=gpus)
        return found.cpus, found.gpus

    assert needs(0) == (1, 0)
    assert needs(4) == (1, 1)
    assert needs(4, **{"run.device": "cpu", "run.threads": 6}) == (6, 0)
    assert needs(0, **{"run.device": "cuda", "run.devices": 2, "run.threads": 3}) == (6, 2)


def test_settings_of_relatum_reach_the_tasks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RELATUM_DATA", "data")
    monkeypatch.setenv("RELATUM_MEET_SECONDS", "7")
    passed = ray_tasks.environment()
    assert passed["RELATUM_DATA"] == str(tmp_path / "data")
    assert passed["RELATUM_MEET_SECONDS"] == "7"
    assert "PATH" not in passed


def _lost() -> int:
    raise RuntimeError("a trace of many lines\nthe node is gone")


def test_a_signal_interrupts_the_tasks_that_are_left(ray: Any) -> None:
    def stopped_after_the_first() -> None:
        with (
            signals.handle(signals.numbers(), ray_tasks.interrupt),
            closing(ray_tasks.run_tasks({"quick": int, "slow": _slow})) as ends,
        ):
            assert next(ends) == ("quick", 0)
            os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises(Interrupted) as caught:
        stopped_after_the_first()
    assert caught.value.exit_code == 143
    assert ray.cancelled == ray.tasks[1:]


def _slow() -> int:
    time.sleep(0.3)
    return 1
