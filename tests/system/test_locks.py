"""Locks: one holder at a time, freed with its process, and inherited by its children."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import IO

import pytest

from relatum.errors import InputError
from relatum.system.locks import LOCK, lock_folder, process_alive, remove_if_empty


def refuse(file: IO[str]) -> None:
    raise InputError("busy")


def test_a_lock_has_one_holder(tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "folder"
    with lock_folder(folder, refuse), pytest.raises(InputError, match="busy"), lock_folder(folder, refuse):
        pass
    with lock_folder(folder, refuse):  # free again
        pass


def test_a_lock_is_tried_again_until_it_is_free(tmp_path: Path) -> None:
    code = "import sys, time; print('ready', flush=True); sys.stdin.read()"
    with lock_folder(tmp_path, refuse) as file:
        child = subprocess.Popen(
            [sys.executable, "-c", code], pass_fds=[file.fileno()], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert child.stdout is not None
        child.stdout.readline()
    calls = 0

    def end_child(file: IO[str]) -> None:  # the lock outlives its first holder: the child inherited it
        nonlocal calls
        calls += 1
        child.communicate()

    with lock_folder(tmp_path, end_child):
        assert calls == 1


def test_a_folder_that_cannot_be_created(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="cannot write to"), lock_folder(tmp_path / "file" / "folder", refuse):
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
