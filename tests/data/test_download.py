from __future__ import annotations

import hashlib
import io
import tarfile
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import IO

import numpy as np
import pytest

from relatum.data import download, sets
from relatum.data.dataset import Archive
from relatum.data.download import get
from relatum.data.sets import cifar
from relatum.errors import InputError, RelatumError
from relatum.system.locks import try_lock


class Server:
    """An archive on loopback: with or without ranges, and with connections that break."""

    def __init__(self) -> None:
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
            for name in ("train", "test", "meta"):
                content = np.random.default_rng(0).bytes(40_000)
                info = tarfile.TarInfo(f"cifar-100-python/{name}")
                info.size = len(content)
                archive.addfile(info, io.BytesIO(content))
        self.content = buffer.getvalue()
        self.ranges, self.length, self.codes = True, True, []
        self.breaks: list[int] = []  # bytes after which each of the next answers breaks off
        self.asked: list[str | None] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                wanted = self.headers.get("Range")
                outer.asked.append(wanted)
                if outer.codes:
                    self.send_error(outer.codes.pop(0))
                    return
                start = int(wanted.removeprefix("bytes=").rstrip("-")) if wanted and outer.ranges else 0
                if start >= len(outer.content):
                    self.send_error(416)
                    return
                body = outer.content[start:]
                self.send_response(206 if start else 200)
                if start:
                    self.send_header("Content-Range", f"bytes {start}-{len(outer.content) - 1}/{len(outer.content)}")
                if outer.length:
                    self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body[: outer.breaks.pop(0)] if outer.breaks else body)

            def log_message(self, *args: object) -> None:
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_port}/cifar-100-python.tar.gz"
        threading.Thread(target=self.http.serve_forever, daemon=True).start()


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    server = Server()
    archive = Archive(server.url, hashlib.md5(server.content).hexdigest(), len(server.content))
    monkeypatch.setattr(cifar, "CIFAR100", replace(cifar.CIFAR100, archive=archive))
    monkeypatch.setattr(download, "_PAUSE", 0.0)
    monkeypatch.setattr(download, "_TIMEOUT", 5.0)
    monkeypatch.setenv("no_proxy", "*")
    yield server
    server.http.shutdown()
    server.http.server_close()


def check(root: Path, place: Path) -> None:
    assert place == root / "cifar-100-python"
    assert sorted(p.name for p in place.iterdir()) == ["meta", "test", "train"]
    assert (place / "train").read_bytes() == np.random.default_rng(0).bytes(40_000)
    assert [p.name for p in root.iterdir()] == ["cifar-100-python"]  # no archive, part or temporary folder stays


def test_get_and_again(server: Server, tmp_path: Path) -> None:
    check(tmp_path, get("cifar100", tmp_path))
    assert server.asked == [None]
    check(tmp_path, get("cifar100", tmp_path))
    assert server.asked == [None]  # it is there: nothing is asked


def test_the_root_from_the_environment(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RELATUM_DATA", str(tmp_path / "deep" / "er"))
    check(tmp_path / "deep" / "er", get("cifar100"))


@pytest.mark.parametrize("ranges", [True, False], ids=["ranges", "no ranges"])
def test_a_broken_connection_is_resumed(server: Server, tmp_path: Path, ranges: bool) -> None:
    server.ranges = ranges
    server.breaks = [30_000, 20_000]
    check(tmp_path, get("cifar100", tmp_path))
    assert server.asked == [None, "bytes=30000-", "bytes=50000-" if ranges else "bytes=20000-"]


@pytest.mark.parametrize("ranges", [True, False], ids=["ranges", "no ranges"])
def test_an_earlier_run_is_continued(server: Server, tmp_path: Path, ranges: bool) -> None:
    server.ranges = ranges
    part = tmp_path / "cifar-100-python.tar.gz.part"
    part.write_bytes(server.content[:1000])
    check(tmp_path, get("cifar100", tmp_path))
    assert server.asked == ["bytes=1000-"]


def test_a_part_that_is_whole_already(server: Server, tmp_path: Path) -> None:
    (tmp_path / "cifar-100-python.tar.gz.part").write_bytes(server.content)
    check(tmp_path, get("cifar100", tmp_path))


def test_without_a_length(server: Server, tmp_path: Path) -> None:
    server.length = False
    check(tmp_path, get("cifar100", tmp_path))


def test_a_wrong_checksum_removes_the_file(server: Server, tmp_path: Path) -> None:
    (tmp_path / "cifar-100-python.tar.gz.part").write_bytes(b"x" * 1000)  # not the beginning of this file
    with pytest.raises(RelatumError, match="md5 differs"):
        get("cifar100", tmp_path)
    assert list(tmp_path.iterdir()) == []
    check(tmp_path, get("cifar100", tmp_path))


def test_a_server_that_keeps_failing_keeps_the_part(server: Server, tmp_path: Path) -> None:
    server.breaks = [10_000] * 5
    with pytest.raises(RelatumError, match="cannot be reached: the connection was closed") as caught:
        get("cifar100", tmp_path)
    assert str(tmp_path / "cifar-100-python.tar.gz") in str(caught.value)
    assert (tmp_path / "cifar-100-python.tar.gz.part").stat().st_size == 50_000
    check(tmp_path, get("cifar100", tmp_path))
    assert server.asked[-1] == "bytes=50000-"


def test_errors_of_the_server(server: Server, tmp_path: Path) -> None:
    server.codes = [503, 500]
    check(tmp_path, get("cifar100", tmp_path))  # tried again
    server.codes = [404]
    with pytest.raises(RelatumError, match="404"):
        get("cifar100", tmp_path / "other")
    assert len(server.asked) == 4  # and not tried again
    assert list((tmp_path / "other").iterdir()) == []
    server.codes = [502] * 5
    with pytest.raises(RelatumError, match="502"):
        get("cifar100", tmp_path / "other")


def test_an_address_that_does_not_answer(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dead = replace(cifar.CIFAR10.archive, url="http://127.0.0.1:1/cifar-10-python.tar.gz")
    monkeypatch.setattr(cifar, "CIFAR10", replace(cifar.CIFAR10, archive=dead))
    with pytest.raises(RelatumError, match=r"http://127\.0\.0\.1:1/\S+ cannot be reached") as caught:
        get("cifar10", tmp_path)
    # the message names the file to get by hand, how to verify it, and where to put it
    for fact in ("170,498,071 bytes", dead.md5, f"put it at {tmp_path / 'cifar-10-python.tar.gz'}"):
        assert fact in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_an_archive_that_the_user_put_there(server: Server, tmp_path: Path) -> None:
    file = tmp_path / "cifar-100-python.tar.gz"
    file.write_bytes(b"something else")
    with pytest.raises(InputError, match="not the published archive"):
        get("cifar100", tmp_path)
    file.write_bytes(server.content)
    assert (get("cifar100", tmp_path) / "train").exists()
    assert file.exists()  # it is the user's
    assert server.asked == []


def test_an_incomplete_folder_is_completed(server: Server, tmp_path: Path) -> None:
    (tmp_path / "cifar-100-python").mkdir()
    (tmp_path / "cifar-100-python" / "train").write_text("half")
    check(tmp_path, get("cifar100", tmp_path))


def test_an_archive_without_what_it_should_hold(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cifar, "CIFAR100", replace(cifar.CIFAR100, files=("absent",)))
    with pytest.raises(RelatumError, match="not complete"):
        get("cifar100", tmp_path)


def test_two_downloads_at_once(server: Server, tmp_path: Path) -> None:
    fcntl = pytest.importorskip("fcntl")
    with (tmp_path / "cifar-100-python.tar.gz.part").open("ab") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(InputError, match="another download"):
            get("cifar100", tmp_path)


def test_a_root_that_cannot_be_written(server: Server, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RelatumError, match="could not be written"):
        get("cifar100", tmp_path / "file" / "below")


def test_names_without_an_archive(tmp_path: Path, own_cache: Path, picture) -> None:
    with pytest.raises(InputError, match="did you mean 'cifar10'"):
        get("cifar1", tmp_path)
    assert get("shapes", tmp_path) == own_cache / "shapes"
    with pytest.raises(InputError, match="zenodo"):
        get("slimagenet", tmp_path)
    picture(tmp_path / "SlimageNet64" / "train" / "a" / "1.png")
    assert get("slimagenet", tmp_path) == tmp_path / "SlimageNet64"


def test_every_dataset_can_be_downloaded_or_says_how_to_get_it() -> None:
    archives = {name: sets.get(name).archive for name in sets.names() if sets.get(name).folder}
    assert [name for name, archive in archives.items() if archive is None] == ["slimagenet"]
    for name, archive in archives.items():
        if archive is None:
            assert "{folder}" in sets.get(name).instructions
        else:
            assert len(archive.md5) == 32
            assert archive.url.startswith("http")
            assert archive.size > 10**8


def test_a_part_is_locked_until_its_checksum_is_known(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That takes seconds. Another download that began then appended to the file, or began it again."""
    locked, real = [], download._md5

    def md5(file: Path) -> str:
        if file.suffix == ".part":
            with file.open("ab") as other:
                locked.append(not try_lock(other))
        return real(file)

    monkeypatch.setattr(download, "_md5", md5)
    get("cifar100", tmp_path)
    assert locked == [True]


def test_a_part_that_another_download_has_completed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was completed and renamed after this download opened it, and before it was locked."""
    part = tmp_path / "a.zip.part"

    def complete(out: IO[bytes]) -> bool:
        part.rename(tmp_path / "a.zip")
        return False

    monkeypatch.setattr(download, "_in_use", complete)
    with pytest.raises(InputError, match="being written by another download"):
        download._fetch("http://127.0.0.1:1/a.zip", tmp_path / "a.zip", "")
