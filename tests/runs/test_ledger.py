"""Ledger entries: collected from a run, read back, and unpacked to a run folder again."""

from __future__ import annotations

import json
from contextlib import nullcontext
from pathlib import Path

import pytest

from relatum import config
from relatum.errors import InputError
from relatum.runs import ledger
from relatum.runs.folder import RunFolder, read_recipe
from relatum.system.files import CHECKSUM, is_intact


def finished(folder: Path) -> Path:
    (folder / "evaluations").mkdir(parents=True)
    (folder / "recipe.toml").write_text(config.draft(flags={"data.name": "cifar10"}).recipe().to_toml())
    (folder / "backbone.safetensors").write_bytes(b"weights")
    rows = [{"step": i, "epoch": 0, "loss": 1 / 3 if i else float("nan")} for i in range(1000)]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows) + '{"step": 1000, "lo')
    record = {"seconds": 12.5, "commit": "abc", "machine": {"cpu": "x"}, "threads": 2, "version": "0.1.0"}
    (folder / "run.json").write_text(json.dumps(record))
    result = {
        "protocol": "linear",
        "dataset": "cifar10",
        "split": "test",
        "accuracy": 58.0,
        "settings": {"epochs": 100},
    }
    (folder / "evaluations" / "linear-cifar10-test.json").write_text(json.dumps(result))
    (folder / "evaluations" / "broken.json").write_text("{")
    return folder


def test_collect_keeps_what_a_reader_needs(tmp_path: Path) -> None:
    actual = ledger.collect(finished(tmp_path / "run"), ["relatum pretrain cifar10"])
    assert (actual["seconds"], actual["commit"], actual["threads"], actual["seed"]) == (12.5, "abc", 2, 1)
    assert actual["commands"] == ["relatum pretrain cifar10"]
    assert [e["accuracy"] for e in actual["evaluations"]] == [58.0]
    steps = [p["step"] for p in actual["curve"]]
    assert (len(steps), steps[0], steps[-1]) == (ledger.CURVE_POINTS, 0, 999)
    assert actual["curve"][0]["loss"] is None  # JSON knows no NaN
    assert actual["recipe"] == config.read_toml(tmp_path / "run" / "recipe.toml")
    path = ledger.write(tmp_path / "ledger", actual)
    written = json.loads(path.read_text())
    assert is_intact(written)
    assert ledger.read(tmp_path / "ledger")[0].document == {k: v for k, v in written.items() if k != CHECKSUM}


def test_an_unfinished_run_is_refused(tmp_path: Path) -> None:
    finished(tmp_path / "run")
    (tmp_path / "run" / "backbone.safetensors").unlink()
    with pytest.raises(InputError, match="contains no finished run"):
        ledger.collect(tmp_path / "run")


def test_reading_passes_over_other_files(tmp_path: Path) -> None:
    (tmp_path / "notes.json").write_text('{"recipe": "of a cake"}')
    (tmp_path / "broken.json").write_text("{")
    assert ledger.read(tmp_path) == []


def test_small_weights_are_kept_beside_the_entry_and_large_ones_are_not(tmp_path: Path) -> None:
    run = finished(tmp_path / "run")
    for size, kept in ((100_000, True), (2_000_000, False)):
        (run / "backbone.safetensors").write_bytes(b"w" * size)
        path = ledger.write(tmp_path / str(size), {**ledger.collect(run), "id": "entry"})
        ledger.keep_weights(run, path)
        assert path.with_suffix(".safetensors").exists() is kept
        assert [e.backbone is not None for e in ledger.read(path.parent)] == [kept]


def test_an_entry_is_unpacked_to_a_run_folder(tmp_path: Path) -> None:
    run = finished(tmp_path / "run")
    path = ledger.write(tmp_path / "ledger", {**ledger.collect(run, ["relatum pretrain this"]), "id": "entry"})
    with pytest.raises(InputError, match=r"keeps no weights; train them again: relatum\.pretrain\('this'\)"):
        ledger.unpack(path, tmp_path / "runs")
    again = tmp_path / "runs" / "entry"
    again.mkdir(parents=True)
    (again / "backbone.safetensors").write_bytes(b"made again")
    assert ledger.unpack(path, tmp_path / "runs") == again
    (again / "backbone.safetensors").unlink()
    ledger.keep_weights(run, path)
    for name in (path, path.with_suffix(".safetensors")):
        folder = ledger.unpack(name, tmp_path / "runs")
        assert folder == tmp_path / "runs" / "entry"
        assert (folder / "backbone.safetensors").read_bytes() == (run / "backbone.safetensors").read_bytes()
        assert read_recipe(folder).seed == read_recipe(run).seed
    (folder / "backbone.safetensors").write_bytes(b"others")
    with pytest.raises(InputError, match="contains other weights"):
        ledger.unpack(path, tmp_path / "runs")
    (tmp_path / "bare.safetensors").write_bytes(b"w")
    with pytest.raises(InputError, match=r"relatum\.import_weights"):
        ledger.unpack(tmp_path / "bare.safetensors", tmp_path / "runs")


def test_weights_restored_beside_an_interrupted_training_can_be_collected(tmp_path: Path) -> None:
    path = ledger.write(tmp_path / "ledger", {**ledger.collect(finished(tmp_path / "run")), "id": "entry"})
    ledger.keep_weights(tmp_path / "run", path)
    folder = RunFolder(tmp_path / "begun")
    folder.update_record(status="interrupted")  # with a checksum, as of a run that writes one into its recipe
    assert ledger.restore(ledger.read(tmp_path / "ledger")[0], folder.path)
    assert not folder.recipe_changed()
    assert ledger.collect(folder.path)["recipe"] == config.read_toml(tmp_path / "run" / "recipe.toml")


@pytest.mark.parametrize("training", [True, False])
def test_an_entry_is_not_unpacked_over_a_run_that_is_not_finished(tmp_path: Path, training: bool) -> None:
    """Its recipe was replaced, and with the weights of the entry the run counted as finished."""
    run = finished(tmp_path / "run")
    path = ledger.write(tmp_path / "ledger", {**ledger.collect(run), "id": "entry"})
    ledger.keep_weights(run, path)
    unfinished = RunFolder(tmp_path / "runs" / "entry")
    unfinished.checkpoints.mkdir(parents=True)
    unfinished.recipe.write_text("of this run")
    if not training:
        unfinished.last.write_bytes(b"a checkpoint")
    lock = unfinished.lock() if training else nullcontext()
    with lock, pytest.raises(InputError, match="contains a run that is not finished"):
        ledger.unpack(path, tmp_path / "runs")
    assert unfinished.recipe.read_text() == "of this run"
    assert not unfinished.finished()
