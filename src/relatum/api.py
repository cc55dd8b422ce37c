"""What the command line and Python users call: the parts put together, in the order of the data flow."""

from __future__ import annotations

import os
import shlex
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from relatum import __version__, artifacts, backbones, checkpoint, config, data, evaluation, features, objectives
from relatum import prepare as preparation
from relatum import provenance, registry
from relatum.checkpoint import load_backbone
from relatum.data import ImageSet
from relatum.engine import Trainer, compile_backbone, make_fabric
from relatum.errors import InputError, Interrupted
from relatum.evaluation import Result
from relatum.loader import BatchMaker
from relatum.prepare import Prepared
from relatum.progress import Display, duration
from relatum.runfolder import RunFolder

# Flags of `relatum pretrain` and keywords of `relatum.pretrain`, and the recipe keys behind them.
FLAGS = {
    "method": "method",
    "backbone": "backbone.name",
    "views": "views.number",
    "batch_size": "train.batch_size",
    "epochs": "train.epochs",
    "seed": "seed",
    "preset": "preset",
    "init": "init",
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
# What a resume may change without changing a bit of the result.
_FREE_ON_RESUME = ("log.", "checkpoint.", "version", "run.prefetch")


@dataclass(frozen=True)
class Run:
    """A run folder; it can be passed wherever a path to a run is taken."""

    path: Path

    def __fspath__(self) -> str:
        return str(self.path)

    @property
    def recipe(self) -> config.Recipe:
        """The complete recipe."""
        return config.read_recipe(self.path)

    def backbone(self) -> nn.Module:
        """The trained backbone, frozen, in eval mode."""
        return load_backbone(self.path)


def pretrain(
    data: str | Path | None = None,
    *,
    out: str | Path | None = None,
    backbone: str | nn.Module | None = None,
    recipe: str | Path | None = None,
    set: Mapping[str, Any] | Sequence[str] = (),
    resume: bool = False,
    overwrite: bool = False,
    root: str | Path | None = None,
    quiet: bool = False,
    **flags: Any,
) -> Run:
    """Learn a backbone from images.

    Args:
        data: a dataset's name, or a folder of images.
        out: the run folder; by default `runs/NAME`.
        backbone: a name, `module:function`, or an `nn.Module` of your own.
        recipe: a TOML file to start from.
        set: recipe keys and values, as a mapping or as `key=value` texts.
        resume: continue from the newest checkpoint; start if there is none; do nothing if finished.
        overwrite: replace a run that is there.
        root: where datasets lie.
        quiet: say nothing.
        **flags: the flags of `relatum pretrain`: method, views, batch_size, epochs, seed, preset, init, device, devices,
            threads, precision, compile, labels, val_fraction, limit_train, side, strict, knn_every.
    """
    for name in flags:
        if name not in FLAGS:
            raise TypeError(f"pretrain() got an unexpected keyword {name!r}; known: {', '.join(FLAGS)}")
    own = backbone if isinstance(backbone, nn.Module) else None
    flags["backbone"] = f"object:{type(own).__name__}" if own is not None else backbone
    values = {FLAGS[name]: value for name, value in flags.items()}
    values["data.name"] = None if data is None else _data_name(data)
    texts = set if not isinstance(set, Mapping) else [f"{key}={value}" for key, value in set.items()]
    draft = config.draft(recipe_file=recipe, sets=texts, flags=values)
    if not draft.get("data.name"):
        raise InputError("no data: name a dataset (`relatum list datasets`) or a folder of images.")
    folder = RunFolder(out if out is not None else Path("runs") / Path(str(draft.get("data.name"))).name)
    display = Display(quiet=quiet)
    with folder.lock():
        if overwrite:
            folder.clear()
        if folder.exists() and not resume:
            raise InputError(f"{folder.path} already holds a run: --resume continues it, --overwrite replaces it.")
        if folder.exists() and folder.finished():
            display.say(f"{folder.path} is finished; nothing to do.")
            return Run(folder.path)
        if folder.exists():
            prepared = preparation.reload(_resumed_recipe(folder, draft, display), root=root)
        else:
            prepared = preparation.prepare(draft, root=root)
        _train(prepared, folder, display, own, root)
    return Run(folder.path)


def _data_name(data: str | Path) -> str:
    """A dataset's name as it is; a folder as an absolute path, so that a resume finds it from anywhere."""
    if str(data) in registry.DATASETS or not Path(data).exists():
        return str(data)
    return str(Path(data).resolve())


def _resumed_recipe(folder: RunFolder, draft: config.Draft, display: Display) -> config.Recipe:
    """The recipe that the run began with; a flag that contradicts it is refused, since the bits would change."""
    began = config.read_recipe(folder.path)
    before = config.flatten(began.tables())
    now = config.flatten(config.Recipe.from_values({**before, **draft.values}).tables())
    for key in before.keys() | now.keys():
        if before.get(key) == now.get(key) or key.startswith(_FREE_ON_RESUME):
            continue
        if key.startswith("run."):
            display.warn(f"{key} was {before.get(key)} and is now {now.get(key)}: the resumed run's bits will differ.")
            continue
        raise InputError(f"--resume cannot change {key} from {before.get(key)!r} to {now.get(key)!r}; start a new run.")
    if began.version != __version__:
        display.warn(f"this run began with relatum {began.version}; this is {__version__}: its bits may differ.")
    return config.Recipe.from_values(now)


def _train(prepared: Prepared, folder: RunFolder, display: Display, own: nn.Module | None, root: Any) -> None:
    recipe, images = prepared.recipe, prepared.images
    began = time.monotonic()
    torch.set_num_threads(recipe.run.threads or 1)
    backbone = own if own is not None else backbones.build(recipe.backbone.name, seed=recipe.seed)
    if recipe.init:
        checkpoint.load_state(backbone, checkpoint.read_backbone(recipe.init)[0], recipe.init)
    size = backbones.feature_size(backbone, recipe.data.side or images.side)
    with backbones.seeded(recipe.seed, 1):
        objective = objectives.build(
            recipe.method,
            backbone,
            size,
            recipe.objective,
            num_classes=images.num_classes,
            num_images=len(images),
            kernels=recipe.run.kernels,
        )
    objective.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    fabric = make_fabric(recipe)
    fabric.launch()
    maker = BatchMaker(
        images,
        recipe,
        labels=prepared.labels,
        min_images=objective.min_images,
        rank=fabric.global_rank,
        world=fabric.world_size,
        device=fabric.device,
    )
    _announce(prepared, maker, objective, display)
    recipe = _compile(recipe, objective, maker, display)
    maker.recipe = recipe
    trainer = Trainer(
        objective,
        recipe,
        maker,
        folder,
        info=_info(recipe, size),
        fabric=fabric,
        features=lambda: _clean_features(objective.backbone, images),
        monitor=_monitor(prepared, root),
        display=display,
    )
    _begin(folder, recipe, prepared, trainer)
    record = folder.read_record()
    try:
        found = checkpoint.newest(folder.path)
        if found is not None:
            trainer.restore(found[1])
            display.say(f"resumed at step {trainer.step:,} of {trainer.total:,}")
        elif fabric.is_global_zero:
            artifacts_of_views(folder.path, maker)
        if trainer.step < trainer.total:
            trainer.train()
        trainer.finish()
    except BaseException as error:
        status = "interrupted" if isinstance(error, Interrupted | KeyboardInterrupt) else "failed"
        folder.note(status=status, seconds=record.get("seconds", 0) + time.monotonic() - began, steps=trainer.step)
        raise
    seconds = record.get("seconds", 0) + time.monotonic() - began
    folder.note(status="finished", seconds=seconds, steps=trainer.step)
    if fabric.is_global_zero:
        _after(folder, prepared, objective, maker, root)
        display.say(f"done in {duration(seconds)}: {folder.path}")


def _begin(folder: RunFolder, recipe: config.Recipe, prepared: Prepared, trainer: Trainer) -> None:
    from relatum.files import write_text

    if not trainer.fabric.is_global_zero:
        return
    write_text(folder.recipe, recipe.to_toml())
    folder.note(
        status="running",
        started=folder.read_record().get("started") or time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        images=len(prepared.images),
        classes=list(prepared.images.classes),
        total_steps=trainer.total,
        command=shlex.join(["relatum", *sys.argv[1:]]) if Path(sys.argv[0]).name.startswith("relatum") else None,
        skipped=[{"path": s.path, "reason": s.reason} for s in prepared.images.skipped],
        **provenance.record(),
    )


def _announce(prepared: Prepared, maker: BatchMaker, objective: objectives.Objective, display: Display) -> None:
    """A few lines on what will run."""
    recipe, images = prepared.recipe, prepared.images
    K, M = recipe.views.number, min(recipe.train.batch_size, len(images))
    parameters = sum(p.numel() for p in objective.backbone.parameters())
    pairs = f", {M * (K * K - K):,} pairs a step" if recipe.method == "relational" else ""
    held = f" ({len(prepared.validation):,} held out)" if prepared.validation is not None else ""
    display.say(f"data      {recipe.data.name}: {len(images):,} images of {recipe.data.side} × {recipe.data.side}{held}")
    display.say(f"method    {recipe.method} ({recipe.preset} preset), {K} view(s) of {M} images{pairs}")
    display.say(f"backbone  {recipe.backbone.name}, {parameters:,} parameters")
    where = f"{recipe.run.device}, {recipe.run.threads} thread(s), {recipe.run.kernels} kernels"
    display.say(f"training  {recipe.train.epochs} epoch(s) of {maker.steps_per_epoch:,} steps on {where}, seed {recipe.seed}")
    if prepared.chosen:
        display.say(prepared.chosen)
    if images.skipped:
        display.warn(f"{len(images.skipped)} file(s) could not be read and are skipped:")
        for item in images.skipped[:5]:
            display.say(f"  {item.path}: {item.reason}")
        if len(images.skipped) > 5:
            display.say(f"  … and {len(images.skipped) - 5} more, all listed in run.json")
    if maker.dropped:
        display.warn(f"the last mini-batch of each epoch would hold {maker.dropped} image(s), too few; it is dropped.")


def _compile(recipe: config.Recipe, objective: objectives.Objective, maker: BatchMaker, display: Display) -> config.Recipe:
    """Compile the backbone where the recipe says so; a failure is one warning, and the recipe records it."""
    if recipe.run.compile != "on" or recipe.train.epochs == 0:
        return recipe
    side, count = recipe.data.side or 32, recipe.views.number * recipe.train.batch_size
    display.say("compiling the backbone (once; a minute or so the first time)")
    example = torch.zeros(count, 3, side, side).contiguous(memory_format=torch.channels_last)
    objective.to(maker.device)
    failure = compile_backbone(objective, example.to(maker.device))
    if failure is None:
        return recipe
    display.warn(f"torch.compile does not work here, going on without it: {failure}")
    return config.Recipe.from_values({**config.flatten(recipe.tables()), "run.compile": "off"})


def _info(recipe: config.Recipe, num_features: int) -> dict[str, Any]:
    return {
        "backbone": recipe.backbone.name,
        "num_features": num_features,
        "mean": list(recipe.data.mean or ()),
        "std": list(recipe.data.std or ()),
        "side": recipe.data.side,
        "dataset": Path(recipe.data.name).name,
        "method": recipe.method,
        "preset": recipe.preset,
        "version": __version__,
    }


def _clean_features(backbone: nn.Module, images: ImageSet) -> Tensor:
    with torch.compiler.set_stance("force_eager"):
        return torch.from_numpy(features.extract(backbone, images))


def _monitor(prepared: Prepared, root: Any) -> Callable[[nn.Module], Mapping[str, float]] | None:
    """kNN accuracy on the held-out part, or on the test split where nothing is held out."""
    recipe, bank = prepared.recipe, prepared.images
    if not recipe.log.knn_every:
        return None
    queries = prepared.validation
    if queries is None:
        queries = data.load(recipe.data.name, "test", root=root)
    if bank.labels is None or queries.labels is None:
        raise InputError(f"--knn-every needs labels to vote with, and {recipe.data.name} has none.")

    def look(backbone: nn.Module) -> Mapping[str, float]:
        assert bank.labels is not None
        assert queries.labels is not None
        z, q = (_clean_features(backbone, part).numpy() for part in (bank, queries))
        return {"knn_accuracy": evaluation.knn_accuracy(z, bank.labels, q, queries.labels)}

    return look


def _after(folder: RunFolder, prepared: Prepared, objective: objectives.Objective, maker: BatchMaker, root: Any) -> None:
    """What only the trained objective can tell: its own classifier's score, and the pairs that its head is surest of."""
    evaluation.score_classifier(folder.path, objective, prepared, root=root)
    artifacts_of_pairs(folder.path, objective, maker)


def evaluate(
    protocol: str,
    run: str | os.PathLike[str],
    *,
    data: str | Path,
    split: str = "test",
    **options: Any,
) -> Result:
    """Score a run by a protocol: linear, knn, finetune, retrieval or tsne. See `relatum evaluate --help`."""
    return evaluation.evaluate(protocol, Path(run), data=_data_name(data), split=split, **options)


def embed(backbone: str | os.PathLike[str] | nn.Module, data: str | Path, **options: Any) -> NDArray[np.float32]:
    """The (N, d) float32 representations of all images of `data`."""
    return evaluation.embed(backbone, data, **options)


def search(run: str | os.PathLike[str], gallery: str | Path, queries: Sequence[str | Path], **options: Any) -> Any:
    """The images of `gallery` nearest to each query."""
    return evaluation.search(run, gallery, queries, **options)
