"""A custom backbone: any module that maps (N, 3, H, W) to (N, d).

From the command line:   relatum pretrain shapes --backbone custom_backbone:make --views 4 --epochs 1   (in this folder)
From Python:             python examples/custom_backbone.py
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from torch import nn

import relatum


def make() -> nn.Module:
    """A network with 48 features."""
    return nn.Sequential(
        *(nn.Conv2d(3, 24, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(24), nn.ReLU()),
        *(nn.Conv2d(24, 48, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(48), nn.ReLU()),
        *(nn.AdaptiveAvgPool2d(1), nn.Flatten()),
    )


def main(images: int = 512) -> float | None:
    """Pretrain it on a few images and evaluate it."""
    with tempfile.TemporaryDirectory() as folder:
        network = make()
        run = relatum.pretrain(
            "shapes", out=Path(folder) / "run", backbone=network, views=4, epochs=1, limit_train=images
        )
        backbone = relatum.load_backbone(run, backbone=make())  # the same architecture again
        z = relatum.embed(backbone, "shapes")
        print(f"{len(z):,} representations of {z.shape[1]} numbers")
        return float(z.std())


if __name__ == "__main__":
    main()
