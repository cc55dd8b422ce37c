"""A new backbone is one file and one row of `registry.BACKBONES`: it then trains for an epoch and loads again."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import relatum
from relatum import registry

FILE = """
from torch import Tensor, nn


class Small(nn.Module):
    num_features = 12

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 12, 3, stride=2)

    def stem(self, x: Tensor) -> Tensor:
        return self.conv(x).relu()

    def body(self, first_map: Tensor) -> Tensor:
        return first_map.mean((2, 3))

    def forward(self, x: Tensor) -> Tensor:
        return self.body(self.stem(x))


def small() -> Small:
    return Small()
"""


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    (tmp_path / "small_backbone.py").write_text(FILE)
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.invalidate_caches()
    row = registry.Backbone("small_backbone:small", "Small", "one convolution", num_features=12, parameters=336)
    monkeypatch.setitem(registry.BACKBONES, "small", row)
    yield "small"
    sys.modules.pop("small_backbone", None)


@pytest.mark.parametrize("method", ["relational", "deepinfomax"])  # the second one needs `stem` and `body`
def test_it_trains_and_loads_from_its_row(small: str, method: str, pictures: Path, tmp_path: Path) -> None:
    flags = {"epochs": 1, "batch_size": 12, "compile": "off", "threads": 1, "quiet": True}
    views = 2 if method == "relational" else 1
    run = relatum.pretrain(pictures, out=tmp_path / "run", backbone=small, method=method, views=views, **flags)
    assert run.recipe.backbone.name == "small"
    backbone = relatum.load_backbone(run.path)
    assert sum(p.numel() for p in backbone.parameters()) == registry.BACKBONES["small"].parameters
    assert backbone(torch.zeros(2, 3, 32, 32)).shape == (2, registry.BACKBONES["small"].num_features)
