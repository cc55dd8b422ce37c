from __future__ import annotations

import io
import tarfile
import zipfile
from pathlib import Path

import pytest

from relatum.data.unpack import move_into, unpack
from relatum.errors import RelatumError


def tar(path: Path, *members: tarfile.TarInfo | tuple[str, bytes]) -> Path:
    with tarfile.open(path, "w:gz") as archive:
        for member in members:
            if isinstance(member, tuple):
                info = tarfile.TarInfo(member[0])
                info.size = len(member[1])
                archive.addfile(info, io.BytesIO(member[1]))
            else:
                archive.addfile(member)
    return path


def special(name: str, kind: bytes, link: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, link
    return info


def test_tar_and_zip(tmp_path: Path) -> None:
    file = tar(tmp_path / "a.tar.gz", special("d", tarfile.DIRTYPE), ("d/x", b"1"), ("e/y", b"22"))
    (tmp_path / "t").mkdir()
    unpack(file, tmp_path / "t")
    assert (tmp_path / "t" / "e" / "y").read_bytes() == b"22"
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.mkdir("d")
        archive.writestr("d/x", "333")
    (tmp_path / "z").mkdir()
    unpack(tmp_path / "a.zip", tmp_path / "z")
    assert (tmp_path / "z" / "d" / "x").read_bytes() == b"333"


@pytest.mark.parametrize("name", ["../evil", "/evil", "d/../../evil", "..\\evil", "C:/evil"])
def test_paths_that_lead_out(tmp_path: Path, name: str) -> None:
    into = tmp_path / "into"
    into.mkdir()
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr(name, "x")
    for file in (tar(tmp_path / "a.tar.gz", (name, b"x")), tmp_path / "a.zip"):
        with pytest.raises(RelatumError, match="a path outside its folder"):
            unpack(file, into)
    assert list(into.iterdir()) == []
    assert not (tmp_path / "evil").exists()


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE])
def test_links_and_devices(tmp_path: Path, kind: bytes) -> None:
    into = tmp_path / "into"
    into.mkdir()
    with pytest.raises(RelatumError, match="not a file or a folder"):
        unpack(tar(tmp_path / "a.tar.gz", special("x", kind, "/etc"), ("x/evil", b"1")), into)
    assert list(into.iterdir()) == []


def test_damaged(tmp_path: Path) -> None:
    whole = tar(tmp_path / "a.tar.gz", ("x", bytes(range(256)) * 400)).read_bytes()
    for content in (b"", b"hello", whole[: len(whole) // 2]):
        (tmp_path / "b").write_bytes(content)
        with pytest.raises(RelatumError, match="cannot be unpacked"):
            unpack(tmp_path / "b", tmp_path)


def test_moving_into_what_is_there(tmp_path: Path) -> None:
    for name, text in (("new/a", "2"), ("new/sub/b", "2"), ("old/a", "1"), ("old/own", "1")):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    move_into(tmp_path / "new", tmp_path / "old")
    assert {f: (tmp_path / "old" / f).read_text() for f in ("a", "sub/b", "own")} == {
        "a": "2",
        "sub/b": "2",
        "own": "1",
    }
