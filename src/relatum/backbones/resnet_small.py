"""The small ResNets of the paper (three stages of 16, 32 and 64 channels) for 32×32 to 64×64 images."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional as F

from relatum.backbones.base import initialise
from relatum.backbones.blocks import stage


class SmallResNet(nn.Module):
    """A ResNet of depth 6·blocks + 2 with 1×1-convolution shortcuts.

    Args:
        blocks: basic blocks in each of the three stages.
    """

    num_features = 64

    def __init__(self, blocks: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 16, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(16)
        self.layer1 = stage(16, 16, blocks, stride=1)
        self.layer2 = stage(16, 32, blocks, stride=2)
        self.layer3 = stage(32, 64, blocks, stride=2)
        initialise(self)

    def stem(self, x: Tensor) -> Tensor:
        """The first feature map."""
        return F.relu(self.bn1(self.conv1(x)))

    def body(self, first_map: Tensor) -> Tensor:
        """The representation, from the first feature map."""
        return self.layer3(self.layer2(self.layer1(first_map))).mean((2, 3))

    def forward(self, x: Tensor) -> Tensor:
        """Images (N, 3, H, W) to representations (N, 64)."""
        return self.body(self.stem(x))


def resnet8() -> SmallResNet:
    """ResNet-8: 77,392 parameters."""
    return SmallResNet(1)


def resnet32() -> SmallResNet:
    """ResNet-32: 466,256 parameters."""
    return SmallResNet(5)


def resnet56() -> SmallResNet:
    """ResNet-56: 855,120 parameters."""
    return SmallResNet(9)
