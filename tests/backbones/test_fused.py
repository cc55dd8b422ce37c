"""The fused Conv-4 against its plain modules in float64: values, every gradient, running statistics, and sameness."""

from __future__ import annotations

import copy
import functools
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from relatum import backbones
from relatum.backbones import fused
from relatum.backbones.conv4 import Conv4
from relatum.kernels import conv4 as kernels


@pytest.fixture
def network() -> Conv4:
    """A Conv4 whose batch-norms are not the identity, in the order of memory that training uses."""
    network = backbones.build("conv4", seed=3)
    assert isinstance(network, Conv4)
    draw = torch.Generator().manual_seed(5)
    for name, value in network.named_parameters():
        if ".bn." in name:
            value.data += 0.3 * torch.randn(value.shape, generator=draw)
    return network.to(memory_format=torch.channels_last).train()


@pytest.fixture
def threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def images(count: int, side: int = 32, *, seed: int = 0) -> Tensor:
    return torch.randn(count, 3, side, side, generator=torch.Generator().manual_seed(seed))


def step(network: Conv4, x: Tensor, *, plain: bool) -> dict[str, Tensor]:
    """Representations, gradients of a random projection of them, and buffers afterwards."""
    weights = torch.randn(len(x), 64, generator=torch.Generator().manual_seed(1)).to(x.dtype)
    z = network(x) if plain else fused.forward(network, x)
    (z * weights).sum().backward()
    gradients = {f"grad {name}": p.grad for name, p in network.named_parameters() if p.grad is not None}
    return {"z": z.detach(), **gradients, **dict(network.named_buffers())}


def error(actual: Tensor, expected: Tensor) -> float:
    return float((actual.detach().double() - expected.detach()).norm() / expected.detach().double().norm())


@pytest.mark.parametrize(("count", "side"), [(1, 32), (5, 32), (37, 32), (67, 32), (3, 64), (2, 96)])
def test_values_gradients_and_statistics_are_the_plain_modules(network: Conv4, count: int, side: int) -> None:
    x = images(count, side)
    oracle = step(copy.deepcopy(network).double(), x.double(), plain=True)
    result = step(network, x.to(memory_format=torch.channels_last), plain=False)
    assert result.keys() == oracle.keys()
    assert len(result) == 1 + 12 + 12
    for name, wanted in oracle.items():
        if name.startswith("grad"):  # they jump where ReLU's input is within rounding of zero: the fused head's bound
            assert error(result[name], wanted) < 1e-4, name
        elif name.endswith("running_mean"):  # about zero here: what counts is its error against the spread
            spread = oracle[name.replace("mean", "var")].sqrt()
            assert float(((result[name] - wanted) / spread).abs().max()) < 1e-6, name
        else:
            assert error(result[name], wanted) < 1e-5, name
    assert int(network.layer1.bn.num_batches_tracked) == 1


@pytest.mark.slow  # compiles the kernels again
@pytest.mark.parametrize("wide", [False, True])
def test_tiles_of_other_processors(network: Conv4, wide: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The register tiles for processors with and without AVX-512: both are correct on any processor."""
    monkeypatch.setattr(kernels, "WIDE", wide)
    monkeypatch.setattr(kernels, "MAX_LANES", 16 if wide else 8)
    pixels = (8, 16 if wide else 8, 8, 4)
    tiles = tuple(
        kernels.Tile(cin, cout, n) for cin, cout, n in zip((3, 8, 16, 32), (8, 16, 32, 64), pixels, strict=True)
    )
    monkeypatch.setattr(fused, "TILES", tiles)
    for name in ("forward_kernel", "backward_kernel"):
        monkeypatch.setattr(fused, name, functools.cache(getattr(kernels, name).__wrapped__))
    x = images(37)
    oracle = step(copy.deepcopy(network).double(), x.double(), plain=True)
    result = step(network, x, plain=False)
    for name, wanted in oracle.items():
        assert error(result[name], wanted) < 1e-4, name


def test_two_steps_keep_the_running_averages(network: Conv4) -> None:
    plain = copy.deepcopy(network).double()
    network.layer2.bn.momentum = plain.layer2.bn.momentum = None  # the cumulative average
    for seed in (1, 2):
        plain(images(9, seed=seed).double())
        fused.forward(network, images(9, seed=seed))
    for (name, result), wanted in zip(network.named_buffers(), plain.buffers(), strict=True):
        assert error(result, wanted) < 1e-5, name


def test_statistics_do_not_cancel(network: Conv4) -> None:
    """A mean a thousand times the spread, at the border too: Σy² − (Σy)²/n in float32 would leave nothing of it."""
    centre = network.layer1.conv.weight.data[:, :, 1, 1].abs()
    network.layer1.conv.weight.data.zero_()[:, :, 1, 1] = centre
    network.layer1.bn.momentum = 1.0
    x, plain = 1e-2 * images(16) + 10, copy.deepcopy(network).double()
    wanted, result = plain(x.double()), fused.forward(network, x)
    assert error(network.layer1.bn.running_var, plain.layer1.bn.running_var) < 1e-5
    assert error(result, wanted) < 1e-4


def test_bits_do_not_depend_on_threads_or_order_of_memory(network: Conv4, threads: None) -> None:
    x, results = images(70), []
    for number, order in ((1, torch.channels_last), (2, torch.channels_last), (3, torch.contiguous_format)):
        torch.set_num_threads(number)
        results.append(step(copy.deepcopy(network), x.contiguous(memory_format=order), plain=False))
    for name, value in results[0].items():
        assert all(torch.equal(value, other[name]) for other in results[1:]), name


def test_nan_is_not_hidden(network: Conv4) -> None:
    x = images(4)
    x[1, 0, 3, 3] = float("nan")
    assert fused.forward(network, x).isnan().any()


def test_no_gradient_is_asked_of_frozen_parameters(network: Conv4) -> None:
    network.layer1.requires_grad_(False)
    result = step(network, images(4), plain=False)
    assert "grad layer1.conv.weight" not in result
    assert "grad layer2.conv.weight" in result
    with torch.no_grad():
        assert not fused.forward(network, images(4)).requires_grad


def test_attached_network_is_fused_only_where_it_may_be(network: Conv4, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    real = fused.forward
    monkeypatch.setattr(fused, "forward", lambda n, x: (calls.append(tuple(x.shape)), real(n, x))[1])
    assert not fused.attach(backbones.build("resnet8"))
    assert fused.attach(network)
    keys = list(network.state_dict())
    twin = copy.deepcopy(network)
    network(images(4))
    assert calls == [(4, 3, 32, 32)]
    assert int(network.layer1.bn.num_batches_tracked) == 1
    assert int(twin.layer1.bn.num_batches_tracked) == 0
    twin(images(2))
    assert int(twin.layer1.bn.num_batches_tracked) == 1  # a copy trains itself, not its original
    assert list(network.state_dict()) == keys

    calls.clear()
    network(images(4, 40))  # 40 is not a multiple of 32
    network(images(4).requires_grad_())
    with torch.autocast("cpu", torch.bfloat16):
        network(images(4))
    network.layer2.bn.eval()
    network(images(4))
    network.eval()
    plain = Conv4.forward(network, images(4))
    assert torch.equal(network(images(4)), plain)
    assert calls == []
