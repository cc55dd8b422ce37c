from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import relatum.data
from relatum.data import decoded, folder
from relatum.data.imageset import Skipped
from relatum.errors import InputError


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "photos").mkdir()
    return tmp_path / "photos"


def test_flat_and_unlabelled(root: Path, picture) -> None:
    for i in range(3):
        picture(root / f"{i}.png", seed=i)
    (root / "notes.txt").write_text("not an image, and nobody said so")
    images = relatum.data.load(root)
    assert (len(images), images.labels, images.classes) == (3, None, ())
    assert images.files == ["0.png", "1.png", "2.png"]
    assert (images.name, images.split, images.side, images.pad) == ("photos", "train", 40, 5)
    assert images.skipped == ()
    assert isinstance(images.images, np.memmap)
    assert not images.images.flags.writeable
    assert np.array_equal(images.images[1], np.asarray(Image.open(root / "1.png")))


def test_mean_and_std_are_found(root: Path, picture) -> None:
    for i in range(40):
        picture(root / f"{i:02}.png", seed=i)
    images = relatum.data.load(root)
    pixels = images.images.reshape(-1, 3) / 255
    assert images.mean == pytest.approx(pixels.mean(0), abs=1e-6)
    assert images.std == pytest.approx(pixels.std(0), abs=1e-6)
    given = relatum.data.load(root, mean=(0.1, 0.2, 0.3), std=(1, 2, 3))
    assert (given.mean, given.std) == ((0.1, 0.2, 0.3), (1.0, 2.0, 3.0))


def test_one_plain_colour_does_not_divide_by_zero(root: Path) -> None:
    Image.new("RGB", (40, 40)).save(root / "a.png")
    assert relatum.data.load(root).std == (round(1 / 255, 6),) * 3


def test_classes(root: Path, picture) -> None:
    for name in ("b/1.png", "a/2.png", "a/1.JPG", "c/1.png"):
        picture(root / name)
    images = relatum.data.load(root)
    assert images.classes == ("a", "b", "c")
    assert images.files == ["a/1.JPG", "a/2.png", "b/1.png", "c/1.png"]
    assert images.labels.tolist() == [0, 0, 1, 2]
    assert images.labels.dtype == np.int64


@pytest.mark.parametrize(
    "files",
    [
        ["a/1.png", "a/2.png"],
        ["a/1.png", "b/1.png", "top.png"],
        ["a/1.png", "b/1.png", "b/deeper/1.png"],
        ["2020/01/1.png", "2021/01/1.png"],
        ["x/y/z/1.png"],
    ],
    ids=["one folder", "one at the top", "one deeper", "by year and month", "deep"],
)
def test_otherwise_unlabelled_at_any_depth(root: Path, picture, files: list[str]) -> None:
    for file in files:
        picture(root / file)
    images = relatum.data.load(root)
    assert images.labels is None
    assert images.files == sorted(files)


def test_empty_hidden_and_broken_places_do_not_change_the_classes(root: Path, picture) -> None:
    for name in ("a/1.png", "b/1.png", ".ipynb_checkpoints/1.png", "a/._1.png", ".DS_Store.png"):
        picture(root / name)
    (root / "empty").mkdir()
    (root / "broken.png").write_text("no image")
    (root / "notes").mkdir()
    (root / "notes" / "n.txt").write_text("x")
    images = relatum.data.load(root)
    assert images.classes == ("a", "b")
    assert images.skipped == (Skipped("broken.png", "not an image that Pillow can read"),)


def test_broken_files_of_all_sorts_are_listed(root: Path, picture, png_of) -> None:
    good = [picture(root / f"{i:03}.jpg", seed=i, width=50 + i % 7).name for i in range(100)]
    jpeg = (root / good[0]).read_bytes()
    broken = {
        "empty.png": b"",
        "text.jpg": b"hello",
        "cut.jpg": jpeg[:600],
        "bomb.png": png_of(40_000, 40_000),
        "noise.gif": bytes(range(256)) * 4,
    }
    for name, content in broken.items():
        (root / name).write_bytes(content)
    (root / "folder.png").mkdir()
    (root / "dangling.png").symlink_to("absent.png")
    os.mkfifo(root / "pipe.png")
    (root / "loop.png").symlink_to("loop.png")
    images = relatum.data.load(root)
    assert images.files == good
    assert [s.path for s in images.skipped] == sorted([*broken, "folder.png", "dangling.png", "pipe.png", "loop.png"])
    assert all(s.reason and "\n" not in s.reason for s in images.skipped)
    with pytest.raises(InputError, match=r"9 files of photos cannot be read.*bomb\.png.*and 6 more"):
        relatum.data.load(root, strict=True)


def test_strict_without_broken_files(root: Path, picture) -> None:
    picture(root / "a.png")
    assert len(relatum.data.load(root, strict=True)) == 1
    (root / "b.png").write_bytes(b"")
    with pytest.raises(InputError, match=r"1 file of photos cannot be read, and strict=True was given: 'b.png'"):
        relatum.data.load(root, strict=True)


@pytest.mark.parametrize(
    "content", [{}, {"a.txt": "x"}, {"a.png": "x", "b.png": ""}], ids=["empty", "no images", "all broken"]
)
def test_nothing_to_read(root: Path, content: dict[str, str]) -> None:
    for name, text in content.items():
        (root / name).write_text(text)
    with pytest.raises(InputError, match="contains no readable image"):
        relatum.data.load(root)


def test_permission_denied(root: Path, picture, monkeypatch: pytest.MonkeyPatch) -> None:
    picture(root / "a.png")
    picture(root / "b.png")
    picture(root / "sub" / "c.png")
    real_open, real_scan = Image.open, os.scandir

    def refuse_open(path, *args, **kwargs):  # root may read everything, so the refusal is played
        if str(path).endswith("b.png"):
            raise PermissionError(13, "Permission denied")
        return real_open(path, *args, **kwargs)

    def refuse_scan(path):
        if str(path).endswith("sub"):
            raise PermissionError(13, "Permission denied")
        return real_scan(path)

    monkeypatch.setattr(Image, "open", refuse_open)
    monkeypatch.setattr(os, "scandir", refuse_scan)
    images = relatum.data.load(root)
    assert images.files == ["a.png"]
    assert images.skipped == (Skipped("b.png", "permission denied"), Skipped("sub", "permission denied"))
    monkeypatch.setattr(os, "access", lambda *a: False)
    with pytest.raises(InputError, match="permission denied"):
        relatum.data.load(root)


def test_link_loops_end_and_linked_folders_are_read_once(root: Path, picture, tmp_path: Path) -> None:
    picture(root / "a" / "1.png")
    picture(tmp_path / "elsewhere" / "2.png")
    (root / "a" / "up").symlink_to(root)
    (root / "a" / "self").symlink_to(root / "a")
    (root / "A-copy").symlink_to(root / "a")  # sorted before a: the real folder still goes by its own name
    (root / "b").symlink_to(tmp_path / "elsewhere")
    images = relatum.data.load(root)
    assert images.files == ["a/1.png", "b/2.png"]
    assert images.classes == ("a", "b")


@pytest.mark.skipif(sys.platform != "linux", reason="names are bytes on Linux only")
def test_odd_names_survive(root: Path, picture) -> None:
    names = [
        "new\nline.png",
        "späße 写真.png",
        " space .png",
        "[bold]x[/bold].png",
        "-dash.png",
        os.fsdecode(b"latin\xe9.png"),
    ]
    for name in names:
        picture(root / name)
    (root / os.fsdecode(b"bad\xff\n.png")).write_text("x")
    for _ in range(2):  # decoded, then from the cache
        images = relatum.data.load(root)
        assert sorted(images.files) == sorted(names)
        assert [s.path for s in images.skipped] == [os.fsdecode(b"bad\xff\n.png")]
        assert all((root / file).exists() for file in images.files)


@pytest.mark.parametrize(
    ("sides", "expected"), [([28, 28], 32), ([45], 48), ([500, 64, 10], 64), ([3000], 96), ([1], 32)]
)
def test_the_side_is_found(root: Path, picture, sides: list[int], expected: int) -> None:
    for i, side in enumerate(sides):
        picture(root / f"{i}.png", side, side + 3)
    assert relatum.data.load(root).side == expected


def test_the_side_can_be_set(root: Path, picture) -> None:
    picture(root / "a.png", 100, 120)
    images = relatum.data.load(root, side=50)
    assert images.images.shape == (1, 50, 50, 3)
    assert images.pad == 6
    with pytest.raises(InputError, match="from 8 to 1024"):
        relatum.data.load(root, side=4)


def test_splits_of_a_folder(root: Path, picture) -> None:
    for i, name in enumerate(
        ["train/a/1.png", "train/b/1.png", "train/b/2.png", "test/b/9.png", "val/a/5.png", "unlabeled/x.png"]
    ):
        picture(root / name, 50, 50, seed=i)
    (root / "test" / "b" / "broken.png").write_bytes(b"")
    train, test = relatum.data.load(root), relatum.data.load(root, "test")
    assert (len(train), len(test)) == (3, 1)
    assert train.labels.tolist() == [0, 1, 1]
    assert test.labels.tolist() == [1]  # numbered as in train, though test has one class only
    assert train.classes == test.classes == ("a", "b")
    assert (test.mean, test.std, test.side) == (train.mean, train.std, train.side)
    assert test.files == ["test/b/9.png"]
    assert [s.path for s in test.skipped] == ["test/b/broken.png"]
    assert train.skipped == ()
    assert relatum.data.load(root, "val").labels.tolist() == [0]
    assert relatum.data.load(root, "unlabeled").labels is None
    facts = relatum.data.info(root)
    assert {name: part["images"] for name, part in facts["splits"].items()} == {
        "train": 3,
        "test": 1,
        "val": 1,
        "unlabeled": 1,
    }
    assert (facts["skipped"], facts["classes"], facts["labelled"], facts["source"]) == (1, ["a", "b"], True, "folder")


def test_unlabelled_splits(root: Path, picture) -> None:
    for name in ("train/1.png", "validation/1.png", "test/a/1.png", "test/b/1.png"):
        picture(root / name)
    assert relatum.data.load(root).labels is None
    assert relatum.data.load(root, "val").files == ["validation/1.png"]
    assert relatum.data.load(root, "test").classes == ("a", "b")


@pytest.mark.parametrize("names", [("Train", "Test"), ("TRAIN", "TEST"), ("training", "testing")])
def test_other_spellings_of_the_splits(root: Path, picture, names: tuple[str, str]) -> None:
    """They were one set, whose test images were trained on; without sub-folders they were two classes."""
    train, test = names
    for name in (f"{train}/a/1.png", f"{train}/b/1.png", f"{test}/a/2.png", f"{test}/b/2.png"):
        picture(root / name)
    assert relatum.data.load(root).files == [f"{train}/a/1.png", f"{train}/b/1.png"]
    assert relatum.data.load(root, "test").files == [f"{test}/a/2.png", f"{test}/b/2.png"]
    assert relatum.data.load(root, "test").labels.tolist() == [0, 1]


def test_two_spellings_of_one_split_are_no_splits(root: Path, picture) -> None:
    for name in ("train/1.png", "training/2.png", "test/3.png"):
        picture(root / name)
    assert len(relatum.data.load(root)) == 3


def test_a_flat_test_split_of_a_labelled_train_has_no_labels(root: Path, picture) -> None:
    for name in ("train/a/1.png", "train/b/1.png", "test/1.png"):
        picture(root / name)
    test = relatum.data.load(root, "test")
    assert (test.labels, test.classes) == (None, ())


def test_a_class_that_train_does_not_have(root: Path, picture) -> None:
    for name in ("train/a/1.png", "train/b/1.png", "test/a/1.png", "test/zebra/1.png"):
        picture(root / name)
    with pytest.raises(InputError, match="'zebra', which is not a class of train"):
        relatum.data.load(root, "test")


def test_split_names_beside_others_are_classes(root: Path, picture) -> None:
    for name in ("train/1.png", "test/1.png", "bus/1.png"):
        picture(root / name)
    assert relatum.data.load(root).classes == ("bus", "test", "train")


def test_a_missing_split_is_reported(root: Path, picture) -> None:
    picture(root / "a.png")
    with pytest.raises(
        InputError, match="no 'test' split, only train: put images in train/ and test/, or hold a part out"
    ):
        relatum.data.load(root, "test")
    root = root / "two"
    picture(root / "train" / "a.png")
    picture(root / "test" / "a.png")
    with pytest.raises(InputError, match="no 'val' split, only train and test"):
        relatum.data.load(root, "val")


# ----------------------------------------------------------------------------------------------------- the cache


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The files that were decoded, as they are decoded."""
    seen: list[str] = []
    real = decoded.decode
    monkeypatch.setattr(decoded, "decode", lambda path, side: (seen.append(path.name), real(path, side))[1])
    return seen


def test_decoded_once(root: Path, picture, counted: list[str]) -> None:
    for i in range(5):
        picture(root / f"{i}.png", seed=i)
    (root / "x.png").write_bytes(b"")
    first = relatum.data.load(root)
    assert len(counted) == 6
    again = relatum.data.load(root)
    assert len(counted) == 6
    assert np.array_equal(first.images, again.images)
    assert (first.mean, first.files, first.skipped) == (again.mean, again.files, again.skipped)
    relatum.data.load(root, side=64)
    assert len(counted) == 12


@pytest.mark.parametrize("change", ["content", "same size and time", "added", "removed", "renamed", "mended"])
def test_a_change_is_noticed(root: Path, picture, counted: list[str], change: str) -> None:
    for i in range(3):
        picture(root / f"{i}.bmp", seed=i)
    (root / "broken.bmp").write_bytes(b"")
    before = relatum.data.load(root)
    counted.clear()
    times = (root / "1.bmp").stat()
    if change == "content":
        picture(root / "1.bmp", seed=99)
    elif change == "same size and time":
        picture(root / "1.bmp", seed=99)
        os.utime(root / "1.bmp", ns=(times.st_atime_ns, times.st_mtime_ns))
        assert (root / "1.bmp").stat().st_size == times.st_size
    elif change == "added":
        picture(root / "3.bmp", seed=3)
    elif change == "removed":
        (root / "1.bmp").unlink()
    elif change == "renamed":
        (root / "1.bmp").rename(root / "9.bmp")
    else:
        picture(root / "broken.bmp", seed=7)
    after = relatum.data.load(root)
    assert counted
    names = sorted(f.name for f in root.iterdir() if change == "mended" or f.name != "broken.bmp")
    assert after.files == names
    for image, name in zip(after.images, names, strict=True):
        assert np.array_equal(image, np.asarray(Image.open(root / name)))
    assert len(before) == 3  # what was loaded before can still be read
    assert before.images.sum() > 0


def test_old_entries_are_removed(root: Path, picture, own_cache: Path) -> None:
    for i in range(4):
        picture(root / f"{i}.png", seed=i)
        relatum.data.load(root)
        relatum.data.load(root, side=64)
    assert len(list((own_cache / "folders").iterdir())) == 2  # one for each side


@pytest.mark.parametrize("damage", ["cut", "no meta", "bad meta", "no images", "empty folder"])
def test_a_damaged_entry_is_not_used(root: Path, picture, own_cache: Path, damage: str) -> None:
    for i in range(3):
        picture(root / f"{i}.png", seed=i)
    good = np.array(relatum.data.load(root).images)
    [entry] = (own_cache / "folders").iterdir()
    if damage == "cut":
        os.truncate(entry / "images.npy", 2000)
    elif damage == "bad meta":
        (entry / "meta.json").write_text('{"mean": [0.')
    if damage in ("no meta", "empty folder"):
        (entry / "meta.json").unlink()
    if damage in ("no images", "empty folder"):
        (entry / "images.npy").unlink()
    assert np.array_equal(relatum.data.load(root).images, good)


def test_a_killed_build_leaves_nothing(root: Path, picture, own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for i in range(3):
        picture(root / f"{i}.png", seed=i)

    def stop(path: Path, side: int):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(decoded, "decode", stop)
        with pytest.raises(KeyboardInterrupt):
            relatum.data.load(root)
    assert list((own_cache / "folders").iterdir()) == []
    assert len(relatum.data.load(root)) == 3


def test_a_killed_process_leaves_nothing_that_is_used(root: Path, picture, own_cache: Path) -> None:
    for i in range(70):
        picture(root / f"{i:02}.png", seed=i)
    code = (
        "import os, signal, sys, relatum.data; from relatum.data import decoded; real = decoded.decode\n"
        "def decode(path, side):\n"
        "    if path.name == '60.png': os.kill(os.getpid(), signal.SIGKILL)\n"
        "    return real(path, side)\n"
        "decoded.decode = decode; relatum.data.load(sys.argv[1])"
    )
    done = subprocess.run([sys.executable, "-c", code, str(root)], check=False)
    assert done.returncode == -signal.SIGKILL
    [left] = (own_cache / "folders").iterdir()
    assert left.name.startswith(".building-")
    images = relatum.data.load(root)
    assert len(images) == 70
    assert np.array_equal(images.images[60], np.asarray(Image.open(root / "60.png")))


def test_many_chunks_keep_their_order(root: Path, picture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoded, "_CHUNK", 2)
    for i in range(45):
        Image.new("RGB", (32, 32), (i, 0, 0)).save(root / f"{i:02}.png")
    for i in (0, 1, 2, 3, 17, 44):  # whole chunks and parts of chunks
        (root / f"{i:02}.png").write_text("x")
    images = relatum.data.load(root)
    expected = [i for i in range(45) if i not in (0, 1, 2, 3, 17, 44)]
    assert images.images[:, 0, 0, 0].tolist() == expected
    assert images.files == [f"{i:02}.png" for i in expected]
    assert [s.path for s in images.skipped] == ["00.png", "01.png", "02.png", "03.png", "17.png", "44.png"]


def test_a_large_photograph_is_read_without_a_word(root: Path, recwarn: pytest.WarningsRecorder) -> None:
    Image.new("L", (10_000, 9_500), 77).save(root / "large.png")  # 95 megapixels: Pillow warns above 89
    assert relatum.data.load(root, side=32).images.max() == 77
    assert not recwarn.list


def test_folder_names(tmp_path: Path, picture, monkeypatch: pytest.MonkeyPatch) -> None:
    picture(tmp_path / "here" / "a.png")
    monkeypatch.chdir(tmp_path / "here")
    assert relatum.data.load(".").name == "here"
    with pytest.raises(InputError, match="is not a folder"):
        folder.scan(tmp_path / "absent")
