"""A full disk at every kind of write: one clear line, exit code 1, nothing lost; with room the command succeeds."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import relatum
from relatum.cli.app import main

COMMANDS = {
    "evaluate knn": "evaluate knn RUN --data DATA --split val --set val_fraction=0.5",
    "evaluate linear": "evaluate linear RUN --data DATA --split val --set val_fraction=0.5 --epochs 1",
    "evaluate finetune": "evaluate finetune RUN --data DATA --split val --set val_fraction=0.5 --epochs 1",
    "evaluate retrieval": "evaluate retrieval RUN --data DATA --split val --set val_fraction=0.5",
    "embed npz": "embed RUN DATA --out DISK/out.npz",
    "embed csv": "embed RUN DATA --out DISK/out.csv",
    "search": "search RUN DATA QUERY --out DISK/out.png",
    "report": "report RUN --out DISK/out.html",
    "duplicates": "duplicates RUN DATA --out DISK/out.csv",
    "outliers": "outliers RUN DATA --out DISK/out.json",
    "cluster": "cluster RUN DATA --number 2 --out DISK/out.csv",
    "select": "select RUN DATA --number 3 --out DISK/out.txt",
    "export safetensors": "export RUN --format safetensors --out DISK/out.safetensors",
    "export torch": "export RUN --format torch --out DISK/out.pt",
    "export huggingface": "export RUN --format huggingface --out DISK/out",
    "import": "import WEIGHTS --backbone conv4 --out DISK/out",
    "data shard": "data shard DATA --out DISK/out",
}


@pytest.fixture(scope="module")
def trained(pictures: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    flags = {"views": 2, "batch_size": 18, "epochs": 1, "seed": 1, "compile": "off", "threads": 1}
    return relatum.pretrain(pictures, out=tmp_path_factory.mktemp("trained") / "run", quiet=True, **flags).path


@pytest.fixture(scope="module")
def disk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A disk of 8 MB; needs the right to mount one."""
    disk = tmp_path_factory.mktemp("disk")
    command = ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(disk)]
    if os.name != "posix" or os.geteuid() or subprocess.run(command, check=False, capture_output=True).returncode:
        pytest.skip("needs root, to mount a small disk")
    yield disk
    subprocess.run(["umount", "-l", str(disk)], check=True)


def fill(disk: Path) -> Path:
    """A file that takes all room of a disk."""
    ballast = disk / "ballast"
    with ballast.open("wb", buffering=0) as file:
        for size in (1 << 16, 1 << 10, 1):
            try:
                while True:
                    file.write(b"\0" * size)
            except OSError:
                continue
    return ballast


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def exit_code(command: list[str]) -> int:
    with pytest.raises(SystemExit) as stopped:
        main(command)
    return int(stopped.value.code or 0)


@pytest.mark.parametrize("name", COMMANDS)
def test_a_full_disk_is_one_line(
    name: str, trained: Path, pictures: Path, disk: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for path in disk.iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    run = disk / "run"
    shutil.copytree(trained, run)
    query = next(pictures.rglob("*.png"))
    places = {"RUN": run, "DATA": pictures, "QUERY": query, "DISK": disk, "WEIGHTS": run / "backbone.safetensors"}
    command = COMMANDS[name].split()
    for key, place in places.items():
        command = [part.replace(key, str(place)) if part.startswith(key) else part for part in command]
    ballast, before = fill(disk), files(run)
    code = exit_code(command)
    said = capsys.readouterr().err.splitlines()
    errors = [line for line in said if line.startswith("error: ")]
    assert code == 1
    assert len(errors) == 1
    assert "No space left on device" in " ".join(said)
    assert "Traceback" not in " ".join(said)
    assert files(run) == before
    assert not list(disk.rglob("*.part"))
    ballast.unlink()
    assert exit_code(command) == 0, capsys.readouterr().err
