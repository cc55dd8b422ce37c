"""Tables and figures of the paper run to the end by the real command, on small generated data in CIFAR's own layout."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cifar_files import write_cifar
from PIL import Image

from relatum.paper.reproduce import reproduce

TABLES = (
    "linear-evaluation",
    "domain-transfer",
    "grain",
    "augmentations",
    "semi-supervised-cifar10",
    "aggregation",
    "head",
    "retrieval-errors",
    "tsne",
)
WARM = Path(__file__).with_name("warm.py")
SMALL: dict[str, Any] = {"backbones": ["conv4"], "seeds": [1], "views": 4, "epochs": 1, "limit_train": 128}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """CIFAR-10 and CIFAR-100 as their authors pack them, of 300 + 100 generated pictures each."""
    return write_cifar(tmp_path_factory.mktemp("root"))


@pytest.fixture(scope="module")
def warm() -> Iterator[tuple[str, ...]]:
    """The words of the real command, served by a process that has imported what it needs."""
    with tempfile.TemporaryDirectory() as folder:  # a socket's name must be short
        place = Path(folder) / "s"
        code = f"import sys; sys.path.insert(0, {str(WARM.parent)!r}); from warm import serve; serve({str(place)!r})"
        server = subprocess.Popen([sys.executable, "-c", code])
        wait_for(place.exists, 60)
        yield sys.executable, "-S", "-E", str(WARM), str(place)
        server.kill()
        server.wait()


def wait_for(condition: Callable[[], bool], seconds: float) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.01)


def stamps(runs: Path) -> dict[Path, int]:
    return {p: p.stat().st_mtime_ns for p in runs.rglob("*") if p.is_file()}


def check(out: Path, tables: tuple[str, ...], **asked: Any) -> None:
    """Run tables to the end; every cell is a figure or a picture, and a second run has nothing to do."""
    assert reproduce(tables, out=out, ledger=(), **asked) == 0
    for name in tables:
        document = json.loads((out / "tables" / f"{name}.json").read_text())
        assert document["complete"], name
        assert "not the paper's conditions" in (out / "tables" / f"{name}.md").read_text().splitlines()[0]
        cells = [c for sheet in document["sheets"] for c in sheet["cells"] if c["kind"] not in ("literature", "n/a")]
        assert cells
        assert all(c["status"] == "done" for c in cells)
        assert all(-100 <= c["ours"] <= 100 for c in cells if c["kind"] != "picture")
        for path in document["figures"]:
            assert Path(path).stat().st_size > 1000, path
            if path.endswith(".png"):
                assert np.asarray(Image.open(path).convert("L")).std() > 5, f"{path} is blank"
        assert (out / "tables" / f"{name}.csv").read_text().count("\n") > len(cells)
    before = stamps(out / "runs")
    assert reproduce(tables, out=out, ledger=(), **asked) == 0
    assert stamps(out / "runs") == before, "something ran twice"


def test_nine_tables_run_to_the_end(root: Path, warm: tuple[str, ...], tmp_path: Path) -> None:
    asked = {"datasets": ["cifar10", "cifar100"], "methods": ["relational", "random"], "root": str(root)}
    check(tmp_path, TABLES, **SMALL, **asked, command=warm)


def test_finetuning_by_its_filter(root: Path, warm: tuple[str, ...], tmp_path: Path) -> None:
    asked = {"datasets": ["cifar10"], "methods": ["relational", "supervised"], "root": str(root)}
    check(tmp_path, ("finetune",), **SMALL, **asked, command=warm)


@pytest.mark.slow
def test_every_method_of_the_tables_runs_to_the_end(root: Path, warm: tuple[str, ...], tmp_path: Path) -> None:
    check(tmp_path / "nine", TABLES, **SMALL, datasets=["cifar10", "cifar100"], root=str(root), command=warm)
    check(tmp_path / "one", ("finetune",), **SMALL, datasets=["cifar10"], root=str(root), command=warm)


def test_a_killed_grid_keeps_what_is_finished_and_resumes_exactly(root: Path, tmp_path: Path) -> None:
    """SIGKILL in the middle of the second run; the weights are those of a grid that was left alone."""
    arguments = [
        "reproduce",
        "augmentations",
        "--methods",
        "relational",
        "--datasets",
        "cifar10",
        "--backbones",
        "conv4",
    ]
    arguments += ["--seeds", "1", "--views", "4", "--epochs", "6", "--limit-train", "240", "--root", str(root)]

    def grid(out: Path) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "relatum", *arguments, "--out", str(out)]
        return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    killed, whole = tmp_path / "killed", tmp_path / "whole"
    process = grid(killed)
    second = lambda: next(iter((killed / "runs").glob("relational-*-k4-*")), killed)  # noqa: E731
    wait_for(lambda: (second() / "checkpoints" / "last.ckpt").exists(), 120)
    process.kill()
    process.wait()
    assert not (second() / "backbone.safetensors").exists(), "it was too late to interrupt anything"
    first = next((killed / "runs").glob("relational-*-k2-*"))
    kept = stamps(first)
    assert any(p.parent.name == "evaluations" for p in kept)
    assert grid(killed).wait() == 0
    assert stamps(first) == kept, "a finished run was touched"
    assert "resum" in next((killed / "logs").glob("relational-*-k4-*.txt")).read_text().lower()
    assert grid(whole).wait() == 0
    for run in (whole / "runs").iterdir():
        twin = killed / "runs" / run.name
        assert (run / "backbone.safetensors").read_bytes() == (twin / "backbone.safetensors").read_bytes()
        for result in (run / "evaluations").glob("*.json"):
            ours, theirs = (json.loads((r / "evaluations" / result.name).read_text()) for r in (run, twin))
            assert ours["accuracy"] == theirs["accuracy"]
        steps = [
            json.loads(line)["step"] for line in (twin / "metrics.jsonl").read_text().splitlines() if "loss" in line
        ]
        assert len(steps) == len(set(steps)), "a step was logged twice"
