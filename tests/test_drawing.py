from __future__ import annotations

from pathlib import Path

import matplotlib
import numpy as np
import pytest
from PIL import Image

from relatum import drawing


@pytest.mark.parametrize("number", [1, 2, 3, 10, 11, 100, 200])
def test_every_class_has_a_colour_of_its_own(number: int) -> None:
    colours = drawing.palette(number)
    assert len(set(colours)) == len(colours) >= number


def test_thumbnails() -> None:
    images = np.zeros((3, 100, 100, 3), np.uint8)
    assert drawing.thumbnails(images).shape == (3, 64, 64, 3)
    assert drawing.thumbnails(images, 128).shape == (3, 100, 100, 3)


def test_a_map_is_drawn_in_the_colours_of_its_classes_and_twice_alike(tmp_path: Path) -> None:
    xy = np.stack([np.arange(40.0), np.arange(40.0) % 7], axis=1)
    labels = np.arange(40) % 2
    paths = drawing.save_map(tmp_path / "map", xy, labels, ["cats", "dogs"], "Pets")
    assert [p.name for p in paths] == ["map.png", "map.svg"]
    colours = {f"#{r:02X}{g:02X}{b:02X}" for r, g, b in np.asarray(Image.open(paths[0]).convert("RGB")).reshape(-1, 3)}
    assert set(drawing.palette(2)) <= colours  # in the legend, where points are opaque


def test_a_map_does_not_depend_on_the_users_settings(tmp_path: Path) -> None:
    xy = np.stack([np.arange(40.0), np.arange(40.0) % 7], axis=1)
    usual = drawing.save_map(tmp_path / "usual", xy, None, [], "Pets")[0].read_bytes()
    with matplotlib.rc_context({"text.usetex": True, "font.size": 30}):  # LaTeX need not be installed
        assert drawing.save_map(tmp_path / "map", xy, None, [], "Pets")[0].read_bytes() == usual
        assert matplotlib.rcParams["font.size"] == 30


def test_names_on_a_map_are_no_formulas(tmp_path: Path, recwarn: pytest.WarningsRecorder) -> None:
    """Folders of photographs may be called anything: `$` begins a formula in matplotlib, `_` hides a name."""
    xy = np.stack([np.arange(40.0), np.arange(40.0) % 7], axis=1)
    names = [r"$\costs{$", "_hidden", "esc\x1b[31m"]
    _, svg = drawing.save_map(tmp_path / "map", xy, np.arange(40) % 3, names, r"from $5 to \$10")
    text = svg.read_text()
    for name in (r"$\costs{$", "_hidden", r"esc\x1b[31m"):
        assert text.count(f"<!-- {name} -->") == 2  # at the points, and in the legend
    assert r"<!-- from $5 to \$10 -->" in text
    assert not list(recwarn)  # a control character has no glyph


def test_a_contact_sheet_shows_the_query_in_a_frame_then_its_nearest() -> None:
    query, *nearest = [np.full((8, 8, 3), value, np.uint8) for value in (50, 150, 100)]
    tiles = [drawing.Tile(image, "a\nfile name that is much too long for its tile.png", "0.5") for image in nearest]
    pixels = np.asarray(drawing.contact_sheet([[drawing.Tile(query, "query.png", "query", marked=True), *tiles]]))
    row = pixels[40].tolist()
    shown = dict.fromkeys(tuple(p) for p in row if p[0] in (50, 150, 100) or p == [213, 94, 0])
    assert list(shown) == [(213, 94, 0), (50, 50, 50), (150, 150, 150), (100, 100, 100)]
    below = pixels[140:]  # names and notes
    columns = np.flatnonzero((below < 128).all(2).any(0))
    assert len(columns)
    assert columns.max() < pixels.shape[1] - 8  # nothing runs over the right edge


def test_a_retrieval_sheet_puts_each_neighbour_in_its_place() -> None:
    thumbs = np.stack([np.full((4, 4, 3), 10 * (i + 1), np.uint8) for i in range(3)])
    sheet = drawing.retrieval_sheet(thumbs, np.array([7]), np.array([[5, 9]]), np.array([5, 7, 9]), gap=1)
    row = sheet[2, :, 0]
    assert list(dict.fromkeys(int(v) for v in row if v in (10, 20, 30))) == [20, 10, 30]  # the query, then its nearest
