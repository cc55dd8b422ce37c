"""A grid on real Ray: two nodes of a cluster on this machine, a killed worker, a killed node."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from relatum.paper import progress
from relatum.paper.grid import Evaluation, Pretraining
from relatum.paper.measured import Results
from relatum.paper.scheduler import execute

ray = pytest.importorskip("ray")
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]


@pytest.fixture
def cluster() -> Iterator[Any]:
    """A head without CPUs and two nodes with one each."""
    from ray.cluster_utils import Cluster

    started = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    nodes = [started.add_node(num_cpus=1) for _ in range(2)]
    ray.init(address=started.address, logging_level="error")
    yield started, nodes
    ray.shutdown()
    started.shutdown()


def grid() -> Any:
    """Two trainings of 640 steps, long enough to overlap if one starts later, and their linear evaluation."""
    methods = ("relational", "simclr")
    runs = [Pretraining(method, "shapes", "conv4", 2, 40, 16, seed=1, limit_train=256) for method in methods]
    evaluations = [Evaluation(run, "linear", "shapes", "test", "", 1) for run in runs]
    return SimpleNamespace(evaluations=evaluations, pictures=())


def accuracies(results: Results) -> dict[str, float]:
    paths = sorted(results.out.rglob("evaluations/*.json"))
    return {str(path.relative_to(results.out)): json.loads(path.read_text())["accuracy"] for path in paths}


def once_training(results: Results, action: Callable[[], None], seen: list[Any]) -> threading.Thread:
    """Call an action when two runs train and one is beyond its first epoch; the rows of the view are collected."""

    def watch() -> None:
        deadline = time.monotonic() + 200
        while time.monotonic() < deadline:
            rows = progress.running(list((results.out / "runs").glob("*")))
            seen.extend(rows)
            if len(rows) == 2 and any(_steps(row) > 16 for row in rows):
                action()
                return
            time.sleep(0.1)

    thread = threading.Thread(target=watch)
    thread.start()
    return thread


def _steps(row: tuple[str, ...]) -> int:
    return int(row[1].removeprefix("step ").partition("/")[0])


def parents_of_pretraining(out: Path) -> list[int]:
    """The processes that started `relatum pretrain` in a folder: workers of Ray."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            arguments = (entry / "cmdline").read_bytes().decode().split("\0")
            if "pretrain" in arguments and any(argument.startswith(str(out)) for argument in arguments):
                found.append(int((entry / "stat").read_text().rpartition(")")[2].split()[1]))
        except OSError:
            continue
    return found


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> dict[str, float]:
    """The results of the same grid on this machine, without Ray."""
    local = Results(tmp_path_factory.mktemp("local"))
    assert not execute(grid(), local).failed
    return accuracies(local)


@pytest.mark.parametrize("lost", ["worker", "node"])
def test_two_nodes_give_the_results_of_one_machine_whatever_is_killed(
    lost: str, expected: dict[str, float], cluster: Any, tmp_path: Path
) -> None:
    started, nodes = cluster
    results, seen, said, killed = Results(tmp_path / "out"), list[Any](), list[str](), list[str]()

    def kill() -> None:
        if lost == "worker":
            os.kill(parents_of_pretraining(results.out)[0], signal.SIGKILL)
        else:
            started.remove_node(nodes[0], allow_graceful=False)
        killed.append(lost)

    thread = once_training(results, kill, seen)
    outcome = execute(grid(), results, executor="ray", log=said.append)
    thread.join()
    print(lost, *said, *seen[-2:], sep="\n  ")
    assert killed == [lost]
    assert not outcome.failed, (outcome.failed, said)
    assert any(row[1].startswith("step ") for row in seen)
    assert len(expected) == 2
    assert accuracies(results) == expected
