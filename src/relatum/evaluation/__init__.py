"""Evaluation: what a representation is worth. Each protocol is a small function of features or of a backbone.

`evaluate` runs one by its name and writes one result file. The table is plain and names its code as `module:attribute`;
nothing heavy is imported until a protocol runs.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from relatum import provenance, registry
from relatum.config import read_recipe
from relatum.errors import InputError, RelatumError
from relatum.evaluation.result import Result, pretrain_record
from relatum.files import file_safe
from relatum.settings import build, table

__all__ = ["PROTOCOLS", "Protocol", "Result", "evaluate"]


@dataclass(frozen=True)
class Protocol:
    """A row of the table of protocols.

    Attributes:
        target: the function, `module:function`, called with a `Task` and giving an `Outcome`.
        settings: its settings, `module:dataclass`.
        summary: one line for people.
        needs_labels: whether images without labels are an error.
    """

    target: str
    settings: str
    summary: str
    needs_labels: bool = True


def _row(module: str, settings: str, summary: str, *, needs_labels: bool = True) -> Protocol:
    path = f"relatum.evaluation.{module}"
    return Protocol(f"{path}:run", f"{path}:{settings}", summary, needs_labels)


PROTOCOLS: dict[str, Protocol] = {
    "linear": _row("linear", "LinearSettings", "a linear classifier on frozen features"),
    "knn": _row("knn", "KNNSettings", "the vote of the nearest neighbours; nothing is trained"),
}


def evaluate(
    protocol: str,
    run: str | Path,
    *,
    data: str | Path,
    split: str = "test",
    epochs: int | None = None,
    seed: int | None = None,
    tag: str = "",
    settings: Mapping[str, Any] | None = None,
    root: str | Path | None = None,
    device: str = "auto",
    progress: bool = True,
) -> Result:
    """Evaluate the backbone of a run and write RUN/evaluations/PROTOCOL-DATASET-SPLIT[-TAG].json.

    Args:
        protocol: `linear`, `knn`, `finetune`, `retrieval` or `tsne`.
        run: a run folder.
        data: a dataset's name or a folder of images.
        split: `test`, or `val`: the part of the training set that the run held out.
        epochs: overrides the protocol's.
        seed: of the protocol's own draws; 1 by default.
        tag: sets results of the same protocol, dataset and split apart.
        settings: the protocol's settings by name, as `--set key=value` gives them.
        root: the folder that holds the datasets.
        device: `auto` (CUDA where there is one), or a torch device.
        progress: show bars on standard error.

    Returns:
        The result, already saved.
    """
    row = registry.find(PROTOCOLS, "protocol", protocol)
    if split not in ("test", "val"):
        raise InputError(f"split '{split}' cannot be evaluated on; choose test or val.")
    started = time.perf_counter()
    run = Path(run)
    recipe = read_recipe(run)
    chosen = _settings(protocol, row, settings or {}, epochs)

    from relatum.checkpoint import load_backbone
    from relatum.evaluation.task import Task
    from relatum.features import state_hash

    backbone = load_backbone(run)
    backbone.to(_device(device))
    before = state_hash(backbone)
    task = Task(
        run=run,
        recipe=recipe,
        backbone=backbone,
        data=str(data),
        split=split,
        settings=chosen,
        seed=1 if seed is None else seed,
        protocol=protocol,
        needs_labels=row.needs_labels,
        root=None if root is None else Path(root),
        tag=file_safe(tag) if tag else "",
        progress=progress,
    )
    outcome = registry.resolve(row.target)(task)
    if state_hash(backbone) != before:  # frozen means frozen; a backbone of the user's own may do anything in eval mode
        raise RelatumError(f"{protocol} evaluation changed the backbone's parameters or buffers; its result is void.")
    where = provenance.record()
    where.pop("versions")
    result = Result(
        protocol=protocol,
        dataset=file_safe(task.test.name),
        split=task.test.split,
        accuracy=outcome.accuracy,
        pretrain=pretrain_record(recipe, _status(run)),
        settings={
            **table(chosen),
            "seed": task.seed,
            "split": task.test.split,
            "preset": recipe.preset,
            "val_fraction": task.fraction,
            **outcome.protocol,
        },
        n_train=outcome.n_train,
        n_test=len(task.test),
        **where,
        seconds=round(time.perf_counter() - started, 3),
        details={**outcome.details, "backbone_unchanged": True},
        tag=task.tag,
    )
    result.save(run)
    return result


def _settings(protocol: str, row: Protocol, values: Mapping[str, Any], epochs: int | None) -> Any:
    kind = registry.resolve(row.settings)
    if epochs is None:
        return build(kind, values, protocol)
    if "epochs" not in {f.name for f in fields(kind)}:
        raise InputError(f"{protocol} evaluation trains nothing, so it has no epochs; leave --epochs out.")
    return build(kind, {**values, "epochs": epochs}, protocol)


def _status(run: Path) -> dict[str, Any]:
    try:
        status = json.loads((run / "run.json").read_text("utf-8"))
        return status if isinstance(status, dict) else {}
    except (OSError, ValueError):
        return {}


def _device(wanted: str) -> str:
    import torch

    if wanted != "auto":
        return wanted
    return "cuda" if torch.cuda.is_available() else "cpu"
