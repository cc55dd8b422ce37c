"""Two things at once on one run: trained while it is evaluated, replaced while it is evaluated, moved while trained."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

import relatum
from relatum import api
from relatum.errors import RelatumError
from relatum.evaluation.task import Task
from relatum.runs import ledger
from relatum.runs.folder import RunFolder
from relatum.runs.reading import read_run
from relatum.training.loop import Trainer

TINY: dict[str, Any] = {"views": 2, "batch_size": 18, "epochs": 2, "compile": "off", "threads": 1, "quiet": True}
VAL: dict[str, Any] = {"split": "val", "settings": {"val_fraction": 0.25}, "progress": False}


def test_a_run_that_ends_while_it_is_evaluated(pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = relatum.pretrain(pictures, out=tmp_path / "run", **TINY).path
    finished = tmp_path / "backbone.safetensors"
    shutil.move(run / finished.name, finished)
    shutil.copy(run / "checkpoints/milestone-050.ckpt", run / "checkpoints/last.ckpt")
    features = Task.features

    def meanwhile(task: Task, images: Any) -> Any:  # training ends while the checkpoint of step 2 is evaluated
        if finished.exists():
            shutil.move(finished, run / finished.name)
        return features(task, images)

    monkeypatch.setattr(Task, "features", meanwhile)
    early = relatum.evaluate("knn", run, data=pictures, **VAL)
    assert (early.pretrain["status"], early.pretrain["steps"]) == ("unfinished", 2)
    assert ledger.collect(run)["evaluations"] == []
    assert any("at step 2" in note for note in read_run(run).notes)
    late = relatum.evaluate("knn", run, data=pictures, **VAL)
    assert (late.pretrain["status"], late.pretrain["steps"]) == ("finished", 4)
    assert len(ledger.collect(run)["evaluations"]) == 1


def test_a_run_that_is_replaced_while_it_is_evaluated(
    pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = relatum.pretrain(pictures, out=tmp_path / "run", method="random", quiet=True).path
    features = Task.features

    def meanwhile(task: Task, images: Any) -> Any:
        record = json.loads((run / "run.json").read_text())
        RunFolder(run).update_record(started=f"{record['started']} and later")
        return features(task, images)

    monkeypatch.setattr(Task, "features", meanwhile)
    with pytest.raises(RelatumError, match="was replaced by another run during the evaluation; nothing was saved"):
        relatum.evaluate("knn", run, data=pictures, **VAL)
    assert not (run / "evaluations").exists()


def test_a_run_folder_that_is_moved_while_it_is_trained(
    pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train_step = Trainer.train_step

    def meanwhile(trainer: Trainer, batch: Any) -> Any:
        if trainer.step == 2:
            (tmp_path / "run").rename(tmp_path / "moved")
        return train_step(trainer, batch)

    undisturbed = relatum.pretrain(pictures, out=tmp_path / "undisturbed", **TINY).path
    monkeypatch.setattr(Trainer, "train_step", meanwhile)
    with pytest.raises(RelatumError, match=r"run was moved or removed during training"):
        relatum.pretrain(pictures, out=tmp_path / "run", **TINY)
    assert not (tmp_path / "run").exists()
    monkeypatch.undo()
    relatum.pretrain(out=tmp_path / "moved", resume=True, quiet=True)
    assert (tmp_path / "moved/backbone.safetensors").read_bytes() == (undisturbed / "backbone.safetensors").read_bytes()


@pytest.mark.skipif(os.name != "posix" or os.geteuid() != 0, reason="needs root, to mount a small disk")
def test_a_run_on_a_read_only_disk_is_refused_before_the_work(
    pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "tmpfs", str(disk)], check=False).returncode:
        pytest.skip("cannot mount a disk here")
    capfd.readouterr()
    try:
        run = relatum.pretrain(pictures, out=disk / "run", method="random", quiet=True).path
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
        monkeypatch.setattr(Task, "features", lambda task, images: pytest.fail("work was done for nothing"))
        with pytest.raises(RelatumError, match=r"cannot write to .*run: Read-only file system\. Copy the run"):
            relatum.evaluate("knn", run, data=pictures, **VAL)
        with pytest.raises(RelatumError, match=r"cannot write .*report\.html: Read-only file system\.$"):
            api.report([run])
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def test_a_result_that_cannot_be_saved_is_in_the_message(
    pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = relatum.pretrain(pictures, out=tmp_path / "run", method="random", quiet=True).path
    (run / "evaluations").write_text("in the way")
    with pytest.raises(RelatumError, match=r"The result was not saved: knn on .*accuracy \d+"):
        relatum.evaluate("knn", run, data=pictures, **VAL)
