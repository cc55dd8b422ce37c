"""A backbone that fails in one process of a run, for tests of what the others do."""

from __future__ import annotations

import os
import signal

import torch
from torch import Tensor, distributed, nn


class Faulty(nn.Module):
    """A small network. $FAULT (`error`, `kill` or `nan`) happens in process $FAULT_RANK in its sixth training pass."""

    num_features = 32

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.bn, self.linear = nn.Conv2d(3, 16, 3, 4), nn.BatchNorm2d(16), nn.Linear(16, 32)
        self.passes = 0

    def forward(self, x: Tensor) -> Tensor:
        """Representations, or the fault."""
        self.passes += self.training
        if self.passes == 6 and distributed.get_rank() == int(os.environ["FAULT_RANK"]):
            if os.environ["FAULT"] == "error":
                raise ValueError("the disk is on fire\nand more")
            if os.environ["FAULT"] == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            x = x * float("nan")
        features: Tensor = self.linear(torch.relu(self.bn(self.conv(x))).mean((2, 3)))
        return features


def build() -> nn.Module:
    """The backbone."""
    return Faulty()
