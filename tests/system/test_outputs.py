from __future__ import annotations

from pathlib import Path

import pytest
from PIL import Image

import relatum.data
from relatum.runs import names
from relatum.runs.folder import RunFolder
from relatum.system.outputs import is_output, mark_output, only_outputs


def photo(path: Path, colour: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (32, 32), (colour, 0, 0)).save(path)


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    for number, name in enumerate(("cat/a.png", "cat/b.png", "dog/c.png")):
        photo(tmp_path / "photos" / name, number)
    return tmp_path / "photos"


def run_in(folder: Path) -> None:
    run = RunFolder(folder)
    run.path.mkdir(parents=True, exist_ok=True)
    run.recipe.write_text("")
    run.checkpoints.mkdir()
    photo(run.artifact("views", ".png"), 200)


def test_a_run_inside_the_photos_is_not_data(photos: Path) -> None:
    before = relatum.data.load(photos)
    run_in(photos / "runs" / "photos")
    photo(photos / "reproduced" / "figures" / "plot.png", 201)
    mark_output(photos / "reproduced")
    after = relatum.data.load(photos)
    assert after.files == before.files
    assert after.classes == before.classes == ("cat", "dog")


def test_a_run_in_the_very_folder_of_the_photos(photos: Path) -> None:
    run_in(photos)
    assert relatum.data.load(photos).classes == ("cat", "dog")


def test_a_recipe_for_soup_is_not_a_run(photos: Path) -> None:
    (photos / "cat" / names.RECIPE).write_text("water = 1")
    assert len(relatum.data.load(photos)) == 3


def test_shards_beside_a_run_are_still_shards(photos: Path, tmp_path: Path) -> None:
    from relatum.data.folder import shard

    shard(photos, tmp_path / "shards")
    run_in(tmp_path / "shards" / "runs" / "x")
    assert len(relatum.data.load(tmp_path / "shards")) == 3


@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        ([names.RECIPE], False),
        ([names.RECIPE, names.RECORD], True),
        ([names.RECIPE, names.BACKBONE], True),
        ([names.CHECKPOINTS], False),
        ([], False),
    ],
)
def test_what_makes_a_run(entries: list[str], expected: bool) -> None:
    assert is_output(entries) is expected


def test_only_outputs(tmp_path: Path) -> None:
    assert not only_outputs(tmp_path / "missing")
    (tmp_path / "runs").mkdir()
    assert not only_outputs(tmp_path / "runs")
    run_in(tmp_path / "runs" / "x")
    assert only_outputs(tmp_path / "runs")
    photo(tmp_path / "runs" / "a.png", 1)
    assert not only_outputs(tmp_path / "runs")
