"""Networks of others: what cannot be trained, or could not be used afterwards, is refused before training."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import relatum
from relatum import backbones
from relatum.errors import InputError
from relatum.training import health

FLAGS: dict[str, Any] = {"views": 2, "batch_size": 8, "epochs": 1, "compile": "off", "threads": 1, "quiet": True}
PIXELS = list(np.random.default_rng(0).integers(0, 256, (16, 16, 16, 3), np.uint8))


class Net(nn.Module):
    """A small network; `change` is what becomes of its representations."""

    def __init__(self, change: Any = None) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(3, 8, 3, 2), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.change = change

    def forward(self, x: Tensor) -> Tensor:
        z = self.layers(x)
        return z if self.change is None else self.change(z)  # type: ignore[no-any-return]


class NotTheLast(Net):
    """As MobileNetV3 of timm: `num_features` is the size of the last feature map, and another layer follows."""

    num_features = 8

    def __init__(self) -> None:
        super().__init__(nn.Linear(8, 12))


class Unaware(Net):
    """A network with attributes that relatum uses as well."""

    def __init__(self, info: Any) -> None:
        super().__init__()
        self.info = info


class Locked(Net):
    """A network that cannot be copied."""

    def __init__(self) -> None:
        super().__init__()
        self.lock = threading.Lock()


def without_gradients(z: Tensor) -> Tensor:
    return z.detach()


def test_a_declared_size_of_an_inner_layer_is_not_used(tmp_path: Path) -> None:
    assert backbones.feature_size(NotTheLast()) == 12
    relatum.RelationalReasoning(NotTheLast())(torch.zeros(2, 3, 3, 16, 16))
    run = relatum.pretrain(PIXELS, out=tmp_path / "run", backbone=NotTheLast(), **FLAGS)
    assert relatum.embed(run, PIXELS, progress=False).shape == (16, 12)
    assert run.backbone().num_features == 12
    fresh = relatum.load_backbone(run, backbone=NotTheLast())
    assert fresh.num_features == 12


def test_a_declared_size_helps_where_blank_images_of_32_pixels_do_not_fit() -> None:
    network = nn.Sequential(nn.Flatten(), nn.Linear(3 * 40 * 40, 5))
    with pytest.raises(InputError, match="a pass over two blank 32 × 32 images failed"):
        backbones.feature_size(network)
    network.num_features = 5  # type: ignore[assignment]
    assert backbones.feature_size(network) == 5


def test_a_network_for_another_size_is_told_about_side(tmp_path: Path) -> None:
    """It was asked for num_features, which `pretrain` does not take."""
    network = nn.Sequential(nn.Flatten(), nn.Linear(3 * 40 * 40, 5))
    with pytest.raises(InputError, match=r"16 × 16 images failed .*object:Sequential may need another size: side="):
        relatum.pretrain(PIXELS, out=tmp_path / "run", backbone=network, **FLAGS)


@pytest.mark.parametrize(
    ("change", "kind"), [(torch.fft.fft, "complex64"), (Tensor.long, "int64"), (Tensor.to_sparse, "sparse_coo")]
)
def test_representations_are_floating_point_numbers(change: Any, kind: str) -> None:
    with pytest.raises(InputError, match=f"representations of floating-point numbers; this one gives {kind}"):
        relatum.RelationalReasoning(Net(change))
    with pytest.raises(InputError, match=f"this one gives {kind}"):
        relatum.embed(Net(change), PIXELS, progress=False)


@pytest.mark.parametrize(
    ("network", "reason"),
    [
        (Net().requires_grad_(False), r"no weight of the backbone needs a gradient, .*requires_grad_\(True\)"),
        (Net(without_gradients), "no gradient reaches the backbone"),
        (Unaware("about me"), r"an attribute 'info' of its own \(str\)"),
    ],
    ids=["frozen", "detached", "info"],
)
def test_what_cannot_be_trained_is_refused(network: nn.Module, reason: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=reason):
        relatum.pretrain(PIXELS, out=tmp_path / "run", backbone=network, **FLAGS)
    assert not (tmp_path / "run" / "backbone.safetensors").exists()


def test_a_loaded_backbone_is_frozen_and_not_trained_in_silence(tmp_path: Path) -> None:
    first = relatum.pretrain(PIXELS, out=tmp_path / "first", **{**FLAGS, "epochs": 0})
    with pytest.raises(InputError, match="load_backbone gives frozen networks"):
        relatum.pretrain(PIXELS, out=tmp_path / "second", backbone=relatum.load_backbone(first), **FLAGS)


def test_a_mask_of_infinite_values_is_named(tmp_path: Path) -> None:
    """Training stopped at the first checkpoint, and advised a smaller learning rate."""
    network = Net()
    network.register_buffer("mask", torch.full((2, 2), -torch.inf))
    with pytest.raises(InputError, match=r"infinite values in mask before training.* persistent=False"):
        relatum.pretrain(PIXELS, out=tmp_path / "run", backbone=network, **FLAGS)


def test_an_empty_info_does_not_hide_the_normalisation(tmp_path: Path) -> None:
    settings = {"data.mean": "0.1,0.2,0.3"}
    run = relatum.pretrain(PIXELS, out=tmp_path / "run", backbone=Unaware(None), set=settings, **FLAGS)
    loaded: Any = relatum.load_backbone(run, backbone=Unaware(None))
    assert loaded.info["mean"] == [0.1, 0.2, 0.3]
    z = relatum.embed(run, PIXELS, progress=False)
    x = torch.tensor(np.stack(PIXELS)).permute(0, 3, 1, 2) / 255
    mean, std = (torch.tensor(loaded.info[name]).view(1, 3, 1, 1) for name in ("mean", "std"))
    with torch.no_grad():
        np.testing.assert_allclose(z, loaded((x - mean) / std), atol=1e-5)


class InPlace(Net):
    """A network that normalises its input in place."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.sub_(0.5).div_(0.25))


@pytest.mark.parametrize("method", ["byol", "moco", "dino"])
def test_a_second_encoder_gets_the_same_views(method: str, tmp_path: Path) -> None:
    """It got views that the backbone had normalised before, and normalised them again."""
    with pytest.raises(InputError, match="the backbone changes its input in place"):
        relatum.pretrain(PIXELS, out=tmp_path / "run", backbone=InPlace(), method=method, **FLAGS)


def test_measuring_collapse_does_not_change_the_sample(tmp_path: Path) -> None:
    images = torch.randn(4, 3, 16, 16)
    before = images.clone()
    health.spread(InPlace(), images)
    assert torch.equal(images, before)
    relatum.pretrain(PIXELS, out=tmp_path / "run", backbone=InPlace(), **FLAGS)  # one encoder sees them once


class Centred(Net):
    """A network whose outputs depend on a running mean."""

    def __init__(self, *, persistent: bool) -> None:
        super().__init__()
        self.register_buffer("centre", torch.zeros(8), persistent=persistent)
        self.register_buffer("cache", torch.zeros(0), persistent=False)
        self.register_buffer("scale", torch.ones(8), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        z = super().forward(x)
        self.cache = torch.zeros(len(z))
        if self.training:
            self.centre = 0.9 * self.centre + 0.1 * z.detach().mean(0)
        return (z - self.centre) * self.scale


@pytest.mark.parametrize("persistent", [True, False])
def test_state_that_the_weights_lack_is_named(persistent: bool, tmp_path: Path, capsys: Any) -> None:
    flags = {**FLAGS, "quiet": False}
    relatum.pretrain(PIXELS, out=tmp_path / "run", backbone=Centred(persistent=persistent), **flags)
    said = " ".join(capsys.readouterr().err.split())
    assert ("buffer centre changed in training" in said) == (not persistent)
    assert "buffer cache" not in said
    assert "buffer scale" not in said


def test_lazy_layers_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their weights were drawn by the first images and not from the recipe's seed, and could not be loaded."""
    (tmp_path / "lazy_net.py").write_text(
        "from torch import nn\ndef net():\n    return nn.Sequential(nn.Flatten(), nn.LazyLinear(5))\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(InputError, match=r"has lazy layers .* once in the function"):
        relatum.pretrain(PIXELS, out=tmp_path / "run", backbone="lazy_net:net", **FLAGS)
    run = relatum.pretrain(
        PIXELS, out=tmp_path / "run", backbone=nn.Sequential(nn.Flatten(), nn.LazyLinear(5)), **FLAGS
    )
    with pytest.raises(InputError, match="a network with lazy layers"):
        relatum.load_backbone(run, backbone=nn.Sequential(nn.Flatten(), nn.LazyLinear(5)))


def test_a_network_that_cannot_be_copied_is_named(tmp_path: Path) -> None:
    run = relatum.pretrain(PIXELS, out=tmp_path / "run", backbone=Locked(), **FLAGS)
    with pytest.raises(InputError, match=r"cannot be copied .* architecture='module:function'"):
        relatum.embed(run, PIXELS, progress=False)


def test_a_program_of_torch_export_is_not_trained(tmp_path: Path) -> None:
    batch = torch.export.Dim("batch", min=1)
    program = torch.export.export(Net(), (torch.zeros(2, 3, 16, 16),), dynamic_shapes=({0: batch},)).module()
    with pytest.raises(InputError, match="cannot be trained"):
        relatum.pretrain(PIXELS, out=tmp_path / "run", backbone=program, **FLAGS)


@pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")
def test_torchscript_is_not_trained(tmp_path: Path) -> None:
    script = torch.jit.script(nn.Sequential(nn.Flatten(), nn.Linear(768, 4)))
    with pytest.raises(InputError, match="TorchScript cannot be trained"):
        relatum.pretrain(PIXELS, out=tmp_path / "run", backbone=script, **FLAGS)
    assert relatum.embed(script, PIXELS, progress=False).shape == (16, 4)
