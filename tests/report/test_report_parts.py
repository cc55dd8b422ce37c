"""The parts that a page is made of: markup, numbers in words, axes, thumbnails, colours."""

from __future__ import annotations

import base64
import io
import itertools
import re
from importlib import resources

import numpy as np
import pytest
from PIL import Image
from runmaker import blobs

from relatum.report.charts import line_chart, series, ticks
from relatum.report.images import Atlas, data_uri
from relatum.report.markup import clean, el, script_json
from relatum.report.words import data_title, duration, percent, short


def test_markup_escapes_children_and_attributes() -> None:
    assert (
        el("p", "<b>", el("i", "&"), None, [1, " ", 2.5], title='"><x>')
        == '<p title="&quot;&gt;&lt;x&gt;">&lt;b&gt;<i>&amp;</i>1 2.5</p>'
    )
    assert el("input", type="search", hidden=True, disabled=False, value=None) == '<input type="search" hidden>'
    assert clean("a\x00b\x7f\u202e\udc80") == "a\u2400b\u2421\ufffd\ufffd"


def test_json_for_a_script_cannot_end_it() -> None:
    text = script_json({"a": "</script><!--&\u2028", "b": [1.5, None]})
    assert text == '{"a":"\\u003c/script\\u003e\\u003c!--\\u0026\\u2028","b":[1.5,null]}'
    with pytest.raises(ValueError, match="not JSON compliant"):
        script_json(float("nan"))


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.25, "0.2 s"),
        (42.4, "42 s"),
        (61.5, "1 min 2 s"),
        (600, "10 min"),
        (8103, "2 h 15 min"),
        (7200, "2 h"),
        (200_000, "2 d 7 h"),
        (None, None),
        (-1, None),
    ],
)
def test_durations(seconds: float | None, words: str | None) -> None:
    assert duration(seconds) == words


def test_numbers() -> None:
    assert [short(v) for v in (0, 1234567, 25000, 0.05, 12.3456, 3e-5, 100.0)] == [
        "0",
        "1.23e+06",
        "25,000",
        "0.05",
        "12.35",
        "3e-05",
        "100",
    ]
    assert percent(61.034) == "61.03 %"
    assert percent(None) == "–"
    assert data_title("cifar100-20-test-tag") == "CIFAR-100-20, test-tag"
    assert data_title("my-photos-test") == "my-photos-test"


@pytest.mark.parametrize(
    ("low", "high"), [(0, 1), (0.0486, 0.171), (62, 94), (0, 156400), (-3, 2), (5, 5), (0, 0), (1e-9, 2e-9)]
)
def test_ticks_cover_the_range_with_few_round_values(low: float, high: float) -> None:
    found = ticks(low, high)
    assert found[0] <= low
    assert found[-1] >= high
    assert 2 <= len(found) <= 8
    steps = np.diff(found)
    np.testing.assert_allclose(steps, steps[0], rtol=1e-6)


def test_long_series_keep_their_mean_and_their_extremes() -> None:
    x, y = np.arange(10_000.0), np.random.default_rng(0).normal(size=10_000)
    y[5_000] = 99.0
    made = series("a", 0, x, y)
    assert made is not None
    assert len(made.x) == 240
    assert made.high.max() == 99.0
    assert made.low.min() == y.min()
    assert abs(made.y.mean() - y.mean()) < 1e-2
    assert series("a", 0, x, np.full(10_000, np.nan)) is None


def test_a_chart_says_what_it_shows() -> None:
    one = series("loss", 0, np.array([1.0, 2.0, 3.0]), np.array([0.5, np.nan, 0.25]))
    assert one is not None
    figure, data = line_chart("Loss", [one], x_label="epoch")
    assert 'aria-label="Loss over epochs. loss: from 0.5 to 0.25."' in figure
    assert data["lines"][0]["y"] == [0.5, 0.25]
    assert figure.count("<polyline") == 1
    assert "<td>0.25</td>" in figure


def test_atlas_holds_each_image_once_and_where_it_says() -> None:
    images = blobs(1500)
    atlas = Atlas()
    first, again = atlas.add(images), atlas.add(images[::-1])
    assert first == list(range(1500))
    assert again == first[::-1]
    made = atlas.encode()
    assert made["side"] == 32
    assert len(made["sheets"]) == 2
    sheet = np.asarray(Image.open(io.BytesIO(base64.b64decode(made["sheets"][1].split(",")[1]))).convert("RGB"), int)
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


# Machado, Oliveira & Fernandes 2009, complete protanopia, deuteranopia, tritanopia, on linear RGB.
VISION = {
    "all cones": np.eye(3),
    "no red": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
    ),
    "no green": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
    ),
    "no blue": np.array(
        [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]]
    ),
}
XYZ = np.array(
    [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.0721750], [0.0193339, 0.1191920, 0.9503041]]
)


def lab(rgb: np.ndarray) -> np.ndarray:
    ratio = XYZ @ np.clip(rgb, 0, 1) / XYZ.sum(axis=1)
    f = np.where(ratio > 0.008856, np.cbrt(ratio), 7.787 * ratio + 16 / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


@pytest.mark.parametrize("vision", VISION)
def test_colours_of_ten_classes_can_be_told_apart(vision: str) -> None:
    css = resources.files("relatum.report").joinpath("page.css").read_text("utf-8")
    colours = [re.search(rf"--c{i}: #([0-9a-f]{{6}})", css) for i in range(10)]
    seen = []
    for found in colours:
        assert found is not None
        srgb = np.array([int(found[1][i : i + 2], 16) for i in (0, 2, 4)]) / 255
        linear = np.where(srgb <= 0.04045, srgb / 12.92, ((srgb + 0.055) / 1.055) ** 2.4)
        seen.append(lab(VISION[vision] @ linear))
    # A CIELAB difference of 2.3 is just noticeable; 17 is seven times that.
    assert min(float(np.linalg.norm(a - b)) for a, b in itertools.combinations(seen, 2)) > 17
