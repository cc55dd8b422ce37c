"""What the command line and Python users call: the parts put together, in the order of the data flow."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import nn

from relatum import config, evaluation, registry
from relatum.errors import InputError
from relatum.evaluation import Result
from relatum.runs import ledger
from relatum.runs.folder import RunFolder, read_recipe
from relatum.runs.weights import load_backbone
from relatum.system.progress import Display
from relatum.training import resolve
from relatum.version import __version__

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
        return read_recipe(self.path)

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
        **flags: the flags of `relatum pretrain`: method, views, batch_size, epochs, seed, preset, init, device,
            devices, threads, precision, compile, labels, val_fraction, limit_train, side, strict, knn_every.
    """
    for name in flags:
        if name not in FLAGS:
            raise TypeError(f"pretrain() got an unexpected keyword {name!r}; known: {', '.join(FLAGS)}")
    if resume and overwrite:
        raise InputError("--resume continues a run and --overwrite replaces it: give one of them.")
    own = backbone if isinstance(backbone, nn.Module) else None
    flags["backbone"] = f"object:{type(own).__name__}" if own is not None else backbone
    values = {FLAGS[name]: value for name, value in flags.items()}
    if values.get("init") is not None:
        values["init"] = str(Path(values["init"]).resolve())  # a resume may be started from elsewhere
    values["data.name"] = None if data is None else _data_name(data)
    texts = set if not isinstance(set, Mapping) else [f"{key}={value}" for key, value in set.items()]
    draft = config.draft(recipe_file=recipe, sets=texts, flags=values)
    goes_on = resume and out is not None and RunFolder(out).exists()  # then the run's own recipe names its data
    if not draft.get("data.name") and not goes_on:
        raise InputError("no data: name a dataset (`relatum list datasets`) or a folder of images.")
    folder = RunFolder(out if out is not None else Path("runs") / Path(str(draft.get("data.name"))).name)
    worker = int(os.environ.get("LOCAL_RANK", "0")) > 0  # a further process of a data-parallel run: the first one leads
    display = Display(quiet=quiet or worker)
    with nullcontext() if worker else folder.lock():
        replaced = overwrite and folder.exists()  # it goes only when the new run is about to begin
        if folder.exists() and not (resume or overwrite or worker):
            raise InputError(f"{folder.path} already holds a run: --resume continues it, --overwrite replaces it.")
        if folder.exists() and folder.finished() and not replaced:
            display.say(f"{folder.path} is finished; nothing to do.")
            return Run(folder.path)
        if folder.exists() and not replaced:
            prepared = resolve.reload(_resumed_recipe(folder, draft, display), root=root)
        else:
            prepared = resolve.prepare(draft, root=root)
        from relatum.training import (
            run as training,  # Lightning Fabric takes a second to import, which only training needs
        )

        training.train(prepared, folder, display, own=own, root=root, replace=replaced)
    return Run(folder.path)


def _data_name(data: str | Path) -> str:
    """A dataset's name as it is; a folder as an absolute path, so that a resume finds it from anywhere."""
    if str(data) in registry.DATASETS or not Path(data).exists():
        return str(data)
    return str(Path(data).resolve())


def _resumed_recipe(folder: RunFolder, draft: config.Draft, display: Display) -> config.Recipe:
    """The recipe that the run began with; a flag that contradicts it is refused, since the bits would change."""
    began = folder.read_recipe()
    before = config.flatten(began.tables())
    asked = {key: value for key, value in draft.values.items() if value != "auto"}
    now = config.flatten(config.Recipe.from_values({**before, **asked}).tables())
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


def evaluate(
    protocol: str,
    run: str | os.PathLike[str],
    *,
    data: str | Path,
    split: str = "test",
    **options: Any,
) -> Result:
    """Score a run by a protocol: linear, knn, finetune, retrieval or tsne. See `relatum evaluate --help`.

    An entry of the ledger whose weights were kept is unpacked to a run folder under `runs` first.
    """
    if options.get("seed") is not None:
        options["seed"] = config.seed(options["seed"])
    path = Path(run)
    if ledger.is_entry_file(path):
        path = ledger.unpack(path)
    folder = RunFolder(path)
    if folder.exists() and not folder.finished():
        step = folder.read_record().get("steps", "an early step")
        Display().warn(f"{folder.path} is not finished: what is scored is its newest checkpoint (step {step}).")
    return evaluation.evaluate(protocol, folder.path, data=_data_name(data), split=split, **options)


def embed(backbone: str | os.PathLike[str] | nn.Module, data: str | Path, **options: Any) -> NDArray[np.float32]:
    """The (N, d) float32 representations of all images of `data`."""
    return evaluation.embed(backbone, data, **options)


def search(run: str | os.PathLike[str], gallery: str | Path, queries: Sequence[str | Path], **options: Any) -> Any:
    """The images of `gallery` nearest to each query."""
    return evaluation.search(run, gallery, queries, **options)


def report(runs: Sequence[str | os.PathLike[str]], *, out: str | Path | None = None) -> Path:
    """One self-contained HTML page of one run, or of several side by side."""
    from relatum.report import build

    paths = [Path(run) for run in runs]
    return build(paths, Path(out) if out is not None else RunFolder(paths[0]).report)
