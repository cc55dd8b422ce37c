"""The index of a folder, and the commands that use it, on real files."""

from __future__ import annotations

import errno
import json
import os
import shutil
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import relatum
from relatum import backbones
from relatum.cli import main
from relatum.collection import indexing
from relatum.collection.index import index_file
from relatum.collection.indexing import build_index
from relatum.errors import InputError
from relatum.runs.weights import save_weights


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run folder that holds only weights."""
    folder = tmp_path_factory.mktemp("run")
    facts = {"backbone": "conv4", "num_features": 64, "side": 32, "mean": [0.5] * 3, "std": [0.25] * 3}
    save_weights(folder / "backbone.safetensors", backbones.build("conv4", seed=1).state_dict(), facts)
    return folder


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Twenty smooth pictures; a re-encoded copy of one, an exact copy of another, a blank one and a broken one."""
    folder = tmp_path / "photos"
    (folder / "trip").mkdir(parents=True)
    for i, coarse in enumerate(np.random.default_rng(0).integers(0, 256, (20, 6, 6, 3), dtype=np.uint8)):
        exif = Image.Exif()
        exif[0x0132] = f"2021:0{1 + i % 9}:03 12:00:00"
        picture = Image.fromarray(coarse).resize((48, 48), Image.Resampling.BICUBIC)
        picture.save(folder / "trip" / f"{i:02d}.png", exif=exif)
    Image.open(folder / "trip/03.png").resize((30, 30)).save(folder / "small.jpg", quality=70)
    shutil.copy(folder / "trip/05.png", folder / "again.png")
    Image.new("RGB", (64, 64), (255, 0, 255)).save(folder / "blank.png")
    (folder / "broken.jpg").write_bytes(b"not an image")
    return folder


def test_duplicates_outliers_clusters_and_a_subset(run: Path, photos: Path, tmp_path: Path) -> None:
    groups = relatum.duplicates(run, photos, out=tmp_path / "d.csv", progress=False)
    assert [set(group.files) for group in groups] == [{"again.png", "trip/05.png"}, {"small.jpg", "trip/03.png"}]
    assert [group.exact for group in groups] == [True, False]
    assert (tmp_path / "d.csv").read_text().splitlines()[0] == "group,file,exact,difference"
    assert len((tmp_path / "d.csv").read_text().splitlines()) == 5
    assert relatum.outliers(run, photos, top=1, progress=False)[0].file == "blank.png"
    albums = relatum.cluster(run, photos, number=3, progress=False)
    assert sum(len(album.files) for album in albums) == 23
    assert all(album.title == album.files[0] for album in albums)
    selected = relatum.select(run, photos, number=5, out=tmp_path / "s.txt", progress=False)
    assert [row.rank for row in selected] == [1, 2, 3, 4, 5]
    assert (tmp_path / "s.txt").read_text().split() == [row.file for row in selected]
    assert index_file(run, photos, "train").exists()


def test_a_link_never_leads_a_group_of_copies(run: Path, photos: Path) -> None:
    """Who keeps the first file of each group and deletes the others would be left with a dangling link."""
    (photos / "again.png").unlink()
    (photos / "again.png").symlink_to(photos / "trip" / "05.png")
    (group,) = (group for group in relatum.duplicates(run, photos, progress=False) if group.exact)
    assert group.files == ("trip/05.png", "again.png")


def test_images_with_the_same_thumbnail_are_one_outlier(run: Path, photos: Path, tmp_path: Path) -> None:
    for i, grey in enumerate((20, 120, 220)):  # icons that cannot be seen on white
        icon = Image.new("RGBA", (64, 64), (grey, grey, grey, 0))
        icon.save(photos / f"icon{i}.png")
    rows = relatum.outliers(run, photos, top=3, out=tmp_path / "o.csv", progress=False)
    assert [row.rank for row in rows] == [1, 2, 3]
    (icons,) = (row for row in rows if row.file.startswith("icon"))
    assert (icons.file, icons.same) == ("icon0.png", ("icon1.png", "icon2.png"))
    listed = (tmp_path / "o.csv").read_text().splitlines()
    assert listed[0] == "file,rank,score"
    assert [line.split(",")[0] for line in listed if line.startswith("icon")] == ["icon0.png", "icon1.png", "icon2.png"]
    assert len(listed) == 6


def test_only_new_files_are_read(run: Path, photos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = build_index(run, photos, progress=False)
    assert [item.path for item in before.skipped] == ["broken.jpg"]
    hashed: list[str] = []
    decoded: set[str] = set()
    digest, decode = indexing.digest, indexing.decode
    monkeypatch.setattr(indexing, "digest", lambda path: hashed.append(path.name) or digest(path))
    monkeypatch.setattr(indexing, "decode", lambda path, side: decoded.add(path.name) or decode(path, side))
    Image.open(photos / "trip/07.png").transpose(Image.Transpose.ROTATE_90).save(photos / "new.png")
    (photos / "trip/01.png").rename(photos / "moved.png")
    (photos / "trip/02.png").unlink()
    after = build_index(run, photos, progress=False)
    files, known = after.files.tolist(), before.files.tolist()
    assert len(after) == len(before)
    assert "new.png" in files
    assert "trip/02.png" not in files
    assert sorted(hashed) == ["moved.png", "new.png"]
    assert decoded == {"new.png"}
    for new, former in (("trip/00.png", "trip/00.png"), ("moved.png", "trip/01.png")):
        np.testing.assert_array_equal(after.features[files.index(new)], before.features[known.index(former)])
    assert files == sorted(files)


def test_unreadable_files_are_read_again_only_when_they_change(
    run: Path, photos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = build_index(run, photos, progress=False)
    assert [item.path for item in first.skipped] == ["broken.jpg"]
    read: list[str] = []
    actual = indexing.digest
    monkeypatch.setattr(indexing, "digest", lambda content: read.append("file") or actual(content))
    assert [item.path for item in build_index(run, photos, progress=False).skipped] == ["broken.jpg"]
    assert read == []
    shutil.copy(photos / "trip/07.png", photos / "added.png")
    assert [item.path for item in build_index(run, photos, progress=False).skipped] == ["broken.jpg"]
    (photos / "drawing.svg").touch()  # listed, though no image has changed
    assert [item.path for item in build_index(run, photos, progress=False).skipped] == ["broken.jpg", "drawing.svg"]
    (photos / "drawing.svg").unlink()
    assert read == ["file"]
    Image.new("RGB", (40, 40)).save(photos / "broken.jpg")
    mended = build_index(run, photos, progress=False)
    assert mended.skipped == ()
    assert len(mended) == len(first) + 2


def test_files_that_swapped_their_names_swap_their_rows(run: Path, tmp_path: Path) -> None:
    """Bitmaps from one archive: the same size and the same time."""
    names = ["a.bmp", "b.bmp", "c.bmp"]
    for name, pixels in zip(names, np.random.default_rng(0).integers(0, 256, (3, 40, 40, 3), np.uint8), strict=True):
        Image.fromarray(pixels).save(tmp_path / name)
        os.utime(tmp_path / name, (1e9, 1e9))
    before = build_index(run, tmp_path, progress=False)
    for old, new in (("a.bmp", "x"), ("b.bmp", "a.bmp"), ("x", "b.bmp")):
        (tmp_path / old).rename(tmp_path / new)
    after = build_index(run, tmp_path, progress=False)
    np.testing.assert_array_equal(after.features, before.features[[1, 0, 2]])


def test_a_file_without_a_date_has_its_own_time_after_it_was_copied(run: Path, photos: Path) -> None:
    build_index(run, photos, progress=False)
    for name in ("blank.png", "trip/04.png"):  # without and with EXIF data
        shutil.copy(photos / name, photos / f"copy-{Path(name).name}")
        os.utime(photos / f"copy-{Path(name).name}", (1e9, 1e9))
    index = build_index(run, photos, progress=False)
    times = dict(zip(index.files.tolist(), index.times.tolist(), strict=True))
    assert times["copy-blank.png"] == 10**9
    assert times["copy-04.png"] == times["trip/04.png"]


def test_unreadable_files_are_read_again_with_another_plug_in(
    run: Path, photos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from relatum.data import decode, decoded, file_kinds

    (photos / "broken.jpg").write_bytes(b"\0\0\0\x18ftypheic0000")  # as phones name their HEIC files
    with monkeypatch.context() as without:
        for module in (indexing, decode, decoded):
            without.setattr(module, "formats", lambda: ("JPEG", "PNG"))
        (skipped,) = build_index(run, photos, progress=False).skipped
        assert "pillow-heif" in skipped.reason
        assert "pillow-heif" in relatum.data.load(photos, side=32).skipped[0].reason
    monkeypatch.setattr(file_kinds, "_ADVICE", {".heic": "read again"})
    (again,) = build_index(run, photos, progress=False).skipped
    assert again.reason != skipped.reason
    assert relatum.data.load(photos, side=32).skipped[0].reason == again.reason


def test_a_failing_disk_is_not_remembered(run: Path, photos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    build_index(run, photos, progress=False)
    Image.new("RGB", (50, 50)).save(photos / "new.png")

    def fail(*arguments: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as failing:
        failing.setattr(indexing, "decode", fail)
        assert "new.png" in {item.path for item in build_index(run, photos, progress=False).skipped}
    assert "new.png" in build_index(run, photos, progress=False).files.tolist()


def test_other_weights_make_another_index(run: Path, photos: Path, tmp_path: Path) -> None:
    first = build_index(run, photos, progress=False)
    other = tmp_path / "other"
    shutil.copytree(run, other)
    facts = {"backbone": "conv4", "num_features": 64, "side": 32, "mean": [0.5] * 3, "std": [0.25] * 3}
    save_weights(other / "backbone.safetensors", backbones.build("conv4", seed=2).state_dict(), facts)
    assert not np.array_equal(build_index(other, photos, progress=False).features, first.features)


def test_a_damaged_index_is_computed_again(run: Path, photos: Path) -> None:
    first = build_index(run, photos, progress=False)
    index_file(run, photos, "train").write_bytes(b"PK\x03\x04 nonsense")
    np.testing.assert_array_equal(build_index(run, photos, progress=False).features, first.features)


def test_dates_and_sizes_come_from_the_files(run: Path, photos: Path) -> None:
    index = build_index(run, photos, progress=False)
    files = index.files.tolist()
    assert index.sizes[files.index("small.jpg")].tolist() == [30, 30]
    assert np.datetime64(int(index.times[files.index("trip/04.png")]), "s") == np.datetime64("2021-05-03T12:00:00")
    assert index.times[files.index("blank.png")] == int((photos / "blank.png").stat().st_mtime)


def test_the_command_line_prints_one_json_document(run: Path, photos: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (["duplicates"], ["outliers", "--top", "3"], ["cluster"], ["select", "--number", "4"]):
        command, *options = arguments
        with pytest.raises(SystemExit) as end:
            main([command, str(run), str(photos), *options, "--json"])
        assert end.value.code == 0
        assert len(json.loads(capsys.readouterr().out)) in (1, 2, 3, 4)


def test_bad_requests_are_refused_before_any_work(run: Path, photos: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"must end in \.csv"):
        relatum.duplicates(run, photos, out=tmp_path / "d.xls")
    with pytest.raises(InputError, match="at least 1"):
        relatum.select(run, photos, number=0)
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="no readable image"):
        relatum.outliers(run, tmp_path / "empty", progress=False)


def test_no_image_file_is_changed(run: Path, photos: Path) -> None:
    def contents() -> dict[Path, tuple[bytes, int]]:
        return {f: (f.read_bytes(), f.stat().st_mtime_ns) for f in photos.rglob("*") if f.is_file()}

    before = contents()
    relatum.duplicates(run, photos, progress=False)
    relatum.select(run, photos, number=3, progress=False)
    assert contents() == before


def test_a_dataset_has_numbers_for_files(run: Path) -> None:
    groups = relatum.duplicates(run, "shapes", progress=False)
    assert all(file.isdigit() for group in groups for file in group.files)


def test_an_image_in_memory_is_described_like_a_file(tmp_path: Path) -> None:
    from relatum.collection.file_facts import digest, width_height_time

    buffer = BytesIO()
    Image.new("RGB", (5, 7)).save(buffer, "PNG")
    path = tmp_path / "x.png"
    path.write_bytes(buffer.getvalue())
    assert digest(path) == digest(buffer)
    assert width_height_time(buffer) == width_height_time(path) == (5, 7, None)
    assert width_height_time(tmp_path / "none") == (0, 0, None)


def test_a_run_with_a_custom_backbone_needs_its_architecture(run: Path, photos: Path, tmp_path: Path) -> None:
    from torch import nn

    network = nn.Sequential(nn.Conv2d(3, 8, 3, stride=4), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    trained = relatum.pretrain(
        photos, backbone=network, out=tmp_path / "custom", views=2, epochs=1, batch_size=8, quiet=True
    )
    assert len(relatum.outliers(trained, photos, top=3, progress=False)) == 3
    again = relatum.select(tmp_path / "custom", photos, number=2, backbone=network, progress=False)
    assert len(again) == 2


def test_changed_code_of_a_custom_backbone_makes_another_index(run: Path, photos: Path, tmp_path: Path) -> None:
    def network(activation: torch.nn.Module) -> torch.nn.Module:
        layers = (torch.nn.Conv2d(3, 4, 3), activation, torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten())
        return torch.nn.Sequential(*layers)

    before, after = network(torch.nn.ReLU()), network(torch.nn.Tanh())
    mine = tmp_path / "mine"
    facts = {"backbone": "object:Sequential", "num_features": 4, "side": 32, "mean": [0.5] * 3, "std": [0.25] * 3}
    save_weights(mine / "backbone.safetensors", before.state_dict(), facts)
    relu = build_index(mine, photos, architecture=before, progress=False)
    tanh = build_index(mine, photos, architecture=after, progress=False)
    assert relu.features.min() >= 0 > tanh.features.min()
    assert build_index(mine, photos, architecture=after, progress=False).key == tanh.key


def test_a_misspelt_folder_or_dataset_is_suggested(run: Path, photos: Path) -> None:
    with pytest.raises(InputError, match="did you mean 'shapes'"):
        relatum.outliers(run, "shaps", progress=False)
    with pytest.raises(InputError, match=r"did you mean .*photos"):
        relatum.search(run, photos.with_name("photo"), photos / "again.png", progress=False)
