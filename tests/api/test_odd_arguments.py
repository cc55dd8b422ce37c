"""Wrong and odd arguments from Python: one line that names the argument, and never a silent wrong result."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import relatum
from relatum.errors import InputError
from relatum.views import Views

PIXELS = np.random.default_rng(0).integers(0, 256, (2, 16, 16, 3), dtype=np.uint8)


def network(**info: Any) -> nn.Module:
    module = nn.Sequential(nn.Conv2d(3, 4, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    module.info = info  # type: ignore[assignment]
    return module


def refused(message: str, function: Any, *arguments: Any, **keywords: Any) -> None:
    with pytest.raises(InputError, match=message) as error:
        function(*arguments, **keywords)
    assert len(str(error.value).splitlines()) <= 2


@pytest.mark.parametrize(
    ("images", "message"),
    [
        ({"a.png", "b.png"}, "a set does not say which row is which"),
        ({"a.png": 1}, "a dict does not say which row is which"),
        (BytesIO(b"x"), "not BytesIO"),
        ([BytesIO(b"x")], "image 0 is a BytesIO"),
        ([b"a.png"], "image 0 is a bytes"),
        (np.full((1, 8, 8, 3), np.nan), "contains NaN"),
        (PIXELS.transpose(0, 3, 1, 2), r"not \(3, 16, 16\)\. Move the channels: np\.moveaxis\(images, -3, -1\)"),
        (torch.tensor(PIXELS), r"not \(2, 16, 16, 3\)\. Move the channels: images\.movedim\(-1, -3\)"),
    ],
)
def test_images(images: Any, message: str) -> None:
    refused(message, relatum.embed, network(), images, progress=False)


@pytest.mark.parametrize("run", [None, 3, ["runs/photos"], lambda images: images])
def test_runs(run: Any, tmp_path: Path) -> None:
    message = "give a run folder, a weights file or a module, not"
    refused(message, relatum.embed, run, PIXELS)
    refused(message, relatum.search, run, PIXELS, PIXELS)
    refused(message, relatum.evaluate, "knn", run, data="shapes")
    refused(message, relatum.export, run, format="torch", out=tmp_path / "a.pt")
    refused(message, relatum.outliers, run, "photos")


@pytest.mark.parametrize(
    ("info", "message"),
    [
        ({"side": "32"}, "side = '32' is not a whole number"),
        ({"mean": 0.5}, "mean = 0.5 must be three numbers"),
        ({"mean": (128, 128, 128)}, "must be three numbers from 0 to 1"),
        ({"std": (0, 1, 1)}, "must be three numbers above 0"),
    ],
)
def test_the_info_of_a_backbone(info: dict[str, Any], message: str) -> None:
    refused(message, relatum.embed, network(**info), PIXELS, progress=False)


def test_the_info_of_a_backbone_may_hold_arrays() -> None:
    one, other = network(mean=np.full(3, 0.5), std=torch.full((3,), 0.25)), network()
    other.load_state_dict(one.state_dict())
    z = [relatum.embed(module, PIXELS, progress=False) for module in (one, other)]
    np.testing.assert_array_equal(*z)


def test_numbers_and_names(tmp_path: Path) -> None:
    for top in (2.5, "3", None):
        refused("top = .* is not a whole number", relatum.search, network(), PIXELS, PIXELS, top=top, progress=False)
        refused("top = .* is not a whole number", relatum.outliers, network(), tmp_path, top=top)
    refused("number = 2.5 is not a whole number", relatum.cluster, network(), tmp_path, number=2.5)
    refused("batch_size = 2.5 is not a whole number", relatum.embed, network(), PIXELS, batch_size=2.5, progress=False)
    for threshold in (-1, float("nan"), "0.1"):
        refused("threshold = .* is out of range", relatum.duplicates, network(), tmp_path, threshold=threshold)
    refused("a dataset or a folder of images, not list", relatum.duplicates, network(), ["a.png"])
    refused("a dataset or a folder of images, not ndarray", relatum.evaluate, "knn", network(), data=PIXELS)
    refused("settings is a dict", relatum.evaluate, "knn", network(), data="shapes", settings="k=3")
    refused("unknown protocol 'None'", relatum.evaluate, None, network(), data="shapes")
    refused(
        "minutes=.*'5' is not a number|minutes.* is not a number",
        relatum.pretrain,
        PIXELS,
        minutes="5",
        out=tmp_path / "r",
    )


def test_views() -> None:
    refused("unknown policy '3'", Views, 3)
    refused("must be three numbers from 0 to 1", Views, mean=(128, 128, 128))
    refused("has no pixels", Views(), PIXELS[:, :0, :0])
    refused("not a list", Views().batch, list(PIXELS))
    refused("epoch = 'a' is not a whole number", Views().batch, PIXELS, epoch="a")
