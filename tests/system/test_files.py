"""Files are written whole or not at all, errors name the path, and what killed processes left is removed."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from relatum.errors import RelatumError
from relatum.system import files, locks
from relatum.system.files import (
    CHECKSUM,
    WriteError,
    file_safe,
    is_intact,
    overwrite_in_place,
    remove_stale,
    with_checksum,
    write_atomically,
    write_json,
    write_text,
)


def test_a_failed_write_leaves_the_old_file_and_no_litter(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "file.json"
    write_json(path, {"a": 1})

    def fail(temporary: Path) -> None:
        temporary.write_text("half")
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(WriteError, match=r"file\.json could not be written: No space left on device\. Free") as e:
        write_atomically(path, fail)
    assert isinstance(e.value, RelatumError)
    assert isinstance(e.value, OSError)
    assert (e.value.errno, e.value.exit_code) == (errno.ENOSPC, 1)
    assert len(str(e.value).splitlines()) == 1
    assert json.loads(path.read_text()) == {"a": 1}
    assert [p.name for p in path.parent.iterdir()] == ["file.json"]
    with pytest.raises(ValueError, match="JSON"):
        write_json(path, {"a": float("nan")})


def test_a_folder_that_cannot_be_created_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(WriteError, match=r"x\.txt could not be written: \w[\w ]+\.$"):
        write_text(tmp_path / "file" / "x.txt", "")


def test_the_file_and_then_its_folder_are_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []
    monkeypatch.setattr(os, "fsync", lambda fd: synced.append(str(Path(f"/proc/self/fd/{fd}").readlink())))
    if not Path("/proc/self/fd").exists():
        pytest.skip("needs /proc")
    write_text(tmp_path / "x.txt", "text")
    assert len(synced) == 2
    assert synced[0].endswith(".part")
    assert synced[1] == str(tmp_path)


def test_files_are_written_where_open_ones_cannot_be_renamed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on Windows: no locks, no `pwrite`, no sync of a file that is open for reading only."""
    descriptors = Path("/proc/self/fd")
    if not descriptors.exists():
        pytest.skip("needs /proc")
    fcntl = pytest.importorskip("fcntl")
    rename = Path.replace

    def replace(path: Path, target: Path) -> Path:
        assert path not in [fd.readlink() for fd in descriptors.iterdir() if fd.is_symlink()]
        return rename(path, target)

    def sync(descriptor: int) -> None:
        if fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY:
            raise OSError(errno.EBADF, "Bad file descriptor")

    monkeypatch.setattr(Path, "replace", replace)
    monkeypatch.setattr(os, "fsync", sync)
    monkeypatch.setattr(locks, "LOCKS", False, raising=False)
    monkeypatch.setattr(files, "LOCKS", False, raising=False)
    monkeypatch.delattr(os, "pread")
    monkeypatch.delattr(os, "pwrite")
    with locks.lock_folder(tmp_path, lambda owner: pytest.fail(f"held by {owner}")):
        write_text(tmp_path / "x.txt", "text")
    assert (tmp_path / "x.txt").read_text() == "text"
    assert sorted(path.name for path in tmp_path.iterdir()) == [locks.LOCK, "x.txt"]


def test_what_a_killed_write_left_is_removed_and_what_is_in_use_is_kept(tmp_path: Path) -> None:
    code = (
        "import sys, time; from pathlib import Path; from relatum.system.files import write_atomically\n"
        "def slow(path): path.write_text('half'); print('ready', flush=True); time.sleep(600)\n"
        f"write_atomically(Path({str(tmp_path / 'x.txt')!r}), slow)"
    )
    child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    assert child.stdout is not None
    child.stdout.readline()
    remove_stale(tmp_path)
    write_text(tmp_path / "x.txt", "ours")
    assert len(list(tmp_path.glob(".x.txt.*.part"))) == 1  # still being written
    child.send_signal(signal.SIGKILL)
    child.communicate()
    write_text(tmp_path / "y.txt", "another file")
    assert len(list(tmp_path.glob(".*.part"))) == 1
    write_text(tmp_path / "x.txt", "ours")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["x.txt", "y.txt"]


def test_without_locks_only_old_temporary_files_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unsupported(file: object) -> bool:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(files, "try_lock", unsupported)
    monkeypatch.setattr(files, "is_locked", unsupported)
    for name, age in (("old", 1e6), ("new", 10)):
        path = tmp_path / f".{name}.part"
        path.touch()
        os.utime(path, (path.stat().st_mtime - age,) * 2)
    remove_stale(tmp_path)
    write_text(tmp_path / "x.txt", "")
    assert sorted(path.name for path in tmp_path.iterdir()) == [".new.part", "x.txt"]


def test_a_temporary_file_that_is_taken_for_a_stale_one_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original, calls = files.try_lock, []

    def removed_first(file: object) -> bool:
        calls.append(1)
        if len(calls) == 1:
            next(tmp_path.glob(".*.part")).unlink()
        return len(calls) != 2 and original(file)  # type: ignore[arg-type]

    monkeypatch.setattr(files, "try_lock", removed_first)
    write_text(tmp_path / "x.txt", "text")
    assert (tmp_path / "x.txt").read_text() == "text"
    assert len(calls) == 3


def test_text_in_place(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("a longer text")
    assert overwrite_in_place(tmp_path / "x", "short")
    assert not overwrite_in_place(tmp_path / "x", "long" * 1_000_000)
    assert (tmp_path / "x").read_text() == "short"


def test_names_that_are_no_text_survive(tmp_path: Path) -> None:
    name = b"caf\xe9.jpg".decode("utf-8", "surrogateescape")
    write_json(tmp_path / "run.json", {"path": name, "words": "naïve"})
    assert json.loads((tmp_path / "run.json").read_text("utf-8")) == {"path": name, "words": "naïve"}


def test_a_checksum_whose_key_was_damaged_is_noticed() -> None:
    document = with_checksum({"accuracy": 61.0, "note": "a" * 64})
    assert is_intact(document)
    assert is_intact({"accuracy": 61.0, "note": "a" * 64})  # written before there were checksums
    assert not is_intact({**document, "accuracy": 62.0})
    renamed = {("digesu" if key == CHECKSUM else key): value for key, value in document.items()}
    assert not is_intact(renamed)


@pytest.mark.parametrize("name", ["写真" * 40, "a" * 250, "x/" + "é" * 126])
def test_a_long_name_fits_in_a_file_name_and_stays_its_own(name: str) -> None:
    safe = file_safe(name)
    assert len(safe.encode()) <= 100
    assert file_safe(safe) == safe
    assert file_safe(f"{name}b") != safe
    assert file_safe("My photos (new)!") == "My-photos-new"


def test_the_umask_survives_two_threads_that_read_it_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """It can only be read by changing it. Files written by several jobs of `reproduce` could leave it at 0 for good."""
    masks, real = [0o027], threading.Barrier(2)

    def umask(mask: int) -> int:
        before = masks[-1]
        masks.append(mask)
        with contextlib.suppress(threading.BrokenBarrierError):
            real.wait(0.2)  # both threads are here if nothing keeps them apart
        return before

    monkeypatch.setattr(files.os, "umask", umask)
    with ThreadPoolExecutor(2) as pool:
        results = list(pool.map(lambda _: files._umask(), range(2)))
    assert (results, masks[-1]) == ([0o027, 0o027], 0o027)
