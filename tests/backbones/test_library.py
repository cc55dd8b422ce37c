"""Backbones of timm and torchvision by name. Where a library does not import, a stand-in keeps its contract."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import relatum
from relatum import backbones, registry
from relatum.backbones import library
from relatum.errors import InputError
from relatum.runs.weights import save_weights


class Net(nn.Module):
    """A network with the parts of a ResNet: `conv1` (7×7/2), `maxpool` and the classifier `fc`."""

    def __init__(self, num_classes: int = 1000) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 6, 7, stride=2, padding=3, bias=False)
        self.maxpool = nn.MaxPool2d(3, 2, 1)
        self.fc: nn.Module = nn.Linear(6, num_classes) if num_classes else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(self.maxpool(self.conv1(x)).mean((2, 3)))


def get_model(name: str, weights: Any = None) -> nn.Module:
    if name != "resnet18":
        raise ValueError(f"Unknown model {name}")
    return Net()


@pytest.fixture
def libraries(monkeypatch: pytest.MonkeyPatch) -> None:
    """What relatum uses of the two libraries."""
    timm, vision, models = ModuleType("timm"), ModuleType("torchvision"), ModuleType("torchvision.models")
    timm.list_models = models.list_models = lambda: ["resnet18"]  # type: ignore[attr-defined]
    timm.is_model = lambda name: name == "resnet18"  # type: ignore[attr-defined]
    timm.create_model = lambda name, pretrained, num_classes: Net(num_classes)  # type: ignore[attr-defined]
    models.get_model, models.resnet18 = get_model, Net  # type: ignore[attr-defined]
    vision.models = models  # type: ignore[attr-defined]
    for name, module in {"timm": timm, "torchvision": vision, "torchvision.models": models}.items():
        monkeypatch.setitem(sys.modules, name, module)


@pytest.mark.usefixtures("libraries")
@pytest.mark.parametrize("name", ["timm:resnet18", "torchvision:resnet18"])
def test_the_classifier_is_removed_and_the_stem_can_be_small(name: str) -> None:
    network = backbones.build(name, seed=1)
    assert network(torch.zeros(2, 3, 32, 32)).shape == (2, 6)
    assert network.conv1(torch.zeros(2, 3, 32, 32)).shape[2:] == (16, 16)
    small = backbones.build(f"{name}/small", seed=1)
    assert small.maxpool(small.conv1(torch.zeros(2, 3, 32, 32))).shape[2:] == (32, 32)
    again = backbones.build(f"{name}/small", seed=1)
    assert torch.equal(small.conv1.weight, again.conv1.weight)


@pytest.mark.usefixtures("libraries")
def test_logits_are_refused_in_one_line() -> None:
    with pytest.raises(
        InputError, match=r"its logits are not a representation. backbone='torchvision:resnet18' removes it"
    ):
        backbones.build("torchvision.models:resnet18")
    assert library.gives_logits(Net())
    assert not library.gives_logits(Net(10))


@pytest.mark.usefixtures("libraries")
def test_a_run_is_loaded_by_its_name_alone(pictures: Path, tmp_path: Path) -> None:
    flags = {"views": 2, "batch_size": 16, "epochs": 1, "compile": "off", "threads": 1, "quiet": True}
    run = relatum.pretrain(pictures, out=tmp_path / "run", backbone="timm:resnet18/small", **flags)
    assert relatum.embed(run.path, pictures, progress=False).shape == (36, 6)


@pytest.mark.usefixtures("libraries")
def test_a_file_cannot_name_a_network_that_is_larger_than_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[int] = []

    class Huge(nn.Module):  # 40 GB, if it were built
        def __init__(self) -> None:
            super().__init__()
            for number in range(1000):
                setattr(self, f"layer{number}", nn.Linear(3200, 3200))
                built.append(number)

    monkeypatch.setattr(sys.modules["timm"], "create_model", lambda name, pretrained, num_classes: Huge())
    save_weights(tmp_path / "small.safetensors", {"x": torch.zeros(3)}, {"backbone": "timm:resnet18"})
    monkeypatch.setattr(nn.Linear, "reset_parameters", lambda layer: None)  # memory that is not written takes no room
    with pytest.raises(InputError, match="timm:resnet18: that has more weights than the file"):
        relatum.load_backbone(tmp_path / "small.safetensors")
    assert len(built) < 20
    assert isinstance(nn.Linear(9000, 20000), nn.Linear)  # no limit remains


@pytest.mark.usefixtures("libraries")
def test_names_that_do_not_exist() -> None:
    for name in ("timm:resnet81", "torchvision:resnet81"):
        with pytest.raises(InputError, match=r"model 'resnet81'; did you mean 'resnet18'\?"):
            backbones.build(name)


@pytest.mark.parametrize("name", ["timm:hf-hub:someone/net", "timm:../x", "timm:resnet18/large", "torchvision:"])
def test_a_file_cannot_smuggle_in_other_names(name: str) -> None:
    with pytest.raises(InputError, match="is not LIBRARY:MODEL"):
        registry.backbone_from_file(name, "a file")


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "timm", None)
    with pytest.raises(InputError, match=r"timm cannot be imported .*pip install timm"):
        backbones.build("timm:resnet18")


def test_a_torchvision_for_another_torch_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`pip install timm` beside the CPU build of torch installs a torchvision for CUDA, which fails to load."""
    (tmp_path / "torchvision.py").write_text("raise RuntimeError('operator torchvision::nms does not exist')")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "torchvision", raising=False)
    with pytest.raises(InputError, match=r"built for another torch .* install both from the same package index"):
        backbones.build("torchvision:resnet18")


@pytest.mark.usefixtures("libraries")
def test_a_size_that_the_network_does_not_take_is_refused_before_training(
    pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def forward(self: Net, x: Tensor) -> Tensor:
        assert x.shape[-1] == 224, f"Input height ({x.shape[-1]}) doesn't match model (224)."
        return x.mean((2, 3))

    monkeypatch.setattr(Net, "forward", forward)
    monkeypatch.setattr(Net, "num_features", 3, raising=False)
    with pytest.raises(InputError, match=r"32 × 32 images failed .*timm:resnet18 may need another size"):
        relatum.pretrain(pictures, out=tmp_path / "run", backbone="timm:resnet18", epochs=1, quiet=True)


def test_a_stem_that_does_not_fit() -> None:
    with pytest.raises(InputError, match="no convolution `conv1`"):
        library.use_small_stem(nn.Linear(2, 2), "timm:mlp")
