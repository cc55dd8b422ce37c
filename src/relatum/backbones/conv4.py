"""Conv-4, the paper's shallow backbone: four convolution blocks of 8, 16, 32 and 64 maps."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional as F

from relatum.backbones.base import initialise


class ConvBlock(nn.Module):
    """Convolution 3×3 without bias, batch-norm and ReLU."""

    def __init__(self, maps_in: int, maps_out: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(maps_in, maps_out, 3, padding=1, bias=False)
        self.bn = nn.BatchNorm2d(maps_out)

    def forward(self, x: Tensor) -> Tensor:
        """Convolution, batch-norm and ReLU."""
        return F.relu(self.bn(self.conv(x)))


class Conv4(nn.Module):
    """Parameter names `layer1..4.{conv,bn}`, as in the authors' checkpoints."""

    num_features = 64

    def __init__(self) -> None:
        super().__init__()
        self.layer1 = ConvBlock(3, 8)
        self.layer2 = ConvBlock(8, 16)
        self.layer3 = ConvBlock(16, 32)
        self.layer4 = ConvBlock(32, 64)
        initialise(self)

    def stem(self, x: Tensor) -> Tensor:
        """The first feature map, before pooling."""
        return self.layer1(x)

    def body(self, first_map: Tensor) -> Tensor:
        """The representation, from the first feature map."""
        x = F.avg_pool2d(first_map, 2)
        x = F.avg_pool2d(self.layer2(x), 2)
        x = F.avg_pool2d(self.layer3(x), 2)
        return self.layer4(x).mean((2, 3))

    def forward(self, x: Tensor) -> Tensor:
        """Images (N, 3, H, W) to representations (N, 64)."""
        return self.body(self.stem(x))


def conv4() -> Conv4:
    """Conv-4: 24,648 parameters, 64 features."""
    return Conv4()
