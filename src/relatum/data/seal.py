"""Seals: the digests of the files of a cache entry, checked when the entry is first used in a process.

A flipped byte in a cached image would otherwise change results silently. `seal.json` contains the size and, for
every 16 MiB, a SHA-256 digest of each file. Checking reads every byte once, in threads. That takes 1.3 ms per
megabyte (two AVX2 cores, benchmarks/hashing.py): 0.2 s for CIFAR-10's size and, from that, 3.5 s for the 2.7 GB of
STL-10; the pages are then in memory for training.
"""

from __future__ import annotations

import hashlib
import json
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from relatum.data.arrays import Damaged
from relatum.system.cpus import available_cpus
from relatum.system.untrusted import read_json_bounded

SEAL = "seal.json"
_BLOCK = 16 << 20
_PIECE = 1 << 20  # bytes read at a time, so that a check takes little memory
_checked: dict[Path, list[tuple[str, int, int, int]]] = {}  # entries that were checked in this process, as they were


def write_seal(folder: Path) -> None:
    """Write the seal of a folder, which must contain only files."""
    files = sorted(path for path in folder.iterdir() if path.name != SEAL)
    (folder / SEAL).write_text(json.dumps({path.name: _digests(path) for path in files}))


def check_seal(folder: Path) -> None:
    """Compare the files of a folder with its seal, once per process unless they change.

    Raises:
        Damaged: a file is missing or has other content; the text is empty for a folder without a seal, which an
            earlier version of relatum wrote.
    """
    if not (folder / SEAL).exists():
        raise Damaged
    state = _state(folder)
    if _checked.get(folder) == state:
        return
    try:
        seal = read_json_bounded(folder / SEAL)
        expected = {str(name): list(digests) for name, digests in seal.items()}
    except (ValueError, AttributeError, TypeError):
        raise Damaged(f"{SEAL} is not readable") from None
    if not expected or any(os.path.basename(name) != name for name in expected):  # noqa: PTH119
        raise Damaged(f"{SEAL} is not readable")
    for name, digests in expected.items():
        try:
            current = _digests(folder / name)
        except (FileNotFoundError, IsADirectoryError):
            raise Damaged(f"{name} is missing") from None
        if current != digests:
            raise Damaged(f"{name} has changed since it was written")
    _checked[folder] = state


def _state(folder: Path) -> list[tuple[str, int, int, int]]:
    files = [(path.name, path.stat()) for path in sorted(folder.iterdir())]
    return [(name, status.st_ino, status.st_size, status.st_mtime_ns) for name, status in files]


def _digests(path: Path) -> list[str]:
    """The size of a file, then a digest of each block."""
    size = path.stat().st_size

    def digest(start: int) -> str:
        hash = hashlib.sha256()
        with path.open("rb", buffering=0) as file:
            file.seek(start)
            for _ in range(_BLOCK // _PIECE):
                hash.update(file.read(_PIECE))
        return hash.hexdigest()[:32]

    with ThreadPoolExecutor(min(8, available_cpus())) as pool:
        return [str(size), *pool.map(digest, range(0, size, _BLOCK))]
