"""The Lightning callback: real Lightning where it imports, else a stand-in with the same contract."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from torch import nn

from relatum import backbones, data
from relatum.errors import InputError


class Callback:
    """What relatum uses of `lightning.pytorch.Callback`."""


class Module(nn.Module):
    """What the callback uses of a LightningModule."""

    def __init__(self) -> None:
        super().__init__()
        self.model = nn.ModuleDict({"backbone": backbones.build("conv4")})
        self.logged: dict[str, float] = {}

    def log(self, name: str, value: float, **options: Any) -> None:
        self.logged[name] = value


@pytest.fixture
def lightning(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    package, pytorch = ModuleType("lightning"), ModuleType("lightning.pytorch")
    pytorch.Callback = Callback  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "lightning", package)
    monkeypatch.setitem(sys.modules, "lightning.pytorch", pytorch)
    monkeypatch.delitem(sys.modules, "relatum.integrations.lightning", raising=False)
    return importlib.import_module("relatum.integrations.lightning")


def test_accuracy_is_logged_and_the_module_stays_as_it_is(lightning: ModuleType, pictures: Path) -> None:
    images = data.load(pictures)
    monitor = lightning.KNNMonitor(images, images, backbone="model.backbone", every=2)
    module = Module().train()
    monitor.on_train_epoch_end(SimpleNamespace(current_epoch=0), module)
    assert not module.logged
    monitor.on_train_epoch_end(SimpleNamespace(current_epoch=1), module)
    assert module.logged["knn_accuracy"] > 50  # each image is its own nearest neighbour
    assert all(part.training for part in module.modules())


def test_a_class_has_one_number_where_the_test_images_lack_others(lightning: ModuleType, pictures: Path) -> None:
    paths = sorted(pictures.rglob("*.png"))
    names = [path.parent.name for path in paths]
    some = [number for number, name in enumerate(names) if name != names[0]]
    few, few_names = [paths[i] for i in some], [names[i] for i in some]
    monitor = lightning.KNNMonitor(paths, few, train_labels=names, test_labels=few_names, options={"side": 32})
    assert monitor.test_labels.tolist() == monitor.train_labels[some].tolist()


def test_both_sets_have_one_side(lightning: ModuleType, pictures: Path) -> None:
    paths = sorted(pictures.rglob("*.png"))
    names = [path.parent.name for path in paths]
    large = np.zeros((36, 40, 40, 3), np.uint8)
    monitor = lightning.KNNMonitor(large, paths, train_labels=names, test_labels=names)
    assert (monitor.train.side, monitor.test.side) == (40, 40)
    with pytest.raises(InputError, match="every = 0 is out of range"):
        lightning.KNNMonitor(large, paths, train_labels=names, test_labels=names, every=0)


def test_images_in_memory_need_labels(lightning: ModuleType, pictures: Path) -> None:
    paths = sorted(pictures.rglob("*.png"))
    names = [path.parent.name for path in paths]
    monitor = lightning.KNNMonitor(paths, paths, train_labels=names, test_labels=names, options={"side": 32})
    assert monitor.train_labels.max() == 2
    with pytest.raises(InputError, match="needs a label for each of the 36 images"):
        lightning.KNNMonitor(paths, paths)
