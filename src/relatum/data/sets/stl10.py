"""STL-10: 100,000 unlabelled images to pretrain on, 13,000 labelled ones."""

from __future__ import annotations

from relatum.data.dataset import Archive, Dataset

STL10 = Dataset(
    name="stl10",
    title="STL-10",
    summary="100,000 unlabelled, 5,000 + 8,000 labelled",
    reader="relatum.data.readers.stl10:read",
    side=96,
    pad=12,
    mean=(0.5, 0.5, 0.5),
    std=(0.5, 0.5, 0.5),
    classes=10,
    splits={"train": 5_000, "test": 8_000, "unlabeled": 100_000},
    pretrain_split="unlabeled",
    super_categories=True,
    folder="stl10_binary",
    files=("train_X.bin", "train_y.bin", "test_X.bin", "test_y.bin", "unlabeled_X.bin", "class_names.txt"),
    archive=Archive(
        "http://ai.stanford.edu/~acoates/stl10/stl10_binary.tar.gz", "91f7769df0f17e558f3565bffb0c7dfb", 2_640_397_119
    ),
)
