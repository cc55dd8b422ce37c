"""Training on streamed shards: every image once per epoch for any number of processes, exact resume, damage."""

from __future__ import annotations

import json
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

import killing
import numpy as np
import pytest
from launching import RELATUM, assert_same_run, finish, rows, start
from shard_maker import number_of, png, write_shards, write_tar
from web import serve

import relatum
from relatum import config
from relatum.errors import InputError, Interrupted
from relatum.runs.folder import RunFolder
from relatum.training import loop
from relatum.training.batches import BatchMaker
from relatum.training.resolve import Resolved, resolve

COMMON = {"views": 2, "batch_size": 16, "epochs": 2, "device": "cpu", "threads": 1, "compile": "off", "quiet": True}
SETS = ["log.every_steps=1", "data.window=32", "data.lanes=4"]


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """126 pictures in five shards of different sizes."""
    return write_shards(tmp_path_factory.mktemp("data") / "shards", [40, 7, 30, 1, 48])


def resolved_for(shards: Path, **values: object) -> Resolved:
    flags = {"data.name": str(shards), "data.storage": "stream", "train.batch_size": 16, "data.window": 32, **values}
    return resolve(config.draft(flags={"views.number": 2, "run.threads": 1, "run.device": "cpu", **flags}))


def maker_for(resolved: Resolved, rank: int = 0, world: int = 1) -> BatchMaker:
    return BatchMaker(resolved.images, resolved.recipe, labels=resolved.images.labels, rank=rank, world=world)


@pytest.mark.parametrize("world", [1, 2, 3, 8])
def test_every_image_once_per_epoch_over_all_processes(shards: Path, world: int) -> None:
    resolved = resolved_for(shards)
    makers = [maker_for(resolved, rank, world) for rank in range(world)]
    orders = []
    for epoch in range(2):
        steps = range(epoch * makers[0].steps_per_epoch, (epoch + 1) * makers[0].steps_per_epoch)
        parts = [[maker.make(step) for maker in makers] for step in steps]
        seen = [int(i) for batches in parts for batch in batches for i in batch.indices]
        assert Counter(seen) == Counter(range(126))
        orders.append(seen)
    assert orders[0] != orders[1]


def test_views_are_of_the_images_that_the_batch_names(shards: Path) -> None:
    maker = maker_for(resolved_for(shards))
    for step in (3, 0, 9, 4):  # out of turn
        batch = maker.make(step)
        pixels = maker._pixels.get(step)
        assert number_of(pixels.rows)[pixels.slots].tolist() == batch.indices.tolist()
        assert batch.labels is not None
        assert (batch.indices % 3).tolist() == batch.labels.tolist()
        again = maker_for(resolved_for(shards)).make(step)
        assert (again.views == batch.views).all()


def test_same_views_as_from_memory_and_for_any_number_of_processes(shards: Path) -> None:
    resolved = resolved_for(shards)
    in_memory = replace(resolved.images, images=resolved.images.images[:])
    whole = maker_for(resolved)
    plain = BatchMaker(in_memory, resolved.recipe)
    for step in range(3):
        batch = whole.make(step)
        plain._sources = whole._sources  # type: ignore[method-assign]
        plain._pixels._sources = whole._sources
        assert (plain.make(step).views == batch.views).all()
        for rank in range(2):
            part = maker_for(resolved, rank, 2).make(step)
            assert (part.views == batch.views[:, rank::2]).all()
            assert part.num_images == batch.num_images


def test_steps_are_decoded_ahead_only_when_they_come_in_turn(shards: Path) -> None:
    maker = maker_for(resolved_for(shards, **{"train.epochs": 2}))
    ahead = maker._pixels._ahead
    assert ahead is not None
    maker.make(0)
    assert set(ahead._waiting) == set(range(1, 16))
    maker.make(1)
    assert set(ahead._waiting) == set(range(2, 16))
    maker.make(9)  # out of turn: a picture for the report, or a step after a resume
    assert set(ahead._waiting) == set(range(2, 16)) - {9}
    maker.close()
    assert not ahead._waiting
    assert len(maker.make(3).indices) == 16


def test_semi_supervised_views_come_from_images_of_the_class(shards: Path) -> None:
    resolved = resolved_for(shards, **{"data.labels": 0.5})
    maker = BatchMaker(resolved.images, resolved.recipe, labels=resolved.labels, uses_labels=False)
    batch, pixels = maker.make(1), maker._pixels.get(1)
    classes = number_of(pixels.rows)[pixels.sources] % 3
    assert (classes == (batch.indices.numpy() % 3)[None]).all()
    assert (number_of(pixels.rows)[pixels.sources] != batch.indices.numpy()[None]).any()


def test_an_interrupted_run_resumes_with_the_same_bits(
    shards: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reference = relatum.pretrain(shards, out=tmp_path / "whole", stream=True, set=SETS, **COMMON)
    assert reference.recipe.data.storage == "stream"
    after_step = loop.Trainer._after_step

    def stop_at_5(self, loss, values, metrics) -> None:  # type: ignore[no-untyped-def]
        after_step(self, loss, values, metrics)
        if self.step == 5:
            self.save(metrics)
            raise Interrupted(15, "stopped")

    monkeypatch.setattr(loop.Trainer, "_after_step", stop_at_5)
    with pytest.raises(Interrupted):
        relatum.pretrain(shards, out=tmp_path / "part", stream=True, set=SETS, **COMMON)
    monkeypatch.undo()
    relatum.pretrain(out=tmp_path / "part", resume=True, set=["data.cache_gb=1"], quiet=True)
    assert_same_run(tmp_path / "part", tmp_path / "whole")


@pytest.mark.slow
def test_a_killed_run_on_a_url_resumes_with_the_same_bits(shards: Path, tmp_path: Path) -> None:
    """Killed again and again, each time after two more steps."""
    pytest.importorskip("aiohttp")
    with serve(shards) as url:
        relatum.pretrain(url, out=tmp_path / "whole", set=SETS, **COMMON)
        assert relatum.Run(tmp_path / "whole").recipe.data.storage == "stream"
        run = RunFolder(tmp_path / "part")
        arguments = ["pretrain", url, "--out", str(run.path), "--resume", "--views", "2", "--batch-size", "16"]
        arguments += ["--epochs", "2", "--device", "cpu", "--threads", "1", "--compile", "off"]
        arguments += [word for text in (*SETS, "checkpoint.every_steps=1") for word in ("--set", text)]
        kills, done = 0, 0
        while not run.finished():
            process = killing.start(arguments, tmp_path / "log.txt")
            while process.is_alive() and kills < 3:
                written = len(rows(run.path)) if run.metrics.exists() else 0
                if written >= done + 2:
                    process.kill()
                    kills, done = kills + 1, written
                time.sleep(0.005)
            process.join()
    assert kills == 3, (tmp_path / "log.txt").read_text()
    assert_same_run(run.path, tmp_path / "whole")


@pytest.mark.slow
def test_two_processes_train_what_one_trains(shards: Path, tmp_path: Path) -> None:
    flags = [f"--set={text}" for text in SETS]
    flags += ["--views", "2", "--batch-size", "16", "--epochs", "1", "--device", "cpu", "--threads", "1"]
    command = [*RELATUM, "pretrain", str(shards), "--stream", "--compile", "off", *flags]
    ended = finish(
        start(*command, "--out", str(tmp_path / "one")),
        start(*command, "--out", str(tmp_path / "two"), "--devices", "2"),
    )
    assert [code for code, _, _ in ended] == [0, 0], ended
    losses = [[row["loss"] for row in relatum.Run(tmp_path / name).metrics] for name in ("one", "two")]
    assert len(losses[0]) == 8
    np.testing.assert_allclose(losses[1], losses[0], atol=1e-3)


def test_damaged_images_are_named_counted_and_recorded(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    members = {f"{n:02d}.png": png(n) if n % 10 else b"no picture" for n in range(40)}
    write_tar(tmp_path / "s" / "0.tar", members)
    (tmp_path / "s" / "1.tar").write_bytes(b"foreign" * 500)
    run = relatum.pretrain(tmp_path / "s", out=tmp_path / "run", stream=True, **COMMON)
    record = json.loads((run.path / "run.json").read_text())
    assert [item["path"] for item in record["skipped"]] == ["1.tar", "00.png", "10.png", "20.png", "30.png"]
    assert "30.png cannot be read" in capsys.readouterr().err
    with pytest.raises(InputError, match="strict"):
        relatum.pretrain(tmp_path / "s", out=tmp_path / "strict", stream=True, strict=True, **COMMON)
    (tmp_path / "s" / "1.tar").unlink()
    with pytest.raises(InputError, match=r"\d0\.png .* strict"):
        relatum.pretrain(tmp_path / "s", out=tmp_path / "strict", stream=True, strict=True, **COMMON)


def test_held_out_images_and_evaluation(shards: Path, tmp_path: Path) -> None:
    options = {**COMMON, "epochs": 1}
    run = relatum.pretrain(shards, out=tmp_path / "run", stream=True, val_fraction=0.25, knn_every=1, **options)
    assert run.metrics[-1]["knn_accuracy"] >= 0
    assert run.recipe.data.images == 94 or run.recipe.data.images == 95
    assert relatum.evaluate("linear", run, data=shards, split="val", epochs=1).accuracy is not None
