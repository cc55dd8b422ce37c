"""A run from a complete recipe to a finished folder: objective, batches, trainer, and what is left for people."""

from __future__ import annotations

import os
import shlex
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from lightning_fabric import Fabric
from torch import Tensor, nn

from relatum import backbones, config, data, evaluation, features, objectives
from relatum.config.methods import METHODS
from relatum.data import ImageSet
from relatum.errors import InputError, Interrupted
from relatum.evaluation.knn import knn_accuracy
from relatum.objectives import Context, Objective
from relatum.runs import checkpoint, names, provenance
from relatum.runs.folder import RunFolder
from relatum.runs.weights import load_state, read_backbone, weights_metadata
from relatum.system.allocator import keep_freed_memory
from relatum.system.progress import Display, duration
from relatum.training import snapshots
from relatum.training.batches import BatchMaker
from relatum.training.loop import Trainer, compile_backbone, make_fabric
from relatum.training.resolve import Prepared


def train(
    prepared: Prepared,
    folder: RunFolder,
    display: Display,
    *,
    own: nn.Module | None = None,
    root: Any = None,
    replace: bool = False,
) -> None:
    """Run what is left of a run; afterwards its folder is complete.

    Args:
        prepared: the recipe and its data.
        folder: the run folder, locked by the caller.
        display: what people see.
        own: a backbone object of the user's, in place of the recipe's name.
        root: where datasets lie.
        replace: remove the run that is in the folder once everything of the new one is known to be possible.
    """
    began = time.monotonic()
    _be_deterministic(prepared.recipe)
    torch.set_num_threads(prepared.recipe.run.threads or 1)
    resumes = not replace and folder.checkpoints.exists()
    objective = make_objective(prepared, own, init=not resumes)
    if prepared.recipe.run.device == "cpu":
        keep_freed_memory()
    fabric = make_fabric(prepared.recipe)
    fabric.launch()
    maker = make_batches(prepared, objective, fabric)
    _announce(prepared, maker, objective, display)
    recipe = maker.recipe = _compile(prepared.recipe, objective, maker, fabric, display)
    trainer = Trainer(
        objective,
        recipe,
        maker,
        folder,
        info=weights_metadata(recipe, objective.num_features),
        fabric=fabric,
        features=lambda: clean_features(objective.backbone, prepared.images),
        monitor=_monitor(prepared, root),
        display=display,
    )
    writer = fabric.is_global_zero
    earlier = 0.0 if replace else folder.read_record().get("seconds", 0.0)
    if writer:
        if replace:
            folder.clear()
        _say_what_changed(folder, display)
        _begin(folder, recipe, prepared, trainer.total)
    fabric.barrier()
    try:
        found = checkpoint.newest(folder.path)
        if found is not None:
            trainer.restore(found[1])
            display.say(f"resumed at step {trainer.step:,} of {trainer.total:,}")
        elif writer:
            snapshots.save_views(folder.path, maker)
        if trainer.step < trainer.total:
            trainer.train()
        if writer:
            folder.update_record(steps=trainer.step)
            _score_classifier(folder.path, objective, prepared, root)
            snapshots.save_pairs(folder.path, objective, maker)
            trainer.finish()  # last: a run without a backbone is one that a resume completes
    except BaseException as error:
        if writer:
            status = "interrupted" if isinstance(error, Interrupted | KeyboardInterrupt) else "failed"
            folder.update_record(status=status, seconds=earlier + time.monotonic() - began, steps=trainer.step)
        raise
    if writer:
        seconds = earlier + time.monotonic() - began
        folder.update_record(status="finished", seconds=seconds)
        display.say(f"done in {duration(seconds)}: {folder.path}")


def make_objective(prepared: Prepared, own: nn.Module | None = None, *, init: bool = True) -> Objective:
    """The recipe's objective with its weights drawn from the seed, or taken from the recipe's `init`."""
    recipe, images = prepared.recipe, prepared.images
    backbone = own if own is not None else backbones.build(recipe.backbone.name, seed=recipe.seed)
    if recipe.run.kernels == "numba" and recipe.run.precision == "32":
        backbones.attach_fused(backbone)
    if recipe.init and init:
        load_state(backbone, read_backbone(recipe.init)[0], recipe.init)
    with backbones.seeded(recipe.seed, 1):
        objective = objectives.build(
            recipe.method,
            backbone,
            backbones.feature_size(backbone, recipe.data.side or images.side),
            recipe.objective,
            Context(
                num_images=len(images),
                num_classes=images.num_classes,
                side=recipe.data.side or images.side,
                kernels=recipe.run.kernels,
            ),
        )
    return objective.to(memory_format=torch.channels_last)  # type: ignore[call-overload]


def _be_deterministic(recipe: config.Recipe) -> None:
    """Same seed, same bits on a GPU too, as far as its libraries can: some operations have only one, racing kernel."""
    if recipe.run.device == "cuda":
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark = True, False
        torch.use_deterministic_algorithms(True, warn_only=True)


def _say_what_changed(folder: RunFolder, display: Display) -> None:
    """A resume on another machine or with other libraries may give other bits: say so."""
    before, now = folder.read_record(), provenance.record()
    pairs = [(name, before.get("versions", {}).get(name), found) for name, found in now["versions"].items()]
    pairs.append(("processor", before.get("machine", {}).get("cpu"), now["machine"]["cpu"]))
    for name, then, found in pairs:
        if before and then is not None and then != found:
            display.warn(f"{name} was {then} when this run was last at work and is {found} now: its bits may differ.")


def make_batches(prepared: Prepared, objective: Objective, fabric: Fabric) -> BatchMaker:
    """The batches of this process; a number of images that the method cannot work with is refused."""
    recipe = prepared.recipe
    if recipe.train.epochs and recipe.train.batch_size // fabric.world_size < objective.min_images:
        raise InputError(f"{recipe.method} needs at least {objective.min_images} images per step (--batch-size).")
    maker = BatchMaker(
        prepared.images,
        prepared.recipe,
        labels=prepared.labels,
        uses_labels=METHODS[recipe.method].loss_uses_labels(recipe.objective),
        min_images=objective.min_images,
        rank=fabric.global_rank,
        world=fabric.world_size,
        device=fabric.device,
    )
    if recipe.train.epochs and not maker.steps_per_epoch:
        least = recipe.train.batch_size if recipe.train.drop_last else objective.min_images * fabric.world_size
        where = f" on {fabric.world_size} devices" * (fabric.world_size > 1)
        raise InputError(
            f"{len(prepared.images)} image(s) are too few for a step of {recipe.method}{where}: {least} are needed."
        )
    return maker


def _begin(folder: RunFolder, recipe: config.Recipe, prepared: Prepared, total: int) -> None:
    """Write the recipe and the record of what is about to run."""
    folder.write_recipe(recipe)
    called = Path(sys.argv[0]).name
    folder.update_record(
        status="running",
        started=folder.read_record().get("started") or time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        images=len(prepared.images),
        classes=list(prepared.images.classes),
        total_steps=total,
        command=shlex.join(["relatum", *sys.argv[1:]]) if called in ("relatum", "__main__.py") else None,
        skipped=[{"path": s.path, "reason": s.reason} for s in prepared.images.skipped],
        **provenance.record(),
    )


def _announce(prepared: Prepared, maker: BatchMaker, objective: Objective, display: Display) -> None:
    """A few lines on what will run."""
    recipe, images = prepared.recipe, prepared.images
    K, M = recipe.views.number, min(recipe.train.batch_size, len(images))
    parameters = sum(p.numel() for p in objective.backbone.parameters())
    pairs = f", {M * (K * K - K):,} pairs a step" if recipe.method == "relational" else ""
    held = f" ({len(prepared.validation):,} held out)" if prepared.validation is not None else ""
    size = f"{recipe.data.side} × {recipe.data.side}"
    kinds = f"{len(images.classes)} classes" if images.classes else "no labels"
    display.say(f"data      {recipe.data.name}: {len(images):,} images of {size}, {kinds}{held}")
    display.say(f"method    {recipe.method} ({recipe.preset} preset), {K} view(s) of {M} images{pairs}")
    display.say(f"backbone  {recipe.backbone.name}, {parameters:,} parameters")
    where = f"{recipe.run.device}, {recipe.run.threads} thread(s), {recipe.run.kernels} kernels"
    display.say(
        f"training  {recipe.train.epochs} epoch(s) of {maker.steps_per_epoch:,} steps on {where}, seed {recipe.seed}"
    )
    if prepared.chosen:
        display.say(prepared.chosen)
    for note in prepared.notes:
        display.warn(note)
    if recipe.data.labels and prepared.labels is not None:
        seen = f"{int((prepared.labels >= 0).sum()):,} of {len(images):,} ({100 * recipe.data.labels:g} %)"
        display.say(f"labels    {seen}, class-balanced, are visible to training")
    if recipe.train.batch_size > len(images):
        display.warn(f"a mini-batch of {recipe.train.batch_size:,} is more than there is: every step sees all images.")
    if recipe.train.epochs == 0 and recipe.method != "random":
        display.warn("0 epochs: nothing is learned, the weights stay as they start.")
    if images.skipped:
        display.warn(f"{len(images.skipped)} file(s) could not be read and are skipped:")
        for item in images.skipped[:5]:
            display.say(f"  {item.path}: {item.reason}")
        if len(images.skipped) > 5:
            display.say(f"  … and {len(images.skipped) - 5} more, all listed in {names.RECORD}")
    if maker.dropped and not recipe.train.drop_last:
        display.warn(f"the last mini-batch of each epoch would hold {maker.dropped} image(s), too few; it is dropped.")


def _compile(
    recipe: config.Recipe, objective: Objective, maker: BatchMaker, fabric: Fabric, display: Display
) -> config.Recipe:
    """Compile the backbone where the recipe says so; a failure is one warning, and the recipe records it."""
    if recipe.run.compile != "on" or recipe.train.epochs == 0:
        return recipe
    off = config.Recipe.from_values({**config.flatten(recipe.tables()), "run.compile": "off"})
    parts: list[nn.Module] = []
    objective.accelerate(parts.append)
    if not parts:
        display.say(f"{recipe.method} has nothing to compile")
        return off
    side, count = recipe.data.side or 32, recipe.views.number * -(-recipe.train.batch_size // maker.world)
    display.say("compiling the backbone (once; a minute or so the first time)")
    example = torch.zeros(count, 3, side, side).contiguous(memory_format=torch.channels_last)
    objective.to(maker.device)
    failure = compile_backbone(objective, example.to(maker.device), fabric)
    if failure is None:
        return recipe
    display.warn(f"torch.compile does not work here, going on without it: {failure}")
    return off


def clean_features(backbone: nn.Module, images: ImageSet) -> Tensor:
    """Representations of clean images by the backbone as it is now, in eval mode."""
    with torch.compiler.set_stance("force_eager"):
        return torch.from_numpy(features.extract(backbone, images))


def _monitor(prepared: Prepared, root: Any) -> Callable[[nn.Module], Mapping[str, float]] | None:
    """KNN accuracy on the held-out part, or on the test split where nothing is held out."""
    recipe, bank = prepared.recipe, prepared.images
    if not recipe.log.knn_every:
        return None
    queries = prepared.validation if prepared.validation is not None else _test_split(recipe, root)
    votes, truth = bank.labels, queries.labels
    if votes is None or truth is None:
        raise InputError(f"--knn-every needs labels to vote with, and {recipe.data.name} has none.")

    def look(backbone: nn.Module) -> Mapping[str, float]:
        z, q = (clean_features(backbone, part).numpy() for part in (bank, queries))
        return {"knn_accuracy": knn_accuracy(z, votes, q, truth)}

    return look


def _test_split(recipe: config.Recipe, root: Any) -> ImageSet:
    """The test images at the side and with the normalisation of the run."""
    known = recipe.data
    return data.load(known.name, "test", root=root, side=known.side, mean=known.mean, std=known.std)


def _score_classifier(run: Path, objective: Objective, prepared: Prepared, root: Any) -> None:
    """The score of an objective with a classifier of its own (supervised), on the held-out part or the test split."""
    predict = getattr(objective, "predict", None)
    if predict is None:
        return
    recipe = prepared.recipe
    test, split = prepared.validation, "val"
    if test is None:
        try:
            test, split = _test_split(recipe, root), "test"
        except InputError:
            return  # a folder without a test split has nothing to be scored on
    with torch.no_grad():
        logits = predict(clean_features(objective.backbone, test).to(next(objective.parameters()).device))
    evaluation.save_classifier(run, logits.cpu().numpy(), test, split=split, n_train=len(prepared.images))
