"""`pretrain`: a run from start to end.

It collects the user's settings (`config.draft`), completes the recipe and loads the data (`training.resolve`), trains
and writes the weights (`training.run`), and scores the classifier of a supervised run (`evaluation`).
"""

from __future__ import annotations

import gc
import os
from collections.abc import Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from relatum import config, registry
from relatum.api import workers
from relatum.api.existing_run import Plan, make_plan, refuse_data_folder
from relatum.api.runs import Run, StrPath, as_list, data_name, note_unfinished, optional_path
from relatum.errors import InputError, RelatumError
from relatum.runs.folder import RunFolder
from relatum.system import launcher
from relatum.system.progress import Display
from relatum.system.team import Team
from relatum.system.text import counted
from relatum.system.torch_state import usual_torch_state
from relatum.version import __version__

if TYPE_CHECKING:  # torch is imported when training starts
    from torch import nn

    from relatum.data import ImageSet
    from relatum.objectives import Objective
    from relatum.training.resolve import Resolved


@usual_torch_state
def pretrain(
    data: Any = None,
    *,
    out: StrPath | None = None,
    method: str | None = None,
    backbone: str | nn.Module | None = None,
    views: int | None = None,
    batch_size: int | None = None,
    epochs: int | None = None,
    minutes: float | None = None,
    seed: int | None = None,
    preset: str | None = None,
    recipe: StrPath | None = None,
    set: Mapping[str, Any] | Sequence[str] | str = (),
    resume: bool = False,
    overwrite: bool = False,
    init: StrPath | None = None,
    device: str | None = None,
    devices: int | None = None,
    threads: int | None = None,
    precision: str | None = None,
    compile: str | None = None,
    labels: float | None = None,
    val_fraction: float | None = None,
    limit_train: int | None = None,
    side: int | None = None,
    stream: bool | None = None,
    strict: bool | None = None,
    knn_every: int | None = None,
    root: StrPath | None = None,
    quiet: bool = False,
) -> Run:
    """Pretrain a backbone on images.

    An argument that is None takes the preset's value for the method and dataset; see `relatum pretrain --help`.

    Args:
        data: dataset name or folder of images; or images in memory: a list of paths, Pillow images, arrays (H, W, 3) or
            tensors (3, H, W), or one array of all.
        out: run folder; `runs/NAME` by default.
        method: training method.
        backbone: backbone name, `module:function`, or any `nn.Module` from (N, 3, H, W) to (N, d).
        views: K, number of views per image.
        batch_size: M, images per step.
        epochs: number of training epochs.
        minutes: time for training; K and epochs are chosen to fit, from a few measured steps.
        seed: random seed.
        preset: `paper`, `official` (the settings of the authors' code) or `fast` (a good result in an hour on two CPU
            cores); by default `paper`, and `fast` for a folder.
        recipe: TOML file with recipe keys to start from.
        set: recipe keys and values, as a mapping or as `key=value` strings.
        resume: continue from the newest checkpoint; start if there is none; do nothing if the run is finished.
        overwrite: replace an existing run.
        init: run or weights file to start from.
        device: `auto`, `cpu`, `cuda` or `mps`.
        devices: number of devices for data-parallel training, over all machines; torchrun and srun set it.
        threads: number of CPU threads of each process.
        precision: `32`, `bf16-mixed` or `16-mixed`.
        compile: compile the backbone with `torch.compile`: `auto`, `on` or `off`.
        labels: fraction of the labels that training may use.
        val_fraction: fraction of the training set to hold out for validation.
        limit_train: train on at most this many images.
        side: side of a view in pixels.
        stream: decode images from tar shards as they are needed, without a decoded copy on disk.
        strict: raise an error on an unreadable image file.
        knn_every: measure kNN accuracy every this many epochs.
        root: data root folder.
        quiet: print nothing.

    Raises:
        InputError: the arguments or the data cannot be used.
        Interrupted: SIGINT or SIGTERM arrived; the run is saved and can be resumed.
    """
    arguments = dict(locals())
    if resume and overwrite:
        raise InputError("--resume continues a run and --overwrite replaces it: give one of them.")
    custom_backbone = None if backbone is None or isinstance(backbone, str) else backbone
    draft = _draft(arguments, custom_backbone)
    folder = _run_folder(out, draft, resume=resume)
    refuse_data_folder(folder, draft.get("data.name"))
    place = launcher.find_place()
    launcher.check_devices(place, draft.request.run.devices if "run.devices" in draft.explicit else None)
    devices = place.size if place is not None else _devices(draft, folder, resume=resume)
    if devices > 1:
        draft = config.Draft({**draft.values, "run.devices": devices}, draft.explicit | {"run.devices"})
    with workers.team(place, devices, draft.request.run.device, arguments) as team:
        team.require_same({**draft.values, "version": __version__})
        display = Display(quiet=quiet or not team.first)
        with folder.lock() if team.first else nullcontext():
            plan = team.first_does(
                lambda: make_plan(folder, draft, team.place, display, resume=resume, overwrite=overwrite)
            )
            if plan.finished:
                display.print(f"{folder.path} is finished; nothing to do.")
            else:
                if init is not None and plan.recipe is None:
                    note_unfinished(init, "used to start from", show=team.first and not quiet)
                images = _in_memory(data, side) if _is_in_memory(data) else None
                from relatum.training.optim import restored_threads

                with restored_threads():  # the next run of this process chooses its own number
                    _pretrain(draft, folder, display, team, plan, custom_backbone, optional_path(root), minutes, images)
                gc.collect()  # reference cycles (Fabric, batches) would keep the images mapped and their files open
    return Run(folder.path, custom_backbone)


_COUNTED = 256  # images whose pixels are added up at a time
_RECIPE_KEYS = {  # argument of `pretrain`: recipe key
    "method": "method",
    "views": "views.number",
    "batch_size": "train.batch_size",
    "epochs": "train.epochs",
    "seed": "seed",
    "preset": "preset",
    "device": "run.device",
    "devices": "run.devices",
    "threads": "run.threads",
    "precision": "run.precision",
    "compile": "run.compile",
    "labels": "data.labels",
    "val_fraction": "data.val_fraction",
    "limit_train": "data.limit_train",
    "side": "data.side",
    "strict": "data.strict",
    "knn_every": "log.knn_every",
}


def _draft(arguments: Mapping[str, Any], custom_backbone: nn.Module | None) -> config.Draft:
    """The user's settings, from the arguments of `pretrain`."""
    data, init, recipe, pairs = (arguments[name] for name in ("data", "init", "recipe", "set"))
    flags = {key: arguments[name] for name, key in _RECIPE_KEYS.items()}
    if data is not None:
        flags["data.name"] = registry.IN_MEMORY if _is_in_memory(data) else data_name(data)
    if arguments["stream"]:
        flags["data.storage"] = "stream"
    if init is not None:
        flags["init"] = str(Path(init).resolve())  # a resume may start in another folder
    flags["backbone.name"] = (
        arguments["backbone"] if custom_backbone is None else f"object:{type(custom_backbone).__name__}"
    )
    pairs = [f"{key}={value}" for key, value in pairs.items()] if isinstance(pairs, Mapping) else as_list(pairs)
    return config.draft(recipe_file=optional_path(recipe), sets=map(str, pairs), flags=flags)


def _is_in_memory(data: Any) -> bool:
    return data is not None and not isinstance(data, str | os.PathLike)


def _devices(draft: config.Draft, folder: RunFolder, *, resume: bool) -> int:
    """The number of processes to start: as the user asked, or else as in the run to resume."""
    if "run.devices" not in draft.values and resume and folder.exists():
        with suppress(InputError):  # a damaged recipe is reported, or replaced, by the resume itself
            return folder.read_recipe().run.devices
    return draft.request.run.devices


def _pretrain(
    draft: config.Draft,
    folder: RunFolder,
    display: Display,
    team: Team,
    plan: Plan,
    custom_backbone: nn.Module | None,
    root: Path | None,
    minutes: float | None,
    images: ImageSet | None = None,
) -> None:
    """Resolve, train, score. An existing run is resumed, or replaced once the new one is about to start."""
    from relatum.training import resolve

    def load() -> Resolved:
        if plan.recipe is not None:
            return resolve.resume(folder.path, plan.recipe, draft, root=root, images=images)
        if minutes is None:
            return resolve.resolve(draft, root=root, images=images)
        from relatum.training.budget import check_minutes, fit_to_minutes

        check_minutes(draft, minutes)
        resolved = resolve.resolve(draft, root=root, images=images)
        return fit_to_minutes(
            draft, resolved, minutes, display, custom_backbone=custom_backbone, root=root, images=images
        )

    resolved = team.one_per_machine_first(load)
    facts = resolved.recipe.data
    team.require_same({"data.images": facts.images, "data.fingerprint": facts.fingerprint})
    if plan.recipe is not None and minutes is not None:
        display.warn(
            f"--minutes is ignored: a resumed run trains for its {counted(resolved.recipe.train.epochs, 'epoch')}."
        )
    from relatum.training.run import train  # imports Lightning Fabric, which takes a second

    objective = train(
        resolved,
        folder,
        display,
        team=team,
        custom_backbone=custom_backbone,
        root=root,
        start=plan.start,
        replace=plan.replace,
    )
    if objective is not None and custom_backbone is not None:  # `embed` then prepares images as the run does
        from relatum.runs.weights import annotate, weights_metadata

        annotate(custom_backbone, weights_metadata(resolved.recipe, objective.num_features))
    if objective is not None and hasattr(objective, "predict"):
        folder.update_record(classifier_score=_score_classifier(objective, resolved, folder, display, root))


def _in_memory(data: Any, side: int | None) -> ImageSet:
    """Images in memory, with the mean and standard deviation of their pixels."""
    import numpy as np

    from relatum.data import read_images
    from relatum.data.decoded import channel_sums

    images = data if hasattr(data, "images") else read_images(data, side=side)
    pixels, sums = images.images, np.zeros((2, 3))  # of whole numbers, which floats hold exactly
    for start in range(0, len(pixels), _COUNTED):  # as floats, all images would take eight times their memory
        part = pixels[start : start + _COUNTED]
        sums += channel_sums(part.reshape(len(part), -1))
    mean, square = sums / (pixels.size // 3)
    std = np.sqrt(np.maximum(square - mean**2, 0))
    return replace(images, mean=tuple(map(float, mean / 255)), std=tuple(max(float(s), 1e-3) for s in std / 255))


def _score_classifier(
    objective: Objective, resolved: Resolved, folder: RunFolder, display: Display, root: Path | None
) -> str:
    """Score the classifier of a supervised run on the held-out part or the test split; the weights are written before.

    Returns:
        `done`, or the reason why there is no score; the run does not fail because of it.
    """
    from relatum.evaluation.classifier import save_classifier
    from relatum.training.monitor import classifier_logits, load_test_images

    try:
        images, split = load_test_images(resolved, root)
        if images.labels is None:
            raise InputError(f"the {split} split of {images.name} has no labels")
        if images.classes != resolved.images.classes:
            raise InputError(f"the {split} split of {images.name} has other classes than the training images")
        logits = classifier_logits(objective, images)
        save_classifier(folder.path, logits, images, split=split, n_train=len(resolved.images))
    except (RelatumError, OSError) as error:
        reason = str(error).splitlines()[0].rstrip(".")
        display.warn(f"the classifier was not scored: {reason}. The run is finished and its weights are complete.")
        return reason
    return "done"


def _run_folder(out: StrPath | None, draft: config.Draft, *, resume: bool) -> RunFolder:
    """The run folder. It is not read here, because it may not exist on the machines of other processes."""
    data_name = str(draft.get("data.name") or "")
    if not data_name and not (resume and out is not None):  # the recipe of a run to resume names its data
        raise InputError("no data: give a dataset name (`relatum list datasets`) or a folder of images.")
    return RunFolder(Path("runs") / Path(data_name).name if out is None else Path(out))
