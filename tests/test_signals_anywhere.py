"""Stop signals at random moments of every long command: the stated exit code, one line, no traceback, nothing lost.

The default suite stops 6 times, the slow one 65 times. `RELATUM_SIGNALS=200` and `RELATUM_SIGNAL_SEED=7` change that.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from cifar_files import write_cifar

import relatum

SEED = int(os.environ.get("RELATUM_SIGNAL_SEED", "1"))
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)
COMMANDS = {
    "data info": "data info DATA",
    "pretrain": "pretrain DATA --out OUT/run --views 2 --batch-size 12 --epochs 4 --compile off --threads 1",
    "compile": "pretrain DATA --out OUT/run --views 2 --batch-size 12 --epochs 1 --compile on --threads 1",
    "evaluate linear": "evaluate linear RUN --data DATA --split val --set val_fraction=0.5 --epochs 20",
    "evaluate finetune": "evaluate finetune RUN --data DATA --split val --set val_fraction=0.5 --epochs 5",
    "evaluate tsne": "evaluate tsne RUN --data DATA --split val --set val_fraction=0.5",
    "embed": "embed RUN DATA --out OUT/z.npz",
    "search": "search RUN DATA QUERY --out OUT/sheet.png",
    "explore": "explore DATA --out OUT/run --minutes 0.05",
    "report": "report RUN --out OUT/report.html",
    "reproduce": "reproduce linear-evaluation --methods relational --datasets cifar10 --backbones conv4 --seeds 1"
    " --epochs 1 --views 2 --limit-train 64 --root CIFAR --out OUT/tables",
    "shard": "data shard DATA --out OUT/shards",
    "export": "export RUN --format torch-export --out OUT/x.pt2",
}
PROGRAM = """
import contextlib, sys
from relatum import cli
from relatum.system import signals
raising = signals.raising

@contextlib.contextmanager
def announced():
    signals.raising = raising
    with raising() as received:
        print("ready", flush=True)
        yield received

signals.raising = announced
sys.argv[0] = "relatum"
cli.main()
"""


@pytest.fixture(scope="module")
def places(pictures: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    flags = {"views": 2, "batch_size": 18, "epochs": 1, "seed": 1, "compile": "off", "threads": 1}
    run = relatum.pretrain(pictures, out=tmp_path_factory.mktemp("trained") / "run", quiet=True, **flags).path
    cifar = write_cifar(tmp_path_factory.mktemp("cifar"))
    return {"DATA": pictures, "RUN": run, "CIFAR": cifar, "QUERY": next(iter(pictures.rglob("*.png")))}


def command(name: str, places: dict[str, Path], folder: Path) -> list[str]:
    """The command, on a run of its own."""
    run = folder / "trained"
    if not run.exists():
        shutil.copytree(places["RUN"], run)
    words = {**places, "RUN": run, "OUT": folder / "out"}
    parts = COMMANDS[name].split()
    for key, place in words.items():
        parts = [part.replace(key, str(place), 1) if part.startswith(key) else part for part in parts]
    return [sys.executable, "-m", "relatum", *parts]


def start(arguments: list[str], folder: Path) -> tuple[subprocess.Popen[str], float]:
    """A command, and when it was ready: a signal before it handles signals is none of ours.

    Under load a process may wait for a CPU for tenths of a second, so it says itself when that is the case.
    """
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "RELATUM_CACHE": str(folder / "cache")}
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, *arguments[3:]],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n", process.communicate()
    return process, time.monotonic()


def stop_at_random(name: str, places: dict[str, Path], folder: Path, draws: random.Random, times: int) -> None:
    """Stop a command so many times at random, then let it finish: what is left of the stops does no harm."""
    process, began = start(command(name, places, folder / "timed"), folder / "timed")
    _, errors = process.communicate(timeout=600)
    assert process.returncode == 0, errors
    seconds, stopped = time.monotonic() - began, 0
    work = folder / "work"
    for _ in range(5 * times):
        process, _ = start(command(name, places, work), work)
        number = draws.choice(SIGNALS)
        time.sleep(max(0.05, draws.uniform(0, seconds)))
        process.send_signal(number)
        twice = draws.random() < 0.2
        if twice:
            time.sleep(0.01)
            process.send_signal(number)
        output, errors = process.communicate(timeout=120)
        story = f"{name}, seed {SEED}, stop {stopped}, {number.name} {'twice' * twice}: {process.returncode}\n{errors}"
        assert "Traceback" not in errors, story
        if process.returncode == 0:  # it had ended
            shutil.rmtree(work)
        elif process.returncode == -number:  # at once; or the work was done, and the interpreter was shutting down
            assert twice or output.strip(), story
            stopped += twice
            if output.strip():  # it had ended, as above: a second `data shard` into the same folder would be refused
                shutil.rmtree(work)
        else:
            assert process.returncode == 128 + number, story
            assert "stopped" in errors, story
            stopped += 1
        if (work / "out" / "run" / "recipe.toml").exists() and name != "explore":
            shutil.rmtree(work / "out")  # a second `pretrain` without --resume is refused
        if stopped == times:
            break
    process, _ = start(command(name, places, work), work)
    _, errors = process.communicate(timeout=600)
    assert process.returncode == 0, f"{name}, after {stopped} stops:\n{errors}"
    assert not list(work.rglob("*.part"))


def test_signals_at_random_moments(places: dict[str, Path], tmp_path: Path) -> None:
    for name in ("data info", "embed", "report"):
        stop_at_random(name, places, tmp_path / name, random.Random(f"{SEED} {name}"), 2)


@pytest.mark.slow
@pytest.mark.parametrize("name", COMMANDS)
def test_signals_at_random_moments_of_every_command(name: str, places: dict[str, Path], tmp_path: Path) -> None:
    times = -(-int(os.environ.get("RELATUM_SIGNALS", "65")) // len(COMMANDS))
    stop_at_random(name, places, tmp_path / name, random.Random(f"{SEED} {name}"), times)
