"""tiny-ImageNet. The `test` split is the archive's `val` folder: the labels of its test images are not published."""

from __future__ import annotations

from relatum.data.dataset import Archive, Dataset

TINY_IMAGENET = Dataset(
    name="tiny-imagenet",
    title="tiny-ImageNet",
    summary="100,000 + 10,000 images, 200 classes",
    reader="relatum.data.readers.tiny_imagenet:read",
    side=64,
    pad=8,
    mean=(0.5, 0.5, 0.5),
    std=(0.25, 0.25, 0.25),
    classes=200,
    splits={"train": 100_000, "test": 10_000},
    folder="tiny-imagenet-200",
    files=("wnids.txt", "words.txt", "train", "val"),
    archive=Archive(
        "http://cs231n.stanford.edu/tiny-imagenet-200.zip", "90528d7ca1a48142e341f4ef8d21d0de", 248_100_043
    ),
)
