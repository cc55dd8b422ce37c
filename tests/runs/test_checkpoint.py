"""Checkpoints: nothing in them is run, damage is noticed, and the newest good one is used, with a warning."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest
import torch

from relatum.errors import InputError
from relatum.runs import checkpoint
from relatum.runs.digest import digest
from relatum.runs.folder import RunFolder
from relatum.runs.weights import load_backbone


class Malicious:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return exec, (f"open({str(self.path)!r}, 'w').close()",)


def state_at(step: int) -> dict[str, Any]:
    weights = torch.randn(50, 4, generator=torch.Generator().manual_seed(step))
    optimizer = {"state": {0: {"exp_avg": weights * 2, "step": torch.tensor(1.0)}}, "param_groups": [{"lr": 0.1}]}
    return {"objective": {"w": weights}, "optimizer": optimizer, "step": step, "recipe": "seed = 1", "info": {}}


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


def test_no_flipped_byte_changes_what_is_loaded(tmp_path: Path) -> None:
    path, state = tmp_path / "last.ckpt", state_at(7)
    checkpoint.save(path, state)
    assert torch.load(path, weights_only=True)["step"] == 7  # any torch can read it
    whole, expected = path.read_bytes(), digest(state)
    assert digest(checkpoint.load(path)) == expected
    refused = 0
    for position in range(0, len(whole), max(1, len(whole) // 400)):
        path.write_bytes(whole[:position] + bytes([whole[position] ^ 0x10]) + whole[position + 1 :])
        try:
            assert digest(checkpoint.load(path)) == expected  # padding between the tensors
        except InputError as error:
            assert str(path) in str(error)  # noqa: PT017
            refused += 1
    assert refused > 100
    for length in (0, 1, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:length])
        with pytest.raises(InputError, match=r"last\.ckpt"):
            checkpoint.load(path)


def test_a_checkpoint_whose_digest_is_wrong_or_lost_is_damaged(tmp_path: Path) -> None:
    path = tmp_path / "last.ckpt"
    checkpoint.save(path, state_at(7))
    stored = torch.load(path, weights_only=True)
    for change in ({"step": 8}, {"digest": None}, {"digest": "sha256:0"}, {"format": 1}):
        torch.save({**stored, **change}, path)
        with pytest.raises(InputError, match="do not match its checksum"):
            checkpoint.load(path)
    torch.save({key: value for key, value in stored.items() if key != "digest"}, path)
    with pytest.raises(InputError, match="do not match its checksum"):
        checkpoint.load(path)
    torch.save(state_at(7), path)  # written before there were checksums
    assert checkpoint.load(path)["step"] == 7


def test_the_newest_good_checkpoint_is_used_with_a_warning(tmp_path: Path) -> None:
    folder, warned = RunFolder(tmp_path), []
    assert checkpoint.newest(tmp_path) is None

    def newest_step() -> int:
        warned.clear()
        newest = checkpoint.newest(tmp_path, warn=warned.append)
        assert newest is not None
        return int(newest[1]["step"])

    checkpoint.save(folder.milestone(25), state_at(25))
    checkpoint.save_last(folder, state_at(40), keep=False)
    checkpoint.save_last(folder, state_at(50), keep=True)
    checkpoint.save(folder.milestone(50), state_at(55))
    assert newest_step() == 50
    assert not warned
    folder.last.write_bytes(folder.last.read_bytes()[:-9])  # truncated
    assert newest_step() == 55
    assert "last.ckpt is not a readable checkpoint" in warned[0]
    assert "using" in warned[1]
    assert "milestone-050.ckpt (step 55) instead" in warned[1]
    folder.milestone(50).write_bytes(b"cut")
    assert newest_step() == 40  # previous.ckpt
    assert len(warned) == 3
    folder.last.unlink()
    folder.milestone(50).unlink()
    assert newest_step() == 40
    folder.previous.write_bytes(b"")
    folder.milestone(25).write_bytes(b"")
    with pytest.raises(InputError, match=r"previous\.ckpt"):
        checkpoint.newest(tmp_path)


def test_a_damaged_last_checkpoint_never_replaces_the_previous_one(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    checkpoint.save_last(folder, state_at(1), keep=False)
    checkpoint.save_last(folder, state_at(2), keep=True)
    folder.last.write_bytes(b"damaged")
    checkpoint.save_last(folder, state_at(3), keep=False)  # resumed from previous.ckpt
    assert checkpoint.load(folder.previous)["step"] == 1
    assert checkpoint.load(folder.last)["step"] == 3
    assert sorted(path.name for path in folder.checkpoints.iterdir()) == ["last.ckpt", "previous.ckpt"]


def test_a_file_system_without_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unsupported(*arguments: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr("os.link", unsupported)
    folder = RunFolder(tmp_path)
    for step in (1, 2, 3):
        checkpoint.save_last(folder, state_at(step), keep=True)
    assert (checkpoint.load(folder.last)["step"], checkpoint.load(folder.previous)["step"]) == (3, 2)


@pytest.mark.parametrize("step", [-1, "7", None, 7.0])
def test_a_checkpoint_without_a_proper_step_is_passed_over(tmp_path: Path, step: Any) -> None:
    checkpoint.save(RunFolder(tmp_path).last, {**state_at(7), "step": step})
    with pytest.raises(InputError, match="its step is wrong"):
        checkpoint.newest(tmp_path)


def test_a_file_that_is_no_checkpoint_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no checkpoint at"):
        checkpoint.load(tmp_path / "missing.ckpt")
    torch.save([1, 2], tmp_path / "list.pt")
    with pytest.raises(InputError, match="contains a list"):
        checkpoint.load(tmp_path / "list.pt")
