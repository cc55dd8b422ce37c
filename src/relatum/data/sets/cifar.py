"""CIFAR-10 and CIFAR-100. `cifar100-20` is CIFAR-100 with its 20 coarse labels."""

from __future__ import annotations

from dataclasses import replace

from relatum.data.dataset import Archive, Dataset

CIFAR10 = Dataset(
    name="cifar10",
    title="CIFAR-10",
    summary="60,000 images, 10 classes",
    reader="relatum.data.readers.cifar:read_cifar10",
    side=32,
    pad=4,
    mean=(0.491, 0.482, 0.447),
    std=(0.247, 0.243, 0.262),
    classes=10,
    splits={"train": 50_000, "test": 10_000},
    cutout_area=0.25,
    super_categories=True,
    folder="cifar-10-batches-py",
    files=(*(f"data_batch_{number}" for number in range(1, 6)), "test_batch", "batches.meta"),
    archive=Archive(
        "https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz", "c58f30108f718f92721af3b95e74349a", 170_498_071
    ),
)

CIFAR100 = Dataset(
    name="cifar100",
    title="CIFAR-100",
    summary="60,000 images, 100 classes",
    reader="relatum.data.readers.cifar:read_cifar100",
    side=32,
    pad=4,
    mean=(0.507, 0.487, 0.441),
    std=(0.267, 0.256, 0.276),
    classes=100,
    splits={"train": 50_000, "test": 10_000},
    cutout_area=0.0625,
    same_images="cifar100-20",
    super_categories=True,
    folder="cifar-100-python",
    files=("train", "test", "meta"),
    archive=Archive(
        "https://www.cs.toronto.edu/~kriz/cifar-100-python.tar.gz", "eb9058c3a382ffc7106e4002c42a8d85", 169_001_437
    ),
)

CIFAR100_20 = replace(
    CIFAR100,
    name="cifar100-20",
    title="CIFAR-100-20",
    summary="CIFAR-100 with its 20 coarse labels",
    reader="relatum.data.readers.cifar:read_cifar100_coarse",
    classes=20,
    same_images="cifar100",
    super_categories=False,
)
