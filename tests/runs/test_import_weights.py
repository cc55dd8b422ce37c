"""Weights that were trained elsewhere: what an authors' checkpoint tells about itself."""

from __future__ import annotations

from collections import OrderedDict
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from relatum import backbones
from relatum.errors import InputError
from relatum.relation.reference import RelationHead
from relatum.runs.folder import RunFolder, read_recipe
from relatum.runs.import_weights import import_weights


def save(path: Path, **heads: Any) -> Path:
    optimizer = {"state": {0: {"step": torch.tensor(1.0)}}, "param_groups": [{"lr": 1e-3, "params": [0]}]}
    torch.save({"backbone": backbones.build("conv4").state_dict(), "optimizer": optimizer, **heads}, path)
    return path


@pytest.mark.parametrize(("trained", "recorded"), [("cat", "cat"), ("mean", "mean"), ("sum", "mean")])
def test_the_aggregation_of_a_relation_head(tmp_path: Path, trained: str, recorded: str) -> None:
    head = RelationHead(64, 256, trained).state_dict()
    run = import_weights(save(tmp_path / "a.tar", relation=head), "conv4", tmp_path / "run")
    assert read_recipe(run).method == "relational"
    assert read_recipe(run).objective.aggregation == recorded
    assert RunFolder(run).relation.exists()
    said = import_weights(tmp_path / "a.tar", "conv4", tmp_path / "said", aggregation=trained)
    assert read_recipe(said).objective.aggregation == trained


def test_a_guessed_aggregation_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = save(tmp_path / "a.tar", relation=RelationHead(64, 256, "sum").state_dict())
    import_weights(file, "conv4", tmp_path / "guessed")
    assert "does not say whether its head takes the mean, sum or max" in capsys.readouterr().err
    import_weights(file, "conv4", tmp_path / "given", aggregation="sum")
    assert "does not say" not in capsys.readouterr().err


def test_an_aggregation_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    file = save(tmp_path / "a.tar", relation=RelationHead(64, 256, "mean").state_dict())
    with pytest.raises(InputError, match="does not fit: a head of 64 inputs is mean or sum or max"):
        import_weights(file, "conv4", tmp_path / "run", aggregation="cat")
    assert not (tmp_path / "run").exists()


def mlp(outputs: int) -> dict[str, Any]:
    """The two-layer heads of the authors' code, under their names."""
    layers = [("linear1", nn.Linear(64, 256)), ("bn1", nn.BatchNorm1d(256)), ("linear2", nn.Linear(256, outputs))]
    return nn.Sequential(OrderedDict(layers)).state_dict()


def moments(*shape: int) -> dict[str, Any]:
    """The state of an optimiser, which holds tensors of the shapes of the weights."""
    return {"state": {0: {"exp_avg": torch.zeros(shape)}, 1: {"exp_avg": torch.zeros(4, 64)}}, "param_groups": []}


# What each of the authors' classes saves beside `backbone` and `optimizer`.
HEADS: dict[str, dict[str, Any]] = {
    "simclr": {"head": mlp(64)},
    "rotation": {"classifier": nn.Linear(64, 4).state_dict()},
    "deepcluster": {"classifier": mlp(64)},  # as many clusters as SimCLR has outputs
    "supervised": {
        "classifier": nn.Linear(64, 10).state_dict(),
        "optimizer_lineval": moments(10, 64),
        "optimizer_finetune": moments(64, 64),
    },
    "deepinfomax": {
        "loss_fn": nn.ModuleDict({"local_d": nn.Conv2d(72, 256, 1), "prior_d": nn.Linear(64, 512)}).state_dict()
    },
}


@pytest.mark.parametrize("method", HEADS)
def test_the_method_is_recognised_by_its_heads(tmp_path: Path, method: str) -> None:
    run = import_weights(save(tmp_path / "a.tar", **HEADS[method]), "conv4", tmp_path / "run")
    assert read_recipe(run).method == method


def test_a_plain_state_dict_is_supervised(tmp_path: Path) -> None:
    torch.save(backbones.build("conv4").state_dict(), tmp_path / "a.pt")
    assert read_recipe(import_weights(tmp_path / "a.pt", "conv4", tmp_path / "run")).method == "supervised"


@pytest.mark.parametrize(
    "name", ["recipe.toml", "run.json", "backbone.safetensors", "relation.safetensors", "checkpoints/last.ckpt"]
)
def test_a_folder_with_a_run_or_its_remains_is_refused(tmp_path: Path, name: str) -> None:
    file = save(tmp_path / "a.tar")
    present = tmp_path / "run" / name
    present.parent.mkdir(parents=True)
    present.write_text("of the user")
    with pytest.raises(InputError, match="already contains a run"):
        import_weights(file, "conv4", tmp_path / "run")
    assert present.read_text() == "of the user"
    assert [path for path in (tmp_path / "run").rglob("*") if path.is_file()] == [present]


def test_a_failed_import_leaves_the_files_of_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It removed everything in the folder that has the name of a file or folder of a run."""
    file, out = save(tmp_path / "a.tar", relation=RelationHead(64).state_dict()), tmp_path / "project"
    for name in ("index/index.html", "features/notes.txt", "metrics.jsonl", "report.html"):
        (out / name).parent.mkdir(parents=True, exist_ok=True)
        (out / name).write_text("of the user")
    before = sorted(out.rglob("*"))

    def full(self: RunFolder, recipe: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(RunFolder, "write_recipe", full)
    with pytest.raises(OSError, match="No space left"):
        import_weights(file, "conv4", out)
    assert sorted(path for path in out.rglob("*") if path.name != ".lock") == before
