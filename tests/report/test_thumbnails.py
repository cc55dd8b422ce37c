"""Thumbnails: the atlas of the maps, its size, and single images."""

from __future__ import annotations

import base64
import io

import numpy as np
from PIL import Image
from runmaker import blobs

from relatum.report.thumbnails import Atlas, data_uri


def test_atlas_holds_each_image_once_and_where_it_says() -> None:
    images = blobs(1500)
    atlas = Atlas()
    first, again = atlas.add(images), atlas.add(images[::-1])
    assert first == list(range(1500))
    assert again == first[::-1]
    encoded = atlas.encode()
    assert encoded["side"] == 32
    assert len(encoded["sheets"]) == 2
    sheet = np.asarray(Image.open(io.BytesIO(base64.b64decode(encoded["sheets"][1].split(",")[1]))).convert("RGB"), int)
    row, column = divmod(1300 - 1024, 32)
    tile = sheet[row * 32 : row * 32 + 32, column * 32 : column * 32 + 32]
    assert np.abs(tile - images[1300]).mean() < 4


def test_atlas_keeps_to_its_budget() -> None:
    atlas = Atlas()
    atlas.add(np.random.default_rng(0).integers(0, 256, (300, 64, 64, 3), dtype=np.uint8))
    fine, coarse = atlas.encode(), atlas.encode(budget=100_000)
    assert (fine["side"], coarse["side"]) == (64, 32)
    assert sum(len(s) * 3 // 4 for s in coarse["sheets"]) < 100_000
    assert atlas.encode(budget=10)["side"] == 16  # as coarse as it gets, but there
    assert Atlas().encode()["sheets"] == []


def test_thumbnails_are_reduced_to_their_limit() -> None:
    image = Image.open(io.BytesIO(base64.b64decode(data_uri(blobs(1, side=224)[0]).split(",")[1])))
    assert image.size == (96, 96)
