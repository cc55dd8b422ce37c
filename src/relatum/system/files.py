"""Files that are never half written: first a temporary name, then the disk, and only then the file's own name."""

from __future__ import annotations

import contextlib
import json
import os
import re
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any


def write_atomically(path: Path, write: Callable[[Path], Any]) -> None:
    """Call `write` with a temporary path beside `path`, sync it, and rename it into place."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".part", dir=path.parent)
    os.close(handle)
    temporary = Path(name)
    try:
        write(temporary)
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        temporary.chmod(0o666 & ~_umask())  # mkstemp's 0600 would hide results from colleagues
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write text atomically; bytes of file names that are no UTF-8 are written as escapes, which JSON reads back."""
    write_atomically(path, lambda p: p.write_text(text, "utf-8", errors="backslashreplace"))


def write_json(path: Path, document: Any) -> None:
    """Write a JSON document atomically; numbers that JSON does not know are refused."""
    write_text(path, json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def read_json(path: Path) -> dict[str, Any] | None:
    """A JSON object, or None if the file is missing, damaged or holds something else."""
    with contextlib.suppress(OSError, ValueError, RecursionError):
        document = json.loads(path.read_text("utf-8"))
        return document if isinstance(document, dict) else None
    return None


def file_safe(name: str) -> str:
    """A dataset's or folder's name as part of a file name: its last part, with anything unusual made a hyphen."""
    last = re.split(r"[/\\]", name.rstrip("/\\"))[-1]
    return re.sub(r"[^\w.]+", "-", last).strip("-.") or "data"


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
