"""Commands as real processes are stopped by signals at any moment: the stated exit code, no traceback, nothing lost."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from PIL import Image

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP)
TRAIN = ("--views", "2", "--batch-size", "8", "--epochs", "100000", "--compile", "off", "--threads", "1")
# Each test stops a command at a place where it prints: `SLOW` lets a function of relatum say so and take ten seconds.
SLOW = """
import importlib, sys, time
name, function = {target!r}.split(":")
module = importlib.import_module(name)
def slow(*arguments, **keywords):
    print("here", flush=True)
    for _ in range(100):
        time.sleep(0.1)
setattr(module, function, slow)
from relatum import cli
sys.argv = ["relatum", *sys.argv[1:]]
cli.main()
"""


def start(*arguments: str, slow: str | None = None, cwd: Path) -> subprocess.Popen[str]:
    program = ["-m", "relatum"] if slow is None else ["-c", SLOW.format(target=slow)]
    command = [sys.executable, *program, *arguments]
    return subprocess.Popen(command, cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.fixture
def processes() -> Iterator[list[subprocess.Popen[str]]]:
    started: list[subprocess.Popen[str]] = []
    yield started
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate()


def wait_for_line(process: subprocess.Popen[str], text: str) -> None:
    assert process.stdout is not None
    line = process.stdout.readline()
    assert text in line, process.stderr.read() if process.stderr else ""


@pytest.mark.parametrize(
    ("place", "arguments"),
    [
        ("relatum.data.decoded:decode", ("data", "info", "photos")),
        ("relatum.training.build:compile_backbone", ("pretrain", "photos", "--views", "2", "--compile", "on")),
        ("relatum.evaluation.embedding:extract", ("embed", "weights.safetensors", "photos", "--out", "z.npz")),
    ],
    ids=["decoding", "compiling", "embedding"],
)
@pytest.mark.parametrize("number", SIGNALS)
def test_a_command_stops_where_it_is(
    place: str,
    arguments: tuple[str, ...],
    number: signal.Signals,
    tmp_path: Path,
    processes: list[subprocess.Popen[str]],
) -> None:
    if number != signal.SIGTERM and "decoded" not in place:
        pytest.skip("one signal is enough here: all have the same handler")
    (tmp_path / "photos").mkdir()
    for i in range(8):
        Image.new("RGB", (32, 32), (i * 20, 0, 0)).save(tmp_path / "photos" / f"{i}.png")
    if "weights.safetensors" in arguments:
        from relatum import backbones
        from relatum.runs.weights import save_weights

        save_weights(tmp_path / "weights.safetensors", backbones.build("conv4").state_dict(), {"backbone": "conv4"})
    process = start(*arguments, slow=place, cwd=tmp_path)
    processes.append(process)
    wait_for_line(process, "here")
    process.send_signal(number)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 128 + number, errors
    assert errors.strip().splitlines()[-1] == f"stopped by {number.name}."
    assert "Traceback" not in errors
    assert not list(tmp_path.rglob("recipe.toml"))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGUSR1])
def test_training_saves_and_stops(
    number: signal.Signals, pictures: Path, tmp_path: Path, processes: list[subprocess.Popen[str]]
) -> None:
    """The checkpoint holds the step that the message names, and `--resume` continues from it."""
    from relatum.runs import checkpoint

    process = start("pretrain", str(pictures), "--out", "run", *TRAIN, cwd=tmp_path)
    processes.append(process)
    metrics = tmp_path / "run" / "metrics.jsonl"
    deadline = time.monotonic() + 240
    while not (metrics.exists() and metrics.stat().st_size) and time.monotonic() < deadline:
        assert process.poll() is None, process.communicate()
        time.sleep(0.1)
    process.send_signal(number)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 128 + number, errors
    assert "Traceback" not in errors
    newest = checkpoint.newest(tmp_path / "run")
    assert newest is not None
    assert f"stopped at step {newest[1]['step']} of 500000; --resume continues." in errors


def test_a_further_signal_can_be_configured(
    pictures: Path, tmp_path: Path, processes: list[subprocess.Popen[str]]
) -> None:
    program = """
import os, signal, sys
from relatum.training.loop import Trainer
from relatum import cli
step = Trainer.train_step
def train_step(self, batch):
    if self.step == 3:
        os.kill(os.getpid(), signal.SIGUSR2)
    return step(self, batch)
Trainer.train_step = train_step
cli.main(sys.argv[1:])
"""
    command = [sys.executable, "-c", program, "pretrain", str(pictures), "--out", "run", *TRAIN]
    command += ["--set", "checkpoint.signal=SIGUSR2"]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
    assert result.returncode == 128 + signal.SIGUSR2, result.stderr
    assert "stopped at step 4 of 500000" in result.stderr
    assert list((tmp_path / "run" / "checkpoints").iterdir())


def test_a_stopped_exploration_does_not_advise_a_flag_that_it_lacks(pictures: Path, tmp_path: Path) -> None:
    program = """
import os, signal, sys
from relatum.training.loop import Trainer
from relatum import cli
step = Trainer.train_step
def train_step(self, batch):
    if self.step in (3, 6):
        os.kill(os.getpid(), signal.SIGINT)
    return step(self, batch)
Trainer.train_step = train_step
cli.main(sys.argv[1:])
"""
    for arguments, advice in (
        (("pretrain", str(pictures), "--out", "run", *TRAIN), "stopped at step 4 of 500000; --resume continues."),
        (("explore", str(pictures), "--out", "run"), "stopped at step 7 of 500000; run the same command to resume."),
    ):
        command = [sys.executable, "-c", program, *arguments]
        result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
        assert result.returncode == 128 + signal.SIGINT, result.stderr
        assert result.stderr.strip().splitlines()[-1] == advice


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_while_the_command_line_is_imported(number: signal.Signals, tmp_path: Path) -> None:
    program = f"""
import os, sys
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == "typer":
            os.kill(os.getpid(), {int(number)})
sys.meta_path.insert(0, Finder())
from relatum.cli import main
main(["list", "methods"])
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 128 + number, done.stderr
    assert done.stderr == f"stopped by {number.name}.\n"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("place", ["_show_warnings_as_notes", "discard_unwritten"])
def test_a_signal_before_or_after_the_command_itself(place: str, number: signal.Signals, tmp_path: Path) -> None:
    """It killed the process without a word, or with a traceback: signals were handled during imports and commands."""
    program = f"""
import os, sys
from relatum.cli import app, main
app.{place} = lambda: os.kill(os.getpid(), {int(number)})
sys.argv = ["relatum", "list", "methods"]
main()
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 128 + number, done.stderr
    assert done.stderr == f"stopped by {number.name}.\n"
