"""Evaluation: how good a representation is. Each protocol is a small function of features or of a backbone.

`evaluate` runs a protocol by its name and writes one result file. Protocols name their code as `module:attribute`;
nothing heavy is imported until it is used. `embedding` and `searching` apply a backbone to images.
"""

from __future__ import annotations

import copy
import tempfile
import time
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from relatum import registry
from relatum.config.protocols import PROTOCOLS, Protocol
from relatum.config.settings import build, table
from relatum.errors import InputError, RelatumError
from relatum.runs.folder import RunFolder, read_recipe
from relatum.runs.results import STEP, Result, make_result
from relatum.system.devices import find_device
from relatum.system.files import WriteError, file_safe
from relatum.system.progress import Display

if TYPE_CHECKING:
    from torch import nn

    from relatum.evaluation.task import Outcome, Task

__all__ = ["PROTOCOLS", "Protocol", "Result", "evaluate", "evaluate_module"]


def evaluate(
    protocol: str,
    run: str | Path,
    *,
    data: str | Path,
    split: str = "test",
    epochs: int | None = None,
    seed: int | None = None,
    tag: str = "",
    backbone: str | nn.Module | None = None,
    settings: Mapping[str, Any] | None = None,
    root: str | Path | None = None,
    device: str = "auto",
    progress: bool = True,
) -> Result:
    """Evaluate the backbone of a run folder and save the result in it.

    The arguments are those of `relatum.evaluate`, which also accepts ledger entries and modules.
    """
    row = registry.find(PROTOCOLS, "protocol", protocol)
    if split not in ("test", "val"):
        raise InputError(f"split '{split}' cannot be used for evaluation; choose test or val.")
    started = time.perf_counter()
    run = Path(run)
    recipe = read_recipe(run)
    folder = RunFolder(run)
    folder.warn_if_recipe_changed()
    folder.check_writable()  # before the work is done
    started_at = folder.read_record().get("started")
    parsed = _settings(protocol, row.settings, settings or {}, epochs)

    from relatum.data import may_have_labels
    from relatum.evaluation.task import Task, no_labels
    from relatum.features import state_hash
    from relatum.runs.weights import load_backbone

    if row.needs_labels and not may_have_labels(data):  # before an image is decoded
        raise no_labels(str(data), protocol)
    module = load_backbone(run, backbone=backbone).to(find_device(device))
    before = state_hash(module)
    task = Task(
        run=run,
        recipe=recipe,
        backbone=module,
        data=str(data),
        split=split,
        settings=parsed,
        seed=1 if seed is None else seed,
        protocol=protocol,
        needs_labels=row.needs_labels,
        root=None if root is None else Path(root),
        tag=file_safe(tag) if tag else "",
        progress=progress,
    )
    outcome = registry.resolve(row.target)(task)
    if state_hash(module) != before:  # frozen means frozen; a user's backbone may do anything in eval mode
        raise RelatumError(f"{protocol} evaluation changed the backbone's parameters or buffers; its result is void.")
    if folder.read_record().get("started") != started_at:
        raise RelatumError(f"{run} was replaced by another run during the evaluation; nothing was saved. Evaluate it.")
    result = _result(task, outcome, time.perf_counter() - started)
    _warn_of_overwriting(run, result, show=progress)
    try:
        result.save(run)
    except WriteError as error:  # it may have taken hours
        raise WriteError(f"{error}\nThe result was not saved: {result.sentence()}") from error
    return result


def _result(task: Task, outcome: Outcome, seconds: float) -> Result:
    test = task.test
    facts = {"seed": task.seed, "split": test.split, "val_fraction": task.fraction, **outcome.protocol}
    facts |= {"side": test.side, "mean": list(test.mean), "std": list(test.std)}
    return make_result(
        task.run,
        task.recipe,
        protocol=task.protocol,
        dataset=test.name,
        split=test.split,
        accuracy=outcome.accuracy,
        settings={**table(task.settings), **facts},
        n_train=outcome.n_train,
        n_test=len(test) if outcome.n_test is None else outcome.n_test,
        seconds=seconds,
        details={**outcome.details, "backbone_unchanged": True},
        tag=task.tag,
        step=getattr(task.backbone, "info", {}).get(STEP),
    )


def evaluate_module(protocol: str, module: nn.Module, **options: Any) -> Result:
    """Evaluate a module that belongs to no run; the result is returned and not saved.

    Args:
        protocol: as for `evaluate`.
        module: maps (N, 3, H, W) to (N, d). Its `info` (`relatum.load_backbone`) gives side and normalisation;
            without it they are those of the dataset or folder. The result records what `info` says about pretraining.
        options: the other arguments of `evaluate`.
    """
    from relatum.backbones.base import image_settings
    from relatum.config import Recipe
    from relatum.runs.weights import save_weights

    info: dict[str, Any] = getattr(module, "info", None) or {}
    values = {f"data.{name}": value for name, value in image_settings(module).items()}
    values |= {"method": info.get("method", "module"), "preset": info.get("preset", "paper"), "train.epochs": 0}
    values |= {"data.name": info.get("dataset", "unknown"), "backbone.name": f"object:{type(module).__name__}"}
    with tempfile.TemporaryDirectory(prefix="relatum-") as place:
        folder = RunFolder(place)
        folder.write_recipe(Recipe.from_values(values, finished=True))
        save_weights(folder.backbone, module.state_dict(), {"backbone": values["backbone.name"]})
        result = evaluate(protocol, folder.path, backbone=copy.deepcopy(module), **options)
    result.path = None
    known = ("method", "preset", "dataset", "side", "backbone")  # the rest of that recipe are defaults
    result.pretrain = {"backbone": values["backbone.name"], **{key: info[key] for key in known if info.get(key)}}
    return result


def _warn_of_overwriting(run: Path, result: Result, *, show: bool) -> None:
    """Warn before a result with other settings is overwritten."""
    old = RunFolder(run).result(result.stem)
    try:
        before = Result.load(old).settings if old.exists() else result.settings
    except InputError:
        return
    changed = [key for key in result.settings if key in before and before[key] != result.settings[key]]
    if changed and show:
        changes = ", ".join(f"{key} {before[key]} → {result.settings[key]}" for key in changed[:3])
        Display().warn(
            f"{old.name} contained a result with other settings ({changes}) and is overwritten; use --tag to keep both."
        )


def _settings(protocol: str, kind: type, values: Mapping[str, Any], epochs: int | None) -> Any:
    values = {key.removeprefix(f"{protocol}."): value for key, value in values.items()}
    if epochs is None:
        return build(kind, values)
    if "epochs" not in {f.name for f in fields(kind)}:
        raise InputError(f"{protocol} evaluation trains nothing, so it has no epochs; leave --epochs out.")
    return build(kind, {**values, "epochs": epochs})
