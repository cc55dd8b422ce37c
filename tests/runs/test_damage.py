"""Every file of a run folder, truncated and with flipped bytes: a clear line or a recovery, never a wrong result."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import relatum
from relatum.errors import RelatumError
from relatum.paper.measured import Results
from relatum.runs import checkpoint, ledger
from relatum.runs.folder import RunFolder
from relatum.runs.reading import read_run
from relatum.runs.results import Result
from relatum.training.loop import Trainer

FLAGS: dict[str, Any] = {"views": 2, "batch_size": 18, "epochs": 3, "seed": 1, "compile": "off", "threads": 1}
SETTINGS = {"checkpoint.every_steps": 1, "log.every_steps": 1}
FILES = (  # of a run that was interrupted after its fourth step of six
    "recipe.toml",
    "metrics.jsonl",
    "run.json",
    "artifacts/views.npz",
    "checkpoints/last.ckpt",
    "checkpoints/previous.ckpt",
    "checkpoints/milestone-050.ckpt",
)


def train(data: Path, out: Path, **flags: Any) -> Path:
    return relatum.pretrain(data, out=out, set=SETTINGS, **{**FLAGS, "quiet": True, **flags}).path


def failure(data: Path, out: Path, **flags: Any) -> str:
    """The error of a training run, which must be one line; empty if there is none."""
    try:
        train(data, out, **flags)
    except RelatumError as error:
        (line,) = str(error).splitlines()
        return line
    return ""


def rows(run: Path) -> list[dict[str, Any]]:
    lines = (run / "metrics.jsonl").read_text().splitlines()
    return [{k: v for k, v in json.loads(line).items() if k != "views_per_second"} for line in lines]


@pytest.fixture(scope="module")
def whole(pictures: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train(pictures, tmp_path_factory.mktemp("whole") / "run")


@pytest.fixture(scope="module")
def interrupted(pictures: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("interrupted") / "run"
    original = Trainer._after_step

    def stop(self: Trainer, *arguments: Any) -> None:
        original(self, *arguments)
        if self.step == 4:
            raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Trainer, "_after_step", stop)
        with pytest.raises(KeyboardInterrupt):
            train(pictures, run)
    assert checkpoint.load(run / "checkpoints" / "last.ckpt")["step"] == 4
    assert checkpoint.load(run / "checkpoints" / "previous.ckpt")["step"] == 3
    return run


def damages(content: bytes) -> Iterator[bytes]:
    """Empty, cut in half, and bytes flipped near the start, in the middle and near the end."""
    yield b""
    yield content[: len(content) // 2]
    for share in (0.02, 0.3, 0.5, 0.97):
        position = int(len(content) * share)
        yield content[:position] + bytes([content[position] ^ 0x15]) + content[position + 1 :]


@pytest.mark.parametrize("name", FILES)
def test_a_damaged_file_of_an_interrupted_run(
    name: str, whole: Path, interrupted: Path, pictures: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for number, content in enumerate(damages((interrupted / name).read_bytes())):
        run = tmp_path / str(number)
        shutil.copytree(interrupted, run)
        (run / name).write_bytes(content)
        capsys.readouterr()
        error, file = failure(pictures, run, resume=True, quiet=False), name.rpartition("/")[2]
        if error:
            assert file in error
            continue
        said = capsys.readouterr().err
        assert (run / "backbone.safetensors").read_bytes() == (whole / "backbone.safetensors").read_bytes()
        if rows(run) != rows(whole) or name in ("run.json", "checkpoints/last.ckpt"):
            assert file in said  # recovered, with a warning
        assert RunFolder(run).read_recipe() == RunFolder(whole).read_recipe()


@pytest.mark.parametrize("name", ["backbone.safetensors", "relation.safetensors"])
def test_damaged_weights_are_refused_and_written_again(
    name: str, whole: Path, pictures: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, content = tmp_path / "run", (whole / name).read_bytes()
    shutil.copytree(whole, run)
    for damaged in damages(content):
        (run / name).write_bytes(damaged)
        if name == "backbone.safetensors":
            with pytest.raises(RelatumError, match=r"backbone\.safetensors"):
                relatum.load_backbone(run)
        train(pictures, run, resume=True, quiet=False)
        assert name in capsys.readouterr().err
        assert (run / name).read_bytes() == content


def test_a_damaged_record_of_a_finished_run(whole: Path, pictures: Path, tmp_path: Path) -> None:
    shutil.copytree(whole, tmp_path / "run")
    for damaged in damages((whole / "run.json").read_bytes()):
        (tmp_path / "run" / "run.json").write_bytes(damaged)
        train(pictures, tmp_path / "run", resume=True)
        assert read_run(tmp_path / "run").notes[0].startswith("run.json")


def flipped_digit(text: str, key: str) -> str:
    """A JSON text in which the first digit of the number under `key` is another one."""
    start = text.index(f'"{key}": ') + len(key) + 4
    return text[:start] + str((int(text[start]) + 1) % 10) + text[start + 1 :]


def test_a_changed_result_is_noticed(
    whole: Path, pictures: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    shutil.copytree(whole, run)
    path = relatum.evaluate("knn", run, data=str(pictures), split="val", settings={"val_fraction": 0.5}).path
    assert path is not None
    text = path.read_text()
    assert Result.load(path).accuracy is not None
    assert not read_run(run).notes
    path.write_text(flipped_digit(text, "accuracy"))
    with pytest.raises(RelatumError, match="changed after it was written"):
        Result.load(path)
    assert ledger.collect(run)["evaluations"] == []
    assert f"{path.name} is damaged and left out of the ledger" in " ".join(capsys.readouterr().err.split())
    assert read_run(run).notes == [f"evaluations/{path.name} was changed after it was written: its checksum is wrong."]
    relatum.evaluate("knn", run, data=str(pictures), split="val", settings={"val_fraction": 0.5})  # writes it again
    assert Result.load(path).accuracy == json.loads(text)["accuracy"]


def test_a_changed_ledger_entry_is_left_out(whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = ledger.write(tmp_path, ledger.collect(whole))
    assert [entry.path for entry in ledger.read(tmp_path)] == [path]
    path.write_text(flipped_digit(path.read_text(), "seed"))
    assert ledger.read(tmp_path) == []
    assert Results(tmp_path / "out", ledgers=[tmp_path]).entries == []
    assert f"{path} was changed after it was written and is ignored" in " ".join(capsys.readouterr().err.split())


def test_all_checkpoints_damaged_is_one_line(interrupted: Path, pictures: Path, tmp_path: Path) -> None:
    shutil.copytree(interrupted, tmp_path / "run")
    for path in (tmp_path / "run" / "checkpoints").iterdir():
        path.write_bytes(b"PK")
    with pytest.raises(RelatumError, match=r"last\.ckpt is not"):
        train(pictures, tmp_path / "run", resume=True)


def test_a_step_out_of_range_is_refused(interrupted: Path, pictures: Path, tmp_path: Path) -> None:
    shutil.copytree(interrupted, tmp_path / "run")
    last = tmp_path / "run" / "checkpoints" / "last.ckpt"
    checkpoint.save(last, {**checkpoint.load(last), "step": 10**6})
    with pytest.raises(RelatumError, match=r"last\.ckpt cannot be used: its step is 1,000,000, and the run has 6"):
        train(pictures, tmp_path / "run", resume=True)
    checkpoint.save(last, {**checkpoint.load(last), "step": 4, "objective": {"x": torch.zeros(1)}})
    with pytest.raises(RelatumError, match=r"last\.ckpt does not fit this run"):
        train(pictures, tmp_path / "run", resume=True)


# ------------------------------------------------------------------------------------------ recipes and other programs


@pytest.mark.parametrize(
    ("old", "new"), [("seed = 1", "seed = 7"), ("lr = 0.004", "lr = 0.1"), ("epochs = 3", "epochs = 2")]
)
def test_an_edited_recipe_is_refused(interrupted: Path, tmp_path: Path, old: str, new: str) -> None:
    shutil.copytree(interrupted, tmp_path / "run")
    recipe = tmp_path / "run" / "recipe.toml"
    assert old in recipe.read_text()
    recipe.write_text(recipe.read_text().replace(old, new, 1))
    key = old.partition(" ")[0]
    with pytest.raises(RelatumError, match=rf"{key} is .* in recipe\.toml and .* in last\.ckpt"):
        relatum.pretrain(out=tmp_path / "run", resume=True, quiet=True)
    shutil.rmtree(tmp_path / "run" / "checkpoints")  # and without a checkpoint to compare with
    with pytest.raises(RelatumError, match=r"recipe\.toml was changed after the run wrote it"):
        relatum.pretrain(out=tmp_path / "run", resume=True, quiet=True)


def test_a_recipe_that_is_cut_off_at_a_line_is_taken_from_the_checkpoint(
    interrupted: Path, whole: Path, pictures: Path, tmp_path: Path
) -> None:
    """It is valid TOML, and defaults would take the place of what is missing."""
    text = (interrupted / "recipe.toml").read_text()
    for number, section in enumerate(("[run]", "[checkpoint]", "[log]", "\n# A resume")):
        run = tmp_path / str(number)
        shutil.copytree(interrupted, run)
        (run / "recipe.toml").write_text(text[: text.index(section)])
        train(pictures, run, resume=True)
        assert (run / "backbone.safetensors").read_bytes() == (whole / "backbone.safetensors").read_bytes()
        assert RunFolder(run).read_recipe() == RunFolder(whole).read_recipe()
    shutil.copytree(interrupted, tmp_path / "new")
    shutil.rmtree(tmp_path / "new" / "checkpoints")
    (tmp_path / "new" / "recipe.toml").write_text(text[: text.index("[run]")])
    with pytest.raises(RelatumError, match=r"recipe\.toml was changed after the run wrote it"):
        train(pictures, tmp_path / "new", resume=True)


def test_a_lost_recipe_is_taken_from_the_checkpoint(
    interrupted: Path, whole: Path, pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    shutil.copytree(interrupted, tmp_path / "run")
    recipe = tmp_path / "run" / "recipe.toml"
    recipe.unlink()
    for flags in ({"seed": 7}, {}):  # a new run is not an old one
        with pytest.raises(RelatumError, match="already contains a run"):
            train(pictures, tmp_path / "run", **flags)
    with pytest.raises(RelatumError, match="cannot change seed from 1 to 7"):
        train(pictures, tmp_path / "run", resume=True, seed=7)
    recipe.write_text("")  # used to be a run on the folder that one stands in
    monkeypatch.chdir(pictures)
    relatum.pretrain(out=tmp_path / "run", resume=True)
    assert "The recipe in" in capsys.readouterr().err
    assert (tmp_path / "run" / "backbone.safetensors").read_bytes() == (whole / "backbone.safetensors").read_bytes()
    assert RunFolder(tmp_path / "run").read_recipe() == RunFolder(whole).read_recipe()


def test_checkpoints_alone_are_neither_continued_nor_replaced(
    interrupted: Path, pictures: Path, tmp_path: Path
) -> None:
    """As a killed `--overwrite` of an earlier version left them."""
    shutil.copytree(interrupted / "checkpoints", tmp_path / "run" / "checkpoints")
    for flags in ({"seed": 7}, {"seed": 7, "overwrite": True}):
        with pytest.raises(RelatumError, match=r"contains checkpoints, which relatum did not write"):
            train(pictures, tmp_path / "run", **flags)


def test_the_recipes_of_other_programs_are_not_overwritten(pictures: Path, tmp_path: Path) -> None:
    soup = tmp_path / "soup"
    for name in ("features", "artifacts", "checkpoints"):
        (soup / name).mkdir(parents=True)
        (soup / name / "mine.txt").write_text("mine")
    (soup / "recipe.toml").write_text('title = "Minestrone"\n')
    for flags in ({}, {"overwrite": True}):
        with pytest.raises(RelatumError, match=r"recipe\.toml, which relatum did not write"):
            train(pictures, soup, **flags)
    assert len(list(soup.rglob("mine.txt"))) == 3


def test_weights_to_start_from_are_not_lost(
    whole: Path, pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed during the first save: there is a folder of checkpoints with nothing in it."""
    flags = {"init": str(whole), "epochs": 1, "seed": 5}
    expected = train(pictures, tmp_path / "expected", **flags)

    def killed(*arguments: Any, **keywords: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "save", killed)
        with pytest.raises(KeyboardInterrupt):
            train(pictures, tmp_path / "run", **flags)
    (tmp_path / "run" / "checkpoints").mkdir(exist_ok=True)
    train(pictures, tmp_path / "run", resume=True, **flags)
    names = ("expected/backbone.safetensors", "run/backbone.safetensors")
    assert (tmp_path / names[0]).read_bytes() == (tmp_path / names[1]).read_bytes()
    assert expected.exists()


def test_a_milestone_is_not_lost_between_two_writes(
    pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original, saved = checkpoint.save, []

    def killed(path: Path, state: Any) -> None:
        if saved and saved[-1] == "milestone-050.ckpt":
            raise KeyboardInterrupt
        original(path, state)
        saved.append(path.name)

    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "save", killed)
        with pytest.raises(KeyboardInterrupt):
            train(pictures, tmp_path / "run")
    train(pictures, tmp_path / "run", resume=True)
    assert len(list((tmp_path / "run" / "checkpoints").glob("milestone-*.ckpt"))) == 4


def test_weights_that_are_not_finite_never_reach_a_checkpoint(
    pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = Trainer.train_step

    def poisoned(self: Trainer, batch: Any) -> Any:
        loss = original(self, batch)
        if self.step == 3:  # the update of the fourth step, by a gradient that overflowed
            next(self.objective.backbone.parameters()).data[0] = float("nan")
        return loss

    monkeypatch.setattr(Trainer, "train_step", poisoned)
    said = (
        r"weights are no longer finite at step 4 \(images: .*\.png.* and 10 more\)\. .*last\.ckpt \(step 3\) is still"
    )
    with pytest.raises(RelatumError, match=said):
        train(pictures, tmp_path / "run")
    assert checkpoint.load(tmp_path / "run" / "checkpoints" / "last.ckpt")["step"] == 3
    assert RunFolder(tmp_path / "run").read_record()["status"] == "failed"


# ------------------------------------------------------------------------------------------------------------ disk full


def test_a_failing_write_is_one_line_and_loses_nothing(
    whole: Path, pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each write of a run fails once, for lack of room; the same command then succeeds."""
    original, count, fail_at = Path.replace, [0], [0]

    def full(self: Path, target: Path) -> Path:
        count[0] += 1
        if count[0] == fail_at[0]:
            raise OSError(28, "No space left on device")
        return original(self, target)

    for number in (1, 2, 3, 5, 8, 13, 14):
        run = tmp_path / str(number)
        with monkeypatch.context() as patch:
            patch.setattr(Path, "replace", full)
            count[0], fail_at[0] = 0, number
            error = failure(pictures, run, resume=True)
        if error:
            assert "could not be written: No space left on device." in error
            assert number < 3 or RunFolder(run).read_record()["status"] == "failed"
        train(pictures, run, resume=True)
        assert (run / "backbone.safetensors").read_bytes() == (whole / "backbone.safetensors").read_bytes()
        assert rows(run) == rows(whole)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    disk = tmp_path / "disk"
    disk.mkdir()
    if os.geteuid() or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=6m", "tmpfs", disk], check=False).returncode:
        pytest.skip("needs root, to mount a small disk")
    yield disk
    subprocess.run(["umount", disk], check=False)


def test_a_full_disk(small_disk: Path, whole: Path, pictures: Path, capfd: pytest.CaptureFixture[str]) -> None:
    run, ballast = small_disk / "run", small_disk / "ballast"
    failures = 0
    for room in (1, 50, 200, 400, 700, 1000, 1300):  # kB
        free = os.statvfs(small_disk).f_bavail * os.statvfs(small_disk).f_frsize
        ballast.write_bytes(b"\0" * max(0, free - room * 1024))
        error = failure(pictures, run, resume=True)
        if error:
            failures += 1
            assert "No space left on device" in error
            assert not (run / "run.json").exists() or RunFolder(run).read_record()["status"] == "failed"
        ballast.unlink()
    assert failures > 1
    train(pictures, run, resume=True)
    assert (run / "backbone.safetensors").read_bytes() == (whole / "backbone.safetensors").read_bytes()
    assert rows(run) == rows(whole)
