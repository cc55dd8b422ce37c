"""Checkpoints: nothing in them is run, damaged ones are named, and the newest readable one is used."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest
import torch

from relatum.errors import InputError
from relatum.runs import checkpoint
from relatum.runs.weights import load_backbone


class Malicious:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return exec, (f"open({str(self.path)!r}, 'w').close()",)


@pytest.mark.parametrize("how", ["pickle", "torch"])
def test_a_malicious_checkpoint_runs_nothing(tmp_path: Path, how: str) -> None:
    touched, path = tmp_path / "touched", tmp_path / "checkpoints" / "last.ckpt"
    path.parent.mkdir()
    if how == "pickle":
        path.write_bytes(pickle.dumps(Malicious(touched)))
    else:
        torch.save({"objective": Malicious(touched)}, path)
    for read in (
        lambda: checkpoint.load(path),
        lambda: checkpoint.newest(tmp_path),
        lambda: load_backbone(tmp_path),
    ):
        with pytest.raises(InputError, match=r"last\.ckpt"):
            read()
    assert not touched.exists()


@pytest.mark.parametrize("content", [b"", b"nonsense", b"PK\x03\x04 cut short", b"\x80\x02Q."])
def test_damaged_checkpoints_are_named(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "last.ckpt"
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"last\.ckpt") as caught:
        checkpoint.load(path)
    assert len(str(caught.value).splitlines()) == 1


def test_a_damaged_last_checkpoint_falls_back_to_a_milestone(tmp_path: Path) -> None:
    folder = tmp_path / "checkpoints"
    assert checkpoint.newest(tmp_path) is None
    checkpoint.save(folder / "milestone-025.ckpt", {"step": 25})
    checkpoint.save(folder / "milestone-050.ckpt", {"step": 50})
    checkpoint.save(folder / "last.ckpt", {"step": 60})
    found = checkpoint.newest(tmp_path)
    assert found is not None
    assert found[1]["step"] == 60
    (folder / "last.ckpt").write_bytes(b"cut")
    found = checkpoint.newest(tmp_path)
    assert found is not None
    assert found[1]["step"] == 50


def test_a_file_that_is_no_checkpoint_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no checkpoint at"):
        checkpoint.load(tmp_path / "missing.ckpt")
    torch.save([1, 2], tmp_path / "list.pt")
    with pytest.raises(InputError, match="contains a list"):
        checkpoint.load(tmp_path / "list.pt")
