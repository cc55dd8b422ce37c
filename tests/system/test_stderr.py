"""A message that cannot be written ends nothing: neither a training nor a command's exit code."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from relatum.system.progress import Display, bar
from relatum.system.stderr import STDERR, say

TINY = ("--limit-train", "64", "--views", "2", "--batch-size", "32", "--epochs", "2", "--threads", "1")


def relatum(*arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "relatum", *arguments]
    return subprocess.run(command, text=True, timeout=300, check=False, **options)


def closed_pipe() -> int:
    reader, writer = os.pipe()
    os.close(reader)
    return writer


class Closed(io.TextIOBase):
    def write(self, text: str) -> int:
        raise BrokenPipeError

    def flush(self) -> None:
        pass


def test_a_closed_stream_is_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    for stream in (None, Closed()):
        monkeypatch.setattr(sys, "stderr", stream)
        say("lost")
        Display().print("lost")
        Display().warn("lost")
        with bar("lost", 3, patience=-1) as advance:
            advance()
        assert STDERR.isatty() is False


def test_training_goes_on_without_a_reader_of_its_messages(tmp_path: Path) -> None:
    writer = closed_pipe()
    done = relatum("pretrain", "shapes", *TINY, "--out", str(tmp_path / "run"), stderr=writer, stdout=subprocess.PIPE)
    os.close(writer)
    assert (done.returncode, done.stdout.strip()) == (0, str(tmp_path / "run"))
    assert (tmp_path / "run" / "backbone.safetensors").exists()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_log_does_not_change_the_exit_code() -> None:
    with Path("/dev/full").open("w") as full:
        assert relatum("pretrain", "no-such-folder", stderr=full).returncode == 2


def test_help_for_a_reader_of_one_line() -> None:
    writer = closed_pipe()
    assert relatum("pretrain", "--help", stdout=writer).returncode == 0
    os.close(writer)
