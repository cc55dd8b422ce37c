"""SIGKILL at random moments, resumed until the run is done: the same bits and metrics as an undisturbed run.

The default suite kills 10 times, the slow one 200 times over all methods. `RELATUM_KILLS=40` and `RELATUM_KILL_SEED=7`
change how often and when.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import time
from collections.abc import Iterator
from itertools import cycle
from pathlib import Path
from typing import Any

import killing
import pytest

from relatum.config.methods import METHODS
from relatum.runs.folder import RunFolder

SEED = int(os.environ.get("RELATUM_KILL_SEED", "1"))
QUICK = ("relational", "deepcluster")  # a head with weights of its own, and state that is renewed at each epoch
FLAGS = [
    *("--batch-size", "12", "--epochs", "2", "--seed", "1", "--compile", "off", "--threads", "1"),
    *("--set", "checkpoint.every_steps=1", "--set", "log.every_steps=1"),
]
OPTIONS = {"relational": ["--views", "3"], "deepcluster": ["--set", "objective.clusters=4"]}


def command(method: str, data: Path, out: Path) -> list[str]:
    return ["pretrain", str(data), "--out", str(out), "--method", method, *FLAGS, *OPTIONS.get(method, ())]


def result(run: Path) -> tuple[bytes, bytes, list[dict[str, Any]]]:
    """The weights, and the metrics without what depends on the time."""
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    timed = {"views_per_second"}
    relation = run / "relation.safetensors"
    return (
        (run / "backbone.safetensors").read_bytes(),
        relation.read_bytes() if relation.exists() else b"",
        [{key: value for key, value in row.items() if key not in timed} for row in rows],
    )


def moments(generator: random.Random, seconds: float) -> Iterator[float]:
    """Seconds until a kill: anywhere in a run, at its start, and while it saves and finishes."""
    while True:
        yield seconds * generator.uniform(0, 1)
        yield seconds * generator.uniform(0, 0.2)
        yield seconds * generator.uniform(0.8, 1.05)


def undisturbed(method: str, data: Path, folder: Path) -> tuple[Any, float]:
    log = folder / f"{method}.log"
    for name in ("first", "run"):  # the first one fills caches; the second one is timed
        begun = time.monotonic()
        process = killing.start(command(method, data, folder / method / name), log)
        process.join(300)
        assert process.exitcode == 0, log.read_text()
    return result(folder / method / "run"), time.monotonic() - begun


def kill_and_resume(method: str, data: Path, folder: Path, kills: int, generator: random.Random) -> None:
    """Kill runs of a method so many times in all; every run is resumed until it is done and then compared."""
    expected, seconds = undisturbed(method, data, folder)
    run, log, killed, when = folder / method / "killed", folder / f"{method}-killed.log", 0, moments(generator, seconds)
    while killed < kills:
        arguments = [*command(method, data, run), "--resume"]
        process = killing.start(arguments, log)
        process.join(next(when) if killed < kills else 300)
        if process.exitcode is None:
            process.kill()
            process.join()
            killed += 1
            if killed < kills:
                continue
            process = killing.start(arguments, log)
            process.join(300)
        assert process.exitcode == 0, log.read_text()
        _check_done(run, expected, f"{method}, seed {SEED}, after {killed} kills:\n{log.read_text()}")
        shutil.rmtree(run)
        log.unlink()


def _check_done(run: Path, expected: Any, story: str) -> None:
    assert result(run) == expected, story
    folder = RunFolder(run)
    assert folder.read_record()["status"] == "finished", story
    assert not folder.record_damaged()
    assert sorted(path.name for path in folder.checkpoints.iterdir()) == [
        "last.ckpt",
        *(f"milestone-{percent:03d}.ckpt" for percent in (25, 50, 75, 100)),
        "previous.ckpt",
    ], story
    assert not list(run.rglob("*.part"))
    assert "Traceback" not in story


def kill_all(methods: tuple[str, ...], kills: int, data: Path, folder: Path) -> None:
    generator = random.Random(SEED)
    shares = dict.fromkeys(methods, 0)
    for _, method in zip(range(kills), cycle(methods), strict=False):
        shares[method] += 1
    for method, share in shares.items():
        if share:
            kill_and_resume(method, data, folder, share, generator)


def test_killed_runs_end_with_the_same_bits(pictures: Path, tmp_path: Path) -> None:
    kill_all(QUICK, 10, pictures, tmp_path)


@pytest.mark.slow
def test_killed_runs_of_every_method_end_with_the_same_bits(pictures: Path, tmp_path: Path) -> None:
    kills = int(os.environ.get("RELATUM_KILLS", "200"))
    kill_all(tuple(name for name, row in METHODS.items() if row.trains), kills, pictures, tmp_path)
