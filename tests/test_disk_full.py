"""A full disk at every kind of write: one clear line, exit code 1, nothing lost; with room the command succeeds."""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import shutil
import subprocess
import tarfile
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from cifar_files import write_cifar

import relatum
from relatum.cli.app import main
from relatum.data import download
from relatum.data.dataset import Archive
from relatum.data.sets import cifar

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
    "data get": "data get cifar100 --root DISK/root",
    "explore": "explore DATA --out RUN",
    "explore and train": "explore DATA --minutes 0.02 --out DISK/new",
    "reproduce": "reproduce linear-evaluation --methods random --datasets cifar10 --backbones conv4 --seeds 1"
    " --epochs 1 --limit-train 64 --root CIFAR --out DISK/out",
}
SLOW = ("explore and train", "reproduce")  # they start processes, or train


@pytest.fixture(scope="module")
def trained(pictures: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    flags = {"views": 2, "batch_size": 18, "epochs": 1, "seed": 1, "compile": "off", "threads": 1}
    return relatum.pretrain(pictures, out=tmp_path_factory.mktemp("trained") / "run", quiet=True, **flags).path


@pytest.fixture(scope="module")
def cifar_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_cifar(tmp_path_factory.mktemp("cifar"))


@pytest.fixture(scope="module")
def disk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A disk of 24 MB; needs the right to mount one."""
    disk = tmp_path_factory.mktemp("disk")
    command = ["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", str(disk)]
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


@pytest.fixture
def archive(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """CIFAR-100's archive comes from this machine."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as file:
        for name in ("train", "test", "meta"):
            info = tarfile.TarInfo(f"cifar-100-python/{name}")
            info.size = 40_000
            file.addfile(info, io.BytesIO(os.urandom(info.size)))
    content = buffer.getvalue()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            with contextlib.suppress(OSError):
                self.wfile.write(content)

        def log_message(self, *arguments: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_port}/cifar-100-python.tar.gz"
    facts = Archive(url, hashlib.md5(content).hexdigest(), len(content))
    monkeypatch.setattr(cifar, "CIFAR100", replace(cifar.CIFAR100, archive=facts))
    monkeypatch.setattr(download, "_PAUSE", 0.0)
    monkeypatch.setenv("no_proxy", "*")
    yield
    server.shutdown()
    server.server_close()


@pytest.mark.usefixtures("archive")
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow) if name in SLOW else name for name in COMMANDS]
)
def test_a_full_disk_is_one_line(
    name: str, trained: Path, pictures: Path, disk: Path, cifar_root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for path in disk.iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    run = disk / "run"
    shutil.copytree(trained, run)
    query = next(pictures.rglob("*.png"))
    places = {"RUN": run, "DATA": pictures, "QUERY": query, "DISK": disk, "WEIGHTS": run / "backbone.safetensors"}
    places["CIFAR"] = cifar_root
    command = COMMANDS[name].split()
    for key, place in places.items():
        command = [part.replace(key, str(place)) if part.startswith(key) else part for part in command]
    ballast, before = fill(disk), files(run)
    code = exit_code(command)
    said = capsys.readouterr().err.splitlines()
    errors = [line for line in said if line.startswith("error: ")]
    assert code == 1, said
    assert len(errors) == 1
    assert "No space left on device" in " ".join(said)
    assert "Traceback" not in " ".join(said)
    after = files(run)
    assert {path: after.get(path) for path in before} == before
    assert all(not after[path] for path in after.keys() - before.keys())  # `explore` marks the folder, with no content
    if name != "data get":  # which continues from there
        assert not list(disk.rglob("*.part"))
    ballast.unlink()
    assert exit_code(command) == 0, capsys.readouterr().err
