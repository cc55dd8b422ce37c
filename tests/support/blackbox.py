"""relatum as a command: each call is a process of its own, of the Python that `RELATUM_PYTHON` names, by default this.

Tests that use only this can be run against any version: `RELATUM_PYTHON=/path/to/old/.venv/bin/python pytest ...`.
"""

from __future__ import annotations

import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

PYTHON = os.environ.get("RELATUM_PYTHON", sys.executable)
SECONDS = 240
# Small and without compiled kernels: what is tested here is what goes wrong around the training.
SHORT = (
    *("--views", "2", "--batch-size", "8", "--epochs", "3", "--seed", "1", "--compile", "off", "--threads", "1"),
    *("--backbone", "conv4", "--preset", "paper", "--set", "run.kernels=torch"),
    *("--set", "checkpoint.every_steps=1", "--set", "log.every_steps=1"),
)


@dataclass
class Done:
    """How a process ended; `code` is None if it did not end in time, and `peak` is its memory in bytes."""

    code: int | None
    out: str
    err: str
    peak: int

    @property
    def said(self) -> str:
        """Both outputs without line breaks, which depend on the width of the terminal."""
        return " ".join((self.out + " " + self.err).split())

    def check_clear(self) -> None:
        """One error line, no traceback, and an exit code of ours."""
        assert self.code in (1, 2), self.said
        assert "Traceback" not in self.said
        assert "unexpected" not in self.said, self.said
        assert sum(line.startswith("error: ") for line in self.err.splitlines()) == 1, self.err


def _limit(memory: int | None, files: int | None) -> None:
    if memory is not None:
        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    if files is not None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))


def run(
    *arguments: object,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    memory: int | None = None,
    files: int | None = None,
    seconds: float = SECONDS,
) -> Done:
    """Run Python with these arguments to its end."""
    with tempfile.TemporaryFile("w+", errors="replace") as out, tempfile.TemporaryFile("w+", errors="replace") as err:
        process = subprocess.Popen(
            [PYTHON, *map(str, arguments)],
            cwd=cwd,
            env={**os.environ, "OMP_NUM_THREADS": "1", **(env or {})},
            stdout=out,
            stderr=err,
            preexec_fn=lambda: _limit(memory, files),
        )
        deadline, code, peak = time.monotonic() + seconds, None, 0
        while time.monotonic() < deadline:
            pid, status, usage = os.wait4(process.pid, os.WNOHANG)
            if pid:
                code, peak = os.waitstatus_to_exitcode(status), usage.ru_maxrss * 1024
                break
            time.sleep(0.05)
        else:
            process.kill()
            _, _, usage = os.wait4(process.pid, 0)
            peak = usage.ru_maxrss * 1024
        process.returncode = code if code is not None else -signal.SIGKILL
        out.seek(0)
        err.seek(0)
        return Done(code, out.read(), err.read(), peak)


def relatum(*arguments: object, **options: object) -> Done:
    """Run the command `relatum`."""
    return run("-m", "relatum", *arguments, **options)  # type: ignore[arg-type]


def patched(code: str, *arguments: object, **options: object) -> Done:
    """Run the command `relatum` in a process that first runs some code, for faults of the system."""
    program = f"{code}\nimport sys\nfrom relatum.cli import main\nsys.argv[0] = 'relatum'\nmain()\n"
    return run("-c", program, *arguments, **options)  # type: ignore[arg-type]


def photos(folder: Path, number: int = 16, classes: tuple[str, ...] = ("a", "b"), *, seed: int = 0) -> Path:
    """A folder of small pictures of noise, in class folders."""
    rng = np.random.default_rng(seed)
    for name in classes:
        (folder / name).mkdir(parents=True, exist_ok=True)
        for i in range(number):
            Image.fromarray(rng.integers(0, 255, (32, 32, 3), np.uint8)).save(folder / name / f"{i:02}.png")
    return folder


def killed_run(data: Path, out: Path, *flags: object, lines: int = 5) -> Path:
    """A run that was killed after so many steps."""
    command = [PYTHON, "-m", "relatum", "pretrain", str(data), "--out", str(out), *SHORT, *map(str, flags)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    metrics, deadline = out / "metrics.jsonl", time.monotonic() + SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        if (metrics.exists() and metrics.read_bytes().count(b"\n") >= lines) if lines else (out / "run.json").exists():
            break
        time.sleep(0.01)
    process.kill()
    _, errors = process.communicate()
    assert (out / "run.json").exists(), errors
    assert not (out / "backbone.safetensors").exists(), errors
    return out


def copy(run_folder: Path, to: Path) -> Path:
    """A copy of a run folder."""
    return Path(shutil.copytree(run_folder, to, symlinks=True))


def flip(path: Path, position: int, mask: int = 0x15) -> None:
    """Change one byte of a file."""
    content = bytearray(path.read_bytes())
    content[position] ^= mask
    path.write_bytes(content)


@contextmanager
def disk(folder: Path, size: str) -> Iterator[Path]:
    """A small disk; the test is skipped where it may not mount one."""
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
    if os.name != "posix" or os.geteuid() or subprocess.run(command, check=False, capture_output=True).returncode:
        pytest.skip("needs root, to mount a small disk")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)
