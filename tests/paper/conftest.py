"""A folder of results made by the stub, and ways to run it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import relatum
from relatum.paper.cells import Plan
from relatum.paper.grid import Evaluation
from relatum.paper.measured import Results
from relatum.paper.scheduler import Outcome, execute
from relatum.system.files import write_json

Accuracy = Callable[[Evaluation], float]


@pytest.fixture
def stub() -> tuple[str, ...]:
    """The words that start the stub."""
    return sys.executable, str(Path(__file__).with_name("stub.py"))


@pytest.fixture
def trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file with one line per command that the stub was given."""
    path = tmp_path / "trace.txt"
    path.touch()
    monkeypatch.setenv("PYTHONPATH", str(Path(str(relatum.__file__)).parents[1]))
    monkeypatch.setenv("STUB_TRACE", str(path))
    return path


@pytest.fixture
def results_of(tmp_path: Path) -> Callable[[Plan, Accuracy], Results]:
    """A folder as if a plan had been run, without any process."""

    def make(asked: Plan, accuracy: Accuracy) -> Results:
        results = Results(tmp_path / "made")
        for evaluation in asked.evaluations:
            run = results.run_dir(evaluation.run)
            document = {"protocol": evaluation.protocol, "dataset": evaluation.dataset, "split": evaluation.split}
            document |= {"tag": evaluation.tag, "accuracy": accuracy(evaluation), "details": {}}
            document |= {"settings": {k: v for k, v in evaluation.settings.items() if v is not None}}
            write_json(run / "evaluations" / evaluation.file, document)
            (run / "backbone.safetensors").touch()
        return results

    return make


@pytest.fixture
def run_stub(tmp_path: Path, trace: Path, stub: tuple[str, ...]) -> Callable[[Plan], tuple[Results, Outcome]]:
    """Execute a plan with the stub in place of relatum."""

    def run(asked: Plan) -> tuple[Results, Outcome]:
        results = Results(tmp_path / "out")
        return results, execute(asked, results, command=stub)

    return run
