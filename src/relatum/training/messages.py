"""Messages that are printed before training starts: the data, the method, the machine, and warnings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relatum.config import Values
from relatum.config.methods import METHODS
from relatum.errors import on_command_line
from relatum.objectives import Objective
from relatum.runs import names, provenance
from relatum.runs.folder import RunFolder
from relatum.system.progress import Display
from relatum.system.text import counted
from relatum.training.batches import BatchMaker
from relatum.training.resolve import Resolved

_SKIPPED_SHOWN = 5
_BATCH_SHOWN = 8
_LOOKED_AT = 256


def announce(resolved: Resolved, maker: BatchMaker, objective: Objective, display: Display) -> None:
    """Print a few lines about the run."""
    recipe, images = resolved.recipe, resolved.images
    K, M = recipe.views.number, min(recipe.train.batch_size, len(images))
    parameters = sum(p.numel() for p in objective.backbone.parameters())
    pairs = ""
    if recipe.method == "relational":
        ratio = min(recipe.objective.negatives_per_positive, M - 1)
        pairs = f", {M * (1 + ratio) * (K * K - K) // 2:,} pairs a step"
    held_out = f" ({len(resolved.validation):,} held out)" if resolved.validation is not None else ""
    size = f"{recipe.data.side} × {recipe.data.side}"
    classes = f"{len(images.classes)} classes" if images.classes else "no labels"
    machine = f"{recipe.run.device}, {counted(recipe.run.threads or 1, 'thread')}, {recipe.run.kernels} kernels"
    display.print(f"data      {recipe.data.name}: {len(images):,} images of {size}, {classes}{held_out}")
    display.print(
        f"method    {recipe.method} ({recipe.preset} preset), {counted(K, 'view')} of {counted(M, 'image')}{pairs}"
    )
    display.print(f"backbone  {recipe.backbone.name}, {parameters:,} parameters")
    display.print(
        f"training  {counted(recipe.train.epochs, 'epoch')} of {counted(maker.steps_per_epoch, 'step')} on {machine}, "
        f"seed {recipe.seed}"
    )
    if resolved.folder_defaults:
        display.print(f"defaults  picked for this folder and machine: {_as_flags(resolved.folder_defaults)}")
        if "train.epochs" in resolved.folder_defaults:
            display.print(f"          {_expectation(resolved)}")
    if recipe.data.labels and resolved.labels is not None:
        visible = f"{int((resolved.labels >= 0).sum()):,} of {len(images):,} ({100 * recipe.data.labels:g} %)"
        display.print(f"labels    {visible}, class-balanced, are used by training")
    for text in (*resolved.warnings, *_warnings(resolved, maker)):
        display.warn(text)
    _list_skipped(resolved, display)


def _as_flags(defaults: Values) -> str:
    """As the reader would type them: a text in Python is quoted."""
    flags = {"preset": "preset", "backbone.name": "backbone", "views.number": "views", "train.epochs": "epochs"}
    if on_command_line():
        return ", ".join(f"--{flags[key]} {value}" for key, value in defaults.items())
    return ", ".join(f"{flags[key]}={value!r}" for key, value in defaults.items())


def _expectation(resolved: Resolved) -> str:
    """The reason for the number of epochs, what to expect, and how to get a first result sooner."""
    recipe = resolved.recipe
    views = recipe.train.epochs * len(resolved.images) * recipe.views.number / 1e6
    most = "at most 200 epochs are picked, as many as in the paper"
    why = most if recipe.train.epochs == 200 else "with fewer epochs it learns less"
    return (
        f"{views:.1f} million views in total; {why}. For a quick first result, use --minutes 5: this is enough for a "
        "rough map; search and clusters keep improving with longer training."
    )


def without_content(pixels: NDArray[np.uint8]) -> list[str]:
    """A warning if no image differs from the first, or each is one colour: views differ, so training does not notice.

    Args:
        pixels: (N, H, W, 3); `_LOOKED_AT` of them are looked at.
    """
    some = pixels[:: -(-len(pixels) // _LOOKED_AT)]
    if (some == some[0]).all():
        return [f"all {len(some):,} images that were looked at are the same: nothing can be learned from them."]
    if (some == some[:, :1, :1]).all():
        return [f"each of the {len(some):,} images that were looked at is one colour: little can be learned from them."]
    return []


def _warnings(resolved: Resolved, maker: BatchMaker) -> list[str]:
    train, images = resolved.recipe.train, resolved.images
    texts = []
    if train.batch_size > len(images):
        texts.append(f"the mini-batch size {train.batch_size:,} exceeds the dataset: every step uses all images.")
    if train.epochs == 0 and METHODS[resolved.recipe.method].trains:
        texts.append("0 epochs: nothing is trained, the weights stay at their initial values.")
    pixels = images.images
    if isinstance(pixels, np.ndarray) and train.epochs and len(images) > 1:  # a stream is not read ahead
        texts += without_content(pixels)
    if maker.dropped and not train.drop_last:
        texts.append(
            f"the last mini-batch of each epoch has only {counted(maker.dropped, 'image')}, too few; it is dropped."
        )
    if not maker.window_fits():
        section = resolved.recipe.data
        texts.append(
            f"data.cache_gb = {section.cache_gb:g} does not hold a shuffle window of {section.window:,} images: "
            "blocks are fetched repeatedly. Use a larger cache or a smaller data.window."
        )
    return texts


def _list_skipped(resolved: Resolved, display: Display) -> None:
    skipped = resolved.images.skipped
    if not skipped:
        return
    display.warn(f"skipped {counted(len(skipped), 'file')} that could not be read:")
    paths: dict[str, list[str]] = {}
    for item in skipped:
        paths.setdefault(item.reason, []).append(item.path)
    reasons = sorted(paths, key=lambda reason: -len(paths[reason]))
    for reason in reasons[:_SKIPPED_SHOWN]:  # a hundred HEIC files have one reason
        more = f" and {len(paths[reason]) - 1:,} more" if len(paths[reason]) > 1 else ""
        display.print(f"  {paths[reason][0]}{more}: {reason}")
    if len(skipped) > len(reasons[:_SKIPPED_SHOWN]):
        display.print(f"  all are listed in {names.RECORD}")


def _table(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def not_finite(what: str, step: int, images: list[str], good: tuple[Path, int] | None) -> str:
    """The error for values that are not finite: which ones, at which step, and the last good checkpoint.

    Args:
        what: the loss or the weights.
        step: the step.
        images: the images of its batch.
        good: the newest checkpoint before, and its step.
    """
    shown = ", ".join(images[:_BATCH_SHOWN]) + f" and {len(images) - _BATCH_SHOWN} more" * (len(images) > _BATCH_SHOWN)
    kept = "No checkpoint was saved before." if good is None else f"{good[0]} (step {good[1]:,}) is still good."
    return f"{what} at step {step:,} (images: {shown}). {kept} A smaller train.lr or train.clip_norm may help."


def warn_about_changes(folder: RunFolder, display: Display) -> None:
    """Warn when a run is resumed on another processor or with other library versions: its bits may differ."""
    before, now = folder.read_record(), provenance.record()
    if not before:
        return
    versions, machine = (_table(before.get(key)) for key in ("versions", "machine"))
    facts = [(name, versions.get(name), version) for name, version in now["versions"].items()]
    facts.append(("processor", machine.get("cpu"), now["machine"]["cpu"]))
    for name, old, new in facts:
        if old is not None and old != new:
            display.warn(f"{name} was {old} when this run last trained and is {new} now: the exact bits may differ.")
