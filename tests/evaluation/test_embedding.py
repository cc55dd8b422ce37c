from __future__ import annotations

import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import relatum
from relatum import backbones, features
from relatum.collection import indexing
from relatum.data.imageset import ImageSet
from relatum.errors import InputError
from relatum.evaluation.embedding import embed
from relatum.evaluation.searching import search
from relatum.runs.weights import load_backbone

World = dict[tuple[str, str], ImageSet]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Twelve pictures in two classes, and a cache of our own."""
    monkeypatch.setenv("RELATUM_CACHE", str(tmp_path / "cache"))
    random = np.random.default_rng(0)
    place = tmp_path / "photos"
    for i in range(12):
        path = place / ("cats" if i % 2 else "dogs") / f"{i:02d}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(random.integers(0, 256, (20, 20, 3)).astype(np.uint8)).save(path)
    return place


@pytest.fixture
def own_run(make_run: object) -> Path:
    """A run without the fake `data.load`: folders are read from disk."""
    return make_run()  # type: ignore[operator]


def test_embed_writes_npz(own_run: Path, folder: Path, tmp_path: Path) -> None:
    z = embed(own_run, folder, out=tmp_path / "z.npz", progress=False)
    assert z.shape == (12, 64)
    with np.load(tmp_path / "z.npz", allow_pickle=False) as kept:
        np.testing.assert_array_equal(kept["features"], z)
        assert kept["names"].tolist() == ["cats", "dogs"]
        assert kept["labels"].tolist() == [0] * 6 + [1] * 6
        assert kept["files"][0] == str(Path("cats") / "01.png")


def test_a_folder_is_normalised_as_the_backbone_was_trained(own_run: Path, folder: Path) -> None:
    from relatum import data

    images = data.load(str(folder), "train", side=16, mean=(0.4,) * 3, std=(0.25,) * 3)
    np.testing.assert_array_equal(embed(own_run, folder), features.extract(load_backbone(own_run), images))


def test_a_module_and_loaded_images_do_as_well(run: Path, world: World) -> None:
    images = world["toy", "train"]
    np.testing.assert_array_equal(embed(load_backbone(run), images), embed(run, images))
    assert not (run / "nothing").exists()


def test_a_module_without_metadata_has_one_vector_for_an_image(folder: Path) -> None:
    module = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten())
    z, files = relatum.embed(module, folder, return_files=True, progress=False)
    paths = [folder / file for file in files]
    np.testing.assert_allclose(relatum.embed(module, paths, progress=False), z, atol=1e-6)
    hits = relatum.search(module, folder, paths[0], top=3, progress=False)
    distances = [float(np.linalg.norm(z[0] - z[files.index(hit.file)])) for hit in hits]
    assert [hit.distance for hit in hits] == pytest.approx(distances, abs=1e-3)


def test_a_dataset_by_name(run: Path, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world["shapes", "test"] = world["toy", "test"]
    assert embed(run, "shapes", split="test").shape == (80, 64)


def test_bad_targets_are_found_before_the_work(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match=r"\.npz, \.parquet, \.csv or \.tsv"):
        embed(run, "toy", out="z.xls")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(InputError, match="pip install pyarrow"):
        embed(run, "toy", out="z.parquet")


def test_parquet(own_run: Path, folder: Path, tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    z = embed(own_run, folder, out=tmp_path / "z.parquet")
    table = parquet.read_table(tmp_path / "z.parquet").to_pydict()
    np.testing.assert_array_equal(np.array(table["features"], np.float32), z)
    assert table["name"][0] == "cats"


def test_search_finds_the_image_itself_first(own_run: Path, folder: Path, tmp_path: Path) -> None:
    queries = [folder / "cats" / "03.png", folder / "dogs" / "08.png"]
    hits = search(own_run, folder, queries, top=5, out=tmp_path / "sheet.png", progress=False)
    assert len(hits) == 10
    assert [h.rank for h in hits] == [1, 2, 3, 4, 5] * 2
    assert hits[0].file == str(Path("cats") / "03.png")
    assert hits[5].file == str(Path("dogs") / "08.png")
    assert hits[0].distance < 1e-4 < hits[1].distance
    assert hits[0].query == str(queries[0])
    assert [h.is_query for h in hits] == [True, False, False, False, False] * 2
    with Image.open(tmp_path / "sheet.png") as sheet:
        assert sheet.width > 6 * 96
        assert sheet.height > 2 * 96


def test_files_with_the_same_bytes_are_one_hit(own_run: Path, folder: Path, tmp_path: Path) -> None:
    query = folder / "cats" / "03.png"
    for name in ("a.png", "b.png"):
        shutil.copy(query, folder / "dogs" / name)
    first, second, third, *_ = search(own_run, folder, query, top=4, progress=False)
    assert (first.file, first.is_query, first.copies) == (str(Path("cats/03.png")), True, ())
    assert (second.file, second.copies) == (str(Path("dogs/a.png")), (str(Path("dogs/b.png")),))
    assert second.distance < 1e-4 < third.distance
    outside = tmp_path / "elsewhere.png"
    shutil.copy(query, outside)
    hit = search(own_run, folder, outside, top=1, progress=False)[0]
    assert not hit.is_query
    assert len(hit.copies) == 2


def test_a_link_in_the_gallery_is_the_query_itself(own_run: Path, folder: Path, tmp_path: Path) -> None:
    shutil.move(folder / "cats" / "03.png", tmp_path / "elsewhere.png")
    (folder / "cats" / "03.png").symlink_to(tmp_path / "elsewhere.png")
    hits = search(own_run, folder, folder / "cats" / "03.png", top=2, progress=False)
    assert [hit.is_query for hit in hits] == [True, False]
    through = tmp_path / "through"
    through.symlink_to(folder)
    assert search(own_run, through, folder / "cats" / "01.png", top=1, progress=False)[0].is_query


def test_a_second_search_reads_no_image_of_the_gallery(
    own_run: Path, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = tmp_path / "query.png"
    shutil.copy(folder / "cats" / "03.png", query)
    first = search(own_run, folder, query, top=3, progress=False)
    read: set[str] = set()
    for name in ("digest", "decode"):
        actual = getattr(indexing, name)
        monkeypatch.setattr(
            indexing, name, lambda path, *rest, actual=actual: read.add(path.name) or actual(path, *rest)
        )
    assert search(own_run, folder, query, top=3, progress=False) == first
    assert read == set()
    Image.open(query).rotate(5).save(folder / "new.png")
    again = search(own_run, folder, [query, folder / "new.png"], top=3, progress=False)
    assert again[3].file == "new.png"
    assert again[3].is_query
    assert read == {"new.png"}


def test_a_split_of_a_folder_is_searched_alone(own_run: Path, folder: Path, tmp_path: Path) -> None:
    for split in ("train", "test"):
        shutil.copytree(folder, tmp_path / "parts" / split)
    query = folder / "cats" / "03.png"
    hits = search(own_run, tmp_path / "parts", query, top=50, split="test", progress=False)
    assert len(hits) == 12
    assert {Path(hit.file).parts[0] for hit in hits} == {"test"}
    with pytest.raises(InputError, match="no 'val' split, only train and test"):
        search(own_run, tmp_path / "parts", query, split="val", progress=False)


def test_search_in_a_small_gallery(own_run: Path, folder: Path) -> None:
    assert len(search(own_run, folder, [folder / "cats" / "01.png"], top=50)) == 12


def test_a_broken_query_does_not_take_the_others_with_it(
    own_run: Path, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good = sorted(p for p in folder.rglob("*.png"))[0]
    (folder / "broken.jpg").write_bytes(b"no picture")
    hits = search(own_run, folder, [folder / "broken.jpg", good, folder / "none.png"], top=2)
    assert {hit.query for hit in hits} == {str(good)}
    assert hits[0].distance == pytest.approx(0, abs=1e-3)
    said = capsys.readouterr().err
    assert "broken.jpg cannot be read" in said
    assert "none.png cannot be read (there is no such file)" in said


def test_search_bad_input(own_run: Path, folder: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no such file"):
        search(own_run, folder, [folder / "none.png"])
    broken = tmp_path / "broken.png"
    broken.write_text("no picture")
    with pytest.raises(InputError, match="cannot be read: not an image"):
        search(own_run, folder, [broken])
    with pytest.raises(InputError, match="nothing to search"):
        search(own_run, folder, [])
    with pytest.raises(InputError, match="top = 0"):
        search(own_run, folder, [broken], top=0)


def test_odd_images_and_batches_in_memory() -> None:
    module = backbones.build("conv4")
    image = torch.rand(3, 32, 32, generator=torch.Generator().manual_seed(0)).bfloat16()  # which NumPy does not have
    np.testing.assert_array_equal(embed(module, image), embed(module, image.float()))
    for size in (0, -1):
        with pytest.raises(InputError, match=f"batch_size = {size} is out of range"):
            embed(module, image.float(), batch_size=size)
    for empty in (np.zeros((0, 4, 3), np.float32), np.zeros((0, 0, 3), np.uint8)):
        with pytest.raises(InputError, match="has no pixels"):
            embed(module, [empty])


def test_a_path_is_a_folder_even_if_it_has_the_name_of_a_dataset(
    own_run: Path, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The generated dataset `shapes` was embedded and searched instead of the folder."""
    folder.rename(tmp_path / "shapes")
    monkeypatch.chdir(tmp_path)
    query = Path("shapes") / "cats" / "03.png"
    assert embed(own_run, Path("shapes"), progress=False).shape == (12, 64)
    hits = search(own_run, Path("shapes"), [query], top=2, out=tmp_path / "sheet.png", progress=False)
    assert hits[0].file == str(Path("cats") / "03.png")
    assert len(indexing.build_index(own_run, Path("shapes"), progress=False)) == 12
    assert len(relatum.duplicates(own_run, Path("shapes"), progress=False)) == 0
