"""Weights that were trained elsewhere: what an authors' checkpoint tells about itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from relatum import backbones
from relatum.errors import InputError
from relatum.objectives.base import mlp_head
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


def test_an_aggregation_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    file = save(tmp_path / "a.tar", relation=RelationHead(64, 256, "mean").state_dict())
    with pytest.raises(InputError, match="does not fit: a head of 64 inputs is mean or sum or max"):
        import_weights(file, "conv4", tmp_path / "run", aggregation="cat")
    assert not (tmp_path / "run").exists()


HEADS: dict[str, dict[str, Any]] = {
    "simclr": {"head": mlp_head(64, 256, 64).state_dict()},
    "rotation": {"classifier": nn.Linear(64, 4).state_dict()},
    "supervised": {"classifier": nn.Linear(64, 10).state_dict()},
    "deepinfomax": {
        "local_discriminator": nn.Conv2d(72, 256, 1).state_dict(),
        "prior_discriminator": nn.Linear(64, 512).state_dict(),
    },
}


@pytest.mark.parametrize("method", HEADS)
def test_the_method_is_recognised_by_its_heads(tmp_path: Path, method: str) -> None:
    run = import_weights(save(tmp_path / "a.tar", **HEADS[method]), "conv4", tmp_path / "run")
    assert read_recipe(run).method == method


def test_a_plain_state_dict_is_supervised(tmp_path: Path) -> None:
    torch.save(backbones.build("conv4").state_dict(), tmp_path / "a.pt")
    assert read_recipe(import_weights(tmp_path / "a.pt", "conv4", tmp_path / "run")).method == "supervised"
