"""SlimageNet64: 200 images of each class of ImageNet, at 64 × 64 pixels."""

from __future__ import annotations

from relatum.data.dataset import Dataset

SLIMAGENET = Dataset(
    name="slimagenet",
    title="SlimageNet64",
    summary="160 + 20 + 20 images in each of 1,000 classes",
    reader="relatum.data.readers.slimagenet:read",
    side=64,
    pad=8,
    mean=(0.5, 0.5, 0.5),
    std=(0.25, 0.25, 0.25),
    classes=1000,
    splits={"train": 160_000, "val": 20_000, "test": 20_000},
    folder="SlimageNet64",
    files=("train",),
    instructions=(
        "Get it from https://zenodo.org/record/3672132 and arrange it as {folder}/train/CLASS/*, val/CLASS/* and "
        "test/CLASS/* (160, 20 and 20 images per class)."
    ),
)
