"""The basic residual block (He et al. 2016), shared by all ResNets of the paper."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional as F


class BasicBlock(nn.Module):
    """Two 3×3 convolutions and a shortcut; a 1×1 convolution in the shortcut where the shape changes.

    Parameter names are those of torchvision: conv1, bn1, conv2, bn2, downsample.0, downsample.1.
    """

    def __init__(self, maps_in: int, maps_out: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(maps_in, maps_out, 3, stride=stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(maps_out)
        self.conv2 = nn.Conv2d(maps_out, maps_out, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(maps_out)
        self.downsample: nn.Module | None = None
        if stride != 1 or maps_in != maps_out:
            shortcut = nn.Conv2d(maps_in, maps_out, 1, stride=stride, bias=False)
            self.downsample = nn.Sequential(shortcut, nn.BatchNorm2d(maps_out))

    def forward(self, x: Tensor) -> Tensor:
        """Residual branch plus shortcut."""
        shortcut = x if self.downsample is None else self.downsample(x)
        x = F.relu(self.bn1(self.conv1(x)))
        return F.relu(self.bn2(self.conv2(x)) + shortcut)


def stage(maps_in: int, maps_out: int, blocks: int, stride: int) -> nn.Sequential:
    """A stage of `blocks` basic blocks; the first one changes the shape."""
    first = BasicBlock(maps_in, maps_out, stride)
    return nn.Sequential(first, *(BasicBlock(maps_out, maps_out, 1) for _ in range(blocks - 1)))
