from __future__ import annotations

import json
from pathlib import Path

import pytest

from relatum.system.files import write_atomically, write_json


def test_a_failed_write_leaves_the_old_file_and_no_litter(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "file.json"
    write_json(path, {"a": 1})

    def fail(temporary: Path) -> None:
        temporary.write_text("half")
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        write_atomically(path, fail)
    assert json.loads(path.read_text()) == {"a": 1}
    assert [p.name for p in path.parent.iterdir()] == ["file.json"]
    with pytest.raises(ValueError, match="JSON"):
        write_json(path, {"a": float("nan")})


def test_names_that_are_no_text_survive(tmp_path: Path) -> None:
    name = b"caf\xe9.jpg".decode("utf-8", "surrogateescape")
    write_json(tmp_path / "run.json", {"path": name, "words": "naïve"})
    assert json.loads((tmp_path / "run.json").read_text("utf-8")) == {"path": name, "words": "naïve"}
