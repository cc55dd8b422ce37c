"""The standard ResNet-34 (He et al. 2016), with torchvision's parameter names, so that weights can be exchanged."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional as F

from relatum.backbones.base import initialise
from relatum.backbones.blocks import stage


class ResNet34(nn.Module):
    """Four stages behind a 7×7/2 stem and a max-pool."""

    num_features = 512

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 64, 7, stride=2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.layer1 = stage(64, 64, 3, stride=1)
        self.layer2 = stage(64, 128, 4, stride=2)
        self.layer3 = stage(128, 256, 6, stride=2)
        self.layer4 = stage(256, 512, 3, stride=2)
        initialise(self)

    def stem(self, x: Tensor) -> Tensor:
        """The first feature map, before the max-pool."""
        return F.relu(self.bn1(self.conv1(x)))

    def body(self, first_map: Tensor) -> Tensor:
        """The representation, from the first feature map."""
        x = F.max_pool2d(first_map, 3, stride=2, padding=1)
        return self.layer4(self.layer3(self.layer2(self.layer1(x)))).mean((2, 3))

    def forward(self, x: Tensor) -> Tensor:
        """Images (N, 3, H, W) to representations (N, 512)."""
        return self.body(self.stem(x))


def resnet34() -> ResNet34:
    """ResNet-34: 21,284,672 parameters without a classifier."""
    return ResNet34()
