"""The example of docs/adding-a-method.md: under 60 lines, and it works as it stands there."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
import torch
from torch import nn

import relatum
from relatum import registry

TEXT = (Path(__file__).parents[1] / "docs" / "adding-a-method.md").read_text("utf-8")
FILE, USE = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)


@pytest.fixture
def barlow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    (tmp_path / "barlow.py").write_text(FILE)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield importlib.import_module("barlow")
    registry.METHODS.pop("barlow", None)
    sys.modules.pop("barlow", None)


def test_it_is_short() -> None:
    lines = [line for line in FILE.splitlines() if line.strip()]
    assert len(lines) < 60


def test_the_loss_is_that_of_the_paper_it_is_from(barlow: ModuleType) -> None:
    objective = barlow.BarlowTwins(
        nn.Sequential(nn.Flatten(), nn.Linear(12, 5)), 5, redundancy=0.3, projection=4
    ).double()
    views = torch.randn(2, 7, 3, 2, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    one, two = objective.head(objective.backbone(views.flatten(0, 1))).view(2, 7, 4)
    total = 0.0
    for i in range(4):
        for j in range(4):
            c = float(torch.corrcoef(torch.stack([one[:, i], two[:, j]]))[0, 1].detach())
            total += (1 - c) ** 2 if i == j else 0.3 * c**2
    assert abs(float(objective(views)[0].detach()) - total) < 1e-9


def test_it_trains_from_its_row(
    barlow: ModuleType, pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "photos").symlink_to(pictures)
    monkeypatch.chdir(tmp_path)
    assert "epochs=10" in USE
    quick = 'epochs=1, batch_size=8, backbone="conv4", out="run", compile="off", quiet=True'
    names: dict[str, object] = {}
    exec(USE.replace("epochs=10", quick), names)
    run = names["run"]
    assert isinstance(run, relatum.api.Run)
    assert run.recipe.method == "barlow"
    assert run.recipe.objective.redundancy == 0.01
    assert (run.path / "backbone.safetensors").exists()
    assert '"agreement"' in (run.path / "metrics.jsonl").read_text()
