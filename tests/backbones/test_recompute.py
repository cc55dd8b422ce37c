"""Recomputed activations: the same loss, gradients and running statistics, to the bit, in less memory."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from relatum import backbones
from relatum.backbones import recompute
from relatum.distributed import convert
from relatum.errors import InputError


def step(name: str, *, attach: bool, shared: bool, images: int = 6) -> tuple[nn.Module, torch.Tensor]:
    """A backbone after two forward and backward passes with gradients added up."""
    network = backbones.build(name, seed=3).train()
    if attach:
        recompute.attach(network)
    if shared:  # batch-norm over processes, of which there is one
        convert(network, lambda x: x)
    generator = torch.Generator().manual_seed(1)
    for _ in range(2):
        loss = network(torch.randn(images, 3, 32, 32, generator=generator)).square().mean()
        loss.backward()
    return network, loss.detach()


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("name", ["conv4", "resnet8", "resnet34"])
def test_recomputing_changes_no_bit(name: str, shared: bool) -> None:
    (plain, loss), (recomputed, same) = (step(name, attach=attach, shared=shared) for attach in (False, True))
    assert torch.equal(loss, same)
    for (key, a), (_, b) in zip(plain.named_parameters(), recomputed.named_parameters(), strict=True):
        assert a.grad is not None
        assert b.grad is not None
        assert torch.equal(a.grad, b.grad), key
    buffers = dict(recomputed.named_buffers())
    for key, value in plain.named_buffers():
        assert torch.equal(value, buffers[key]), key
    tracked = [value for key, value in buffers.items() if key.endswith("num_batches_tracked")]
    assert [int(value) for value in tracked] == [2] * len(tracked)


def test_recomputing_halves_the_peak() -> None:
    if not Path("/proc/self/clear_refs").exists():
        pytest.skip("the peak of a process can be reset on Linux only")
    plain, recomputed = (_peak(attach) for attach in (False, True))
    assert recomputed < 0.6 * plain, f"{recomputed / 1e6:.0f} MB instead of {plain / 1e6:.0f} MB"


def _peak(attach: bool) -> int:
    """Bytes that one pass of ResNet-32 over 128 images needs at its peak, beyond what the process had before."""
    network = backbones.build("resnet32", seed=3).train()
    if attach:
        recompute.attach(network)
    x = torch.randn(128, 3, 32, 32)
    before = _memory("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")
    network(x).square().mean().backward()
    return _memory("VmHWM") - before


def _memory(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{name}:"))


def test_a_backbone_without_known_blocks_is_refused() -> None:
    with pytest.raises(InputError, match="no blocks that can be recomputed"):
        recompute.attach(nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten()))
