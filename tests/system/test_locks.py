"""Locks: one holder at a time, named in the file, freed with its process, and inherited by its children."""

from __future__ import annotations

import errno
import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

from relatum.errors import InputError
from relatum.system import locks
from relatum.system.locks import LOCK, Owner, lock_folder, process_alive, read_owner, remove_if_empty


def refuse(owner: Owner | None) -> None:
    raise InputError(f"busy: {owner}")


def test_a_lock_has_one_holder_which_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "folder"
    held = rf"busy: process {os.getpid()} on {platform.node()}, since 20\d\d-"
    with lock_folder(folder, refuse), pytest.raises(InputError, match=held), lock_folder(folder, refuse):
        pass
    with lock_folder(folder, refuse):  # free again
        pass
    assert (folder / LOCK).read_text() == ""


def test_a_lock_names_its_holder_without_positioned_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "pread")  # Windows has neither
    monkeypatch.delattr(os, "pwrite")
    test_a_lock_has_one_holder_which_is_named(tmp_path)


def test_a_lock_is_tried_again_until_it_is_free(tmp_path: Path) -> None:
    code = "import sys, time; print('ready', flush=True); sys.stdin.read()"
    with lock_folder(tmp_path, refuse) as file:
        child = subprocess.Popen(
            [sys.executable, "-c", code], pass_fds=[file.fileno()], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert child.stdout is not None
        child.stdout.readline()
    calls = 0

    def end_child(owner: Owner | None) -> None:  # the lock outlives its first holder: the child inherited it
        nonlocal calls
        calls += 1
        child.communicate()

    with lock_folder(tmp_path, end_child):
        assert calls == 1


def test_a_folder_that_cannot_be_created(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="cannot write to"), lock_folder(tmp_path / "file" / "folder", refuse):
        pass


@pytest.mark.parametrize("link", ["symbolic", "hard", "pipe"])
def test_a_link_in_place_of_the_lock_leaves_its_target_alone(tmp_path: Path, link: str) -> None:
    target, folder = tmp_path / "thesis.txt", tmp_path / "run"
    target.write_text("years of work")
    folder.mkdir()
    {"symbolic": os.symlink, "hard": os.link, "pipe": lambda _, path: os.mkfifo(path)}[link](target, folder / LOCK)
    with pytest.raises(InputError, match=r"\.lock is (a symbolic link|not a plain file)"), lock_folder(folder, refuse):
        pass
    assert target.read_text() == "years of work"


def test_other_errors_give_their_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(locks.fcntl, "flock", fail)
    with pytest.raises(InputError, match=r"could not be locked: Input/output error\."), lock_folder(tmp_path, refuse):
        pass


def test_without_locks_the_named_owner_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unsupported(*arguments: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(locks.fcntl, "flock", unsupported)
    with lock_folder(tmp_path, refuse), pytest.raises(InputError, match="busy"), lock_folder(tmp_path, refuse):
        pass
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    text = '{{"host": "{}", "process": {}, "since": "2026-11-16"}}'
    (tmp_path / LOCK).write_text(text.format(platform.node(), child.pid))
    with lock_folder(tmp_path, refuse):  # killed here: it no longer counts
        pass
    (tmp_path / LOCK).write_text(text.format(platform.node(), os.getpid()))
    with lock_folder(tmp_path, refuse):  # a container that was killed had the same number
        pass
    (tmp_path / LOCK).write_text(text.format("elsewhere", 1))
    with pytest.raises(InputError, match=r"process 1 on elsewhere.* remove "), lock_folder(tmp_path, refuse):
        pass


HUGE = '{"host": "a", "process": 1%s, "since": ""}' % ("0" * 40)


@pytest.mark.parametrize("content", ["", "123\n", "[1]", "[" * 4096, HUGE, '{"host": 1', '{"host": "a"}', "\x00" * 100])
def test_a_lock_file_without_an_owner(tmp_path: Path, content: str) -> None:
    (tmp_path / LOCK).write_text(content)
    with (tmp_path / LOCK).open() as file:
        assert read_owner(file) is None
    with lock_folder(tmp_path, refuse):
        pass


def test_a_lock_file_that_is_removed_before_it_is_locked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    original, removed = locks.try_lock, []

    def remove_first(file: object) -> bool:
        if not removed:
            removed.append((tmp_path / LOCK).unlink())
        return original(file)  # type: ignore[arg-type]

    monkeypatch.setattr(locks, "try_lock", remove_first)
    with lock_folder(tmp_path, refuse), pytest.raises(InputError, match="busy"), lock_folder(tmp_path, refuse):
        pass


def test_only_an_empty_folder_is_removed(tmp_path: Path) -> None:
    for name in ("empty", "full"):
        (tmp_path / name).mkdir()
        (tmp_path / name / LOCK).touch()
    (tmp_path / "full" / "file").touch()
    remove_if_empty(tmp_path / "empty")
    remove_if_empty(tmp_path / "full")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["full"]


def test_whether_a_process_is_alive() -> None:
    assert process_alive(str(os.getpid()))
    assert not process_alive("")
    assert not process_alive("nobody")
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    assert not process_alive(str(child.pid))
