"""Backbones: sizes, names and initialisation as the paper and the authors' checkpoints have them."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import relatum
from relatum import backbones, registry
from relatum.errors import InputError
from relatum.objectives.deepinfomax import DeepInfoMax
from relatum.objectives.relational import RelationalReasoning

PARAMETERS = {"conv4": 24_648, "resnet8": 77_392, "resnet32": 466_256, "resnet56": 855_120, "resnet34": 21_284_672}
BLOCKS = {"resnet8": (1, 1, 1), "resnet32": (5, 5, 5), "resnet56": (9, 9, 9), "resnet34": (3, 4, 6, 3)}


@pytest.fixture(scope="module", params=list(PARAMETERS))
def named(request: pytest.FixtureRequest) -> tuple[str, nn.Module]:
    return request.param, backbones.build(request.param, seed=1)


def test_sizes_are_the_papers(named: tuple[str, nn.Module]) -> None:
    name, network = named
    assert sum(p.numel() for p in network.parameters()) == PARAMETERS[name] == registry.BACKBONES[name].parameters
    assert network.num_features == registry.BACKBONES[name].num_features == (512 if name == "resnet34" else 64)
    assert set(registry.BACKBONES) == set(PARAMETERS)


@pytest.mark.parametrize("side", [32, 64])
def test_forward_is_body_after_stem(named: tuple[str, nn.Module], side: int) -> None:
    name, network = named
    network.eval()
    x = torch.randn(2, 3, side, side, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        first_map = network.stem(x)
        z = network.body(first_map)
        assert torch.equal(z, network(x))
    assert z.shape == (2, network.num_features)
    channels, stride = {"conv4": (8, 1), "resnet34": (64, 2)}.get(name, (16, 1))
    assert first_map.shape == (2, channels, side // stride, side // stride)
    assert float(first_map.min()) == 0.0  # after the ReLU
    assert float(z.min()) >= 0.0


def expected_names(name: str) -> set[str]:
    norm = ("weight", "bias", "running_mean", "running_var", "num_batches_tracked")
    if name == "conv4":
        return {f"layer{i}.{part}" for i in (1, 2, 3, 4) for part in ("conv.weight", *(f"bn.{n}" for n in norm))}
    names = {"conv1.weight", *(f"bn1.{n}" for n in norm)}
    for stage, blocks in enumerate(BLOCKS[name], 1):
        for block in range(blocks):
            at = f"layer{stage}.{block}"
            names |= {f"{at}.conv{i}.weight" for i in (1, 2)} | {f"{at}.bn{i}.{n}" for i in (1, 2) for n in norm}
            if block == 0 and stage > 1:
                names |= {f"{at}.downsample.0.weight"} | {f"{at}.downsample.1.{n}" for n in norm}
    return names


def test_parameter_names_are_those_of_the_authors_checkpoints(named: tuple[str, nn.Module]) -> None:
    name, network = named
    assert set(network.state_dict()) == expected_names(name)


def test_initialisation(named: tuple[str, nn.Module]) -> None:
    """Convolutions N(0, √(2 / (k²·out))): the standard deviation within five of its own standard errors."""
    _, network = named
    for module in network.modules():
        if isinstance(module, nn.Conv2d):
            assert module.bias is None
            want = math.sqrt(2 / (module.kernel_size[0] ** 2 * module.out_channels))
            count = module.weight.numel()
            assert abs(float(module.weight.detach().std()) / want - 1) < 5 / math.sqrt(2 * count)
            assert abs(float(module.weight.detach().mean())) < 5 * want / math.sqrt(count)
        elif isinstance(module, nn.BatchNorm2d):
            assert bool((module.weight == 1).all())
            assert bool((module.bias == 0).all())


def test_weights_are_drawn_from_the_seed_alone() -> None:
    torch.manual_seed(0)
    first = backbones.build("conv4", seed=1)
    after = torch.rand(3)
    torch.manual_seed(0)
    assert torch.equal(torch.rand(3), after)  # building drew nothing from the global generator
    again, other = backbones.build("conv4", seed=1), backbones.build("conv4", seed=2)
    assert torch.equal(first.layer1.conv.weight, again.layer1.conv.weight)
    assert not torch.equal(first.layer1.conv.weight, other.layer1.conv.weight)


def test_conv4_against_its_definition() -> None:
    network = backbones.build("conv4", seed=3).eval()
    x = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(1))
    h = x
    with torch.no_grad():
        for number, layer in enumerate((network.layer1, network.layer2, network.layer3, network.layer4), 1):
            h = torch.relu(nn.functional.conv2d(h, layer.conv.weight, padding=1) / math.sqrt(1 + 1e-5))
            h = (
                h.reshape(2, h.shape[1], h.shape[2] // 2, 2, h.shape[3] // 2, 2).mean((3, 5))
                if number < 4
                else h.mean((2, 3))
            )
        torch.testing.assert_close(network(x), h)


def test_custom_backbones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = nn.Sequential(nn.Flatten(), nn.Linear(3 * 32 * 32, 7))
    assert backbones.build(mine) is mine
    assert backbones.feature_size(mine) == 7
    assert mine.training
    (tmp_path / "my_network.py").write_text("from torch import nn\ndef net():\n    return nn.Flatten()\nthing = len\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    built = backbones.build("my_network:net")
    assert isinstance(built, nn.Flatten)
    assert backbones.feature_size(built, 8) == 192
    with pytest.raises(InputError, match="cannot be imported"):
        backbones.build("my_network:absent")
    with pytest.raises(InputError, match="did you mean 'conv4'"):
        backbones.build("conv-4")
    with pytest.raises(InputError, match=re.escape("(N, d)")):
        backbones.feature_size(nn.Conv2d(3, 4, 3))
    with pytest.raises(InputError, match="not a torch"):
        backbones.build(lambda: 3)  # type: ignore[arg-type, return-value]


class Pooled(nn.Module):
    """A network with a declared size and an output that is not a tensor, as those of transformers are."""

    num_features = 8

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3 * 32 * 32, 8)

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"pooler_output": self.layer(x.flatten(1))}


def test_an_output_that_is_not_a_tensor_is_named() -> None:
    pixels = np.zeros((2, 32, 32, 3), np.uint8)
    for use in (
        lambda: relatum.RelationalReasoning(Pooled())(torch.zeros(2, 3, 3, 32, 32)),
        lambda: relatum.embed(Pooled(), pixels),
    ):
        with pytest.raises(InputError, match="a backbone must give \\(N, d\\) representations; this one gives a dict"):
            use()


class FrozenNorms(nn.Module):
    """A custom backbone whose batch-norms are frozen while it is trained."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution, self.norm = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)
        self.train()
        self.norm.eval()

    def stem(self, x: Tensor) -> Tensor:
        return self.norm(self.convolution(x))

    def body(self, first_map: Tensor) -> Tensor:
        return first_map.mean((2, 3))

    def forward(self, x: Tensor) -> Tensor:
        return self.body(self.stem(x))


@pytest.mark.parametrize("method", [RelationalReasoning, partial(DeepInfoMax, num_features=4)])
def test_a_trial_pass_leaves_frozen_parts_frozen(method: Callable[[nn.Module], nn.Module]) -> None:
    """The pass over two blank images that tells the size of a representation put all parts in training mode."""
    network = FrozenNorms()
    method(network)
    assert (network.training, network.convolution.training, network.norm.training) == (True, True, False)
    with pytest.raises(InputError, match="failed"):
        backbones.check_side(network, "timm:any", 2)
    assert not network.norm.training


class _Idle(nn.Module):
    """A network with a classifier that `forward` does not call, as many have that were written for labels."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 5, 3), nn.BatchNorm2d(5), nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.fc = nn.Linear(5, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        z: torch.Tensor = self.body(x)
        return z


def test_weights_without_influence_are_found_and_nothing_changes() -> None:
    for name in ("conv4", "resnet8"):
        assert not backbones.has_idle_weights(backbones.build(name), 32)
    network = _Idle()
    network.body[1].eval()  # frozen statistics
    before = {key: value.clone() for key, value in network.state_dict().items()}
    assert backbones.has_idle_weights(network, 16)
    assert network.training
    assert not network.body[1].training
    assert all(torch.equal(before[key], value) for key, value in network.state_dict().items())
    assert all(p.grad is None for p in network.parameters())
    network.fc.requires_grad_(False)
    assert not backbones.has_idle_weights(network, 16)
    assert not backbones.has_idle_weights(network.requires_grad_(False), 16)
