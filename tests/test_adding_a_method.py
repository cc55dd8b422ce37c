"""The examples of docs/adding-a-method.md: the first has under 60 lines, and all work as they stand there."""

from __future__ import annotations

import importlib
import json
import math
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import nn

import relatum
from relatum.config.methods import METHODS
from relatum.errors import InputError

TEXT = (Path(__file__).parents[1] / "docs" / "adding-a-method.md").read_text("utf-8")
FILE, USE, TICO, TEST = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
(COMMANDS,) = re.findall(r"```\n(relatum .*?)```", TEXT, re.DOTALL)


@pytest.fixture
def uniformity(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    (tmp_path / "uniformity.py").write_text(FILE)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield importlib.import_module("uniformity")
    METHODS.pop("uniformity", None)
    sys.modules.pop("uniformity", None)


@pytest.fixture
def tico(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    (tmp_path / "tico.py").write_text(TICO)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield importlib.import_module("tico")
    METHODS.pop("tico", None)
    sys.modules.pop("tico", None)


def test_it_is_short() -> None:
    lines = [line for line in FILE.splitlines() if line.strip()]
    assert len(lines) < 60


def test_the_loss_is_that_of_the_paper_it_is_from(uniformity: ModuleType) -> None:
    objective = uniformity.AlignmentUniformity(
        nn.Sequential(nn.Flatten(), nn.Linear(12, 5)), 5, uniformity=0.3, projection=4
    ).double()
    views = torch.randn(2, 7, 3, 2, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    rows = [row / row.norm() for row in objective.head(objective.backbone(views.flatten(0, 1))).detach()]
    total = sum(float((rows[m] - rows[7 + m]).norm()) ** 2 for m in range(7)) / 7
    for view in (rows[:7], rows[7:]):
        kernel = [math.exp(-2 * float((view[i] - view[j]).norm()) ** 2) for i in range(7) for j in range(i)]
        total += 0.3 * math.log(sum(kernel) / len(kernel)) / 2
    assert abs(float(objective(views)[0].detach()) - total) < 1e-9


def test_it_trains_from_its_row(
    uniformity: ModuleType, pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "photos").symlink_to(pictures)
    monkeypatch.chdir(tmp_path)
    assert "epochs=10" in USE
    quick = 'epochs=1, batch_size=8, backbone="conv4", out="run", compile="off", quiet=True'
    names: dict[str, object] = {}
    exec(USE.replace("epochs=10", quick), names)
    run = names["run"]
    assert isinstance(run, relatum.api.Run)
    assert run.recipe.method == "uniformity"
    assert run.recipe.objective.uniformity == 0.5
    assert (run.path / "backbone.safetensors").exists()
    assert '"alignment"' in (run.path / "metrics.jsonl").read_text()
    with pytest.raises(InputError, match="uniformity needs at least 2 views"):
        relatum.pretrain("photos", method="uniformity", views=1, out="none")


def test_other_processes_evaluate_and_report_its_run_without_knowing_it(
    uniformity: ModuleType, pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(pictures, tmp_path / "photos")
    monkeypatch.chdir(tmp_path)
    quick = {"epochs": 1, "batch_size": 8, "backbone": "conv4", "compile": "off", "quiet": True}
    relatum.pretrain("photos/", method="uniformity", out="runs/photos", **quick)
    (tmp_path / "uniformity.py").unlink()  # no other process can import it
    for line in COMMANDS.splitlines():
        arguments = [sys.executable, "-m", *shlex.split(line)]
        done = subprocess.run(arguments, capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, done.stderr
    result = json.loads((tmp_path / "runs/photos/evaluations/knn-photos-val.json").read_text())
    assert result["pretrain"]["method"] == "uniformity"
    assert result["pretrain"]["objective"] == {"uniformity": 1.0, "projection": 64}
    assert "uniformity" in (tmp_path / "runs/photos/report.html").read_text()


def test_a_run_of_an_unknown_method_is_read_and_not_resumed(
    uniformity: ModuleType, pictures: Path, tmp_path: Path
) -> None:
    flags = {"method": "uniformity", "epochs": 1, "batch_size": 8, "backbone": "conv4", "compile": "off", "quiet": True}
    run = relatum.pretrain(pictures, out=tmp_path / "run", **flags)
    known = run.recipe
    del METHODS["uniformity"]
    assert run.recipe.objective == {"uniformity": 1.0, "projection": 64}
    assert run.recipe.to_toml() == known.to_toml()
    (run.path / "backbone.safetensors").unlink()
    with pytest.raises(InputError, match="unknown method 'uniformity'"):
        relatum.pretrain(out=run, resume=True)
    with pytest.raises(InputError, match="unknown method 'uniformity'"):
        relatum.pretrain(recipe=run.path / "recipe.toml", out=tmp_path / "other")


QUICK: dict[str, Any] = {"epochs": 2, "batch_size": 8, "backbone": "conv4", "compile": "off", "quiet": True}


def test_the_test_on_the_page_passes(tico: ModuleType) -> None:
    names: dict[str, Any] = {}
    exec(TEST, names)
    names["test_loss"]()


def test_the_method_with_state_resumes_exactly(
    tico: ModuleType, pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = relatum.pretrain(pictures, method="tico", out=tmp_path / "whole", **QUICK)
    step = tico.TiCo.after_step

    def crash(objective: nn.Module, number: int, total: int) -> None:
        step(objective, number, total)
        if number == 6:
            raise RuntimeError("in the second epoch")

    every = {"checkpoint.every_steps": 1}
    monkeypatch.setattr(tico.TiCo, "after_step", crash)
    with pytest.raises(RuntimeError, match="in the second epoch"):
        relatum.pretrain(pictures, method="tico", out=tmp_path / "cut", set=every, **QUICK)
    monkeypatch.setattr(tico.TiCo, "after_step", step)
    cut = relatum.pretrain(out=tmp_path / "cut", resume=True, quiet=True)
    weights = [(run.path / "backbone.safetensors").read_bytes() for run in (whole, cut)]
    assert weights[0] == weights[1]


@pytest.mark.slow
def test_processes_that_relatum_starts_know_the_method(tico: ModuleType, pictures: Path, tmp_path: Path) -> None:
    run = relatum.pretrain(pictures, method="tico", out=tmp_path / "run", devices=2, device="cpu", **QUICK)
    assert (run.path / "backbone.safetensors").exists()


def test_a_method_of_the_script_itself_is_refused_with_several_processes(
    tico: ModuleType, pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tico.TiCoOptions, "__module__", "__main__")
    with pytest.raises(InputError, match="the method tico is defined in the script itself"):
        relatum.pretrain(pictures, method="tico", out=tmp_path / "run", devices=2, device="cpu", **QUICK)
