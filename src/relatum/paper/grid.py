"""The grid behind the tables: a `Pretraining` produces weights, an `Evaluation` produces one result from them.

Both are plain values with a stable, readable id, so two cells that need the same pretraining name the same run and it
is trained once. A condition (the keys of a row and a column) becomes evaluations in `evaluations`; the schedules
are the paper's, as `config.defaults` knows them (200 epochs, 300 on STL-10; mini-batches of 64 for relational
reasoning and 128 for the others; K = 32, but 16 for SlimageNet and for tiny-ImageNet with ResNet-32, and 25 for STL-10
with ResNet-34).
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

from relatum import config
from relatum.config.methods import METHODS
from relatum.config.protocols import PROTOCOLS, FinetuneSettings
from relatum.config.settings import table
from relatum.data import sets
from relatum.data.sets.shapes import SHAPES
from relatum.runs.names import RESULT_ENDING, evaluation_stem

SEEDS = (1, 2, 3)
# Settings that do not change a protocol's figure: how often the test set is looked at, and what is saved.
_NO_EFFECT = ("test_every", "save")

# A random backbone sees no image and does not depend on the dataset. This one needs no download.
RANDOM_DATA = SHAPES.name


@dataclass(frozen=True)
class Scale:
    """What a user changed to make the grid smaller; None leaves the paper's value."""

    views: int | None = None
    epochs: int | None = None
    limit_train: int | None = None


@dataclass(frozen=True)
class Pretraining:
    """One pretraining run: all settings that determine its weights.

    Attributes:
        method, data, backbone, preset, seed: as on the command line.
        views, epochs, batch_size: K, N and M.
        labels: fraction of labels in semi-supervised pretraining.
        val_fraction: part of the training set kept out.
        limit_train: number of training images, or None for all.
        set: overrides of recipe keys, sorted.
    """

    method: str
    data: str
    backbone: str
    views: int
    epochs: int
    batch_size: int
    seed: int
    preset: str = "paper"
    labels: float = 0.0
    val_fraction: float = 0.0
    limit_train: int | None = None
    set: tuple[tuple[str, str], ...] = ()

    @cached_property
    def id(self) -> str:
        """A readable slug and a short hash of all fields: the run's folder name."""
        parts = [self.method] if self.method == "random" else [self.method, self.data]
        parts.append(self.backbone)
        if self.method != "random":
            parts += [f"k{self.views}", f"e{self.epochs}"]
        parts += [f"labels{100 * self.labels:g}"] * bool(self.labels)
        parts += [f"val{100 * self.val_fraction:g}"] * bool(self.val_fraction)
        parts += [f"n{self.limit_train}"] * (self.limit_train is not None)
        parts += [value for _, value in self.set]
        return "-".join([*parts, f"s{self.seed}", _digest(dataclasses.asdict(self))])

    @property
    def all_views(self) -> int:
        """Views per image, small ones included."""
        return self.views + int(dict(self.set).get("views.small_number", 0))

    def recipe(self) -> config.Recipe:
        """The complete recipe of this run, without what depends on the machine and the data."""
        values: dict[str, Any] = {
            "method": self.method,
            "preset": self.preset,
            "seed": self.seed,
            "data.name": self.data,
            "backbone.name": self.backbone,
        }
        if METHODS[self.method].trains:
            values |= {"views.number": self.views, "train.epochs": self.epochs, "train.batch_size": self.batch_size}
            values |= {"data.labels": self.labels, "data.val_fraction": self.val_fraction}
            values |= {"data.limit_train": self.limit_train or 0}
        return config.Draft({**values, **dict(self.set)}).recipe()

    def arguments(self) -> list[str]:
        """Arguments of the command that trains this run, without `--out` and `--resume`."""
        arguments = ["pretrain", self.data, "--method", self.method, "--backbone", self.backbone]
        if METHODS[self.method].trains:
            arguments += [
                "--views",
                str(self.views),
                "--batch-size",
                str(self.batch_size),
                "--epochs",
                str(self.epochs),
            ]
        arguments += ["--seed", str(self.seed), "--preset", self.preset]
        arguments += ["--labels", f"{self.labels:g}"] * bool(self.labels)
        arguments += ["--val-fraction", f"{self.val_fraction:g}"] * bool(self.val_fraction)
        arguments += ["--limit-train", str(self.limit_train)] * (self.limit_train is not None)
        for key, value in self.set:
            arguments += ["--set", f"{key}={value}"]
        return arguments


@dataclass(frozen=True)
class Evaluation:
    """One result file of a run.

    Attributes:
        run: the pretraining it reads.
        protocol: `linear`, `finetune`, `retrieval`, `tsne`; or `classifier`, which pretraining writes by itself
            for the supervised method, so that there is nothing to run.
        dataset, split, tag: they name the result file.
        epochs: of the protocol, where it has any.
        limit_train: labelled images that the protocol learns from, or None for all.
    """

    run: Pretraining
    protocol: str
    dataset: str
    split: str = "test"
    tag: str = ""
    epochs: int | None = None
    limit_train: int | None = None

    @property
    def stem(self) -> str:
        """The name of the result file, without its ending."""
        return evaluation_stem(self.protocol, self.dataset, self.split, self.tag)

    @property
    def file(self) -> str:
        """The name of the result file."""
        return f"{self.stem}{RESULT_ENDING}"

    @cached_property
    def id(self) -> str:
        """The run's id and the result file's name without its ending."""
        return f"{self.run.id}/{self.stem}"

    @property
    def settings(self) -> dict[str, Any]:
        """The conditions that its result must record; None is a key that must be absent.

        The score of a supervised run's classifier is decided by its training alone.
        """
        if self.protocol not in PROTOCOLS:
            return {}
        same_images = self.split == "val" or sets.same_images(self.run.data, self.dataset)
        wanted = {
            **protocol_settings(self.protocol, self.dataset),
            "seed": self.run.seed,
            "limit_train": self.limit_train,
        }
        wanted |= {"val_fraction": self.run.val_fraction if same_images else 0.0}
        wanted |= {"epochs": self.epochs} if self.epochs is not None else {}
        return wanted

    def arguments(self, run_dir: str) -> list[str]:
        """Arguments of the command that produces this result."""
        arguments = ["evaluate", self.protocol, run_dir, "--data", self.dataset, "--split", self.split]
        arguments += ["--epochs", str(self.epochs)] * (self.epochs is not None)
        arguments += ["--seed", str(self.run.seed)]
        arguments += ["--tag", self.tag] * bool(self.tag)
        arguments += ["--set", f"limit_train={self.limit_train}"] * (self.limit_train is not None)
        return arguments


def protocol_settings(protocol: str, dataset: str) -> dict[str, Any]:
    """The settings behind a figure of the paper: the protocol's defaults with the preset `paper`."""
    settings = PROTOCOLS[protocol].settings()
    if isinstance(settings, FinetuneSettings):
        settings = settings.resolve("paper", dataset)
    return {key: value for key, value in table(settings).items() if key not in _NO_EFFECT}


def default_epochs(protocol: str) -> int | None:
    """The protocol's default number of epochs; None where it trains nothing."""
    return getattr(PROTOCOLS[protocol].settings, "epochs", None) if protocol in PROTOCOLS else None


def _digest(values: Mapping[str, Any]) -> str:
    text = json.dumps(values, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:8]


# ---------------------------------------------------------------------------------------------- from conditions to runs


def run_of(condition: Mapping[str, Any], seed: int, scale: Scale) -> Pretraining:
    """The pretraining that a condition asks for."""
    method, data, backbone = condition["method"], condition["pretrain"], condition["backbone"]
    supervised = method == "supervised"
    if method == "random" or (supervised and condition["protocol"] == "finetune"):
        # Supervised on STL-10 is the finetune schedule and chain from scratch: finetuning of random weights.
        return Pretraining("random", RANDOM_DATA, backbone, views=1, epochs=0, batch_size=1, seed=seed)
    if supervised and sets.same_images(data, condition["dataset"]):
        data = condition["dataset"]  # coarse labels: trained on them
    paper = _paper_recipe(method, data, backbone)
    views = condition.get("views", paper.views.number)
    if scale.views is not None and method == "relational" and "views" not in condition:
        views = scale.views  # where the table studies K (its condition names it), K is not ours to change
    return Pretraining(
        method=method,
        data=data,
        backbone=backbone,
        views=views,
        epochs=scale.epochs if scale.epochs is not None else condition.get("epochs", paper.train.epochs),
        batch_size=paper.train.batch_size,
        seed=seed,
        labels=float(condition.get("labels", 0.0)) if method == "relational" else 0.0,
        val_fraction=condition.get("val_fraction", 0.0),
        limit_train=scale.limit_train,
        set=_overrides(paper, condition.get("set", {})),
    )


@cache
def _paper_recipe(method: str, data: str, backbone: str) -> config.Recipe:
    return config.Draft({"method": method, "data.name": data, "backbone.name": backbone}).recipe()


def _overrides(paper: config.Recipe, values: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Overrides that differ from the method's defaults: `aggregation = cat` is the default and no condition."""
    defaults = config.flatten(paper.tables())
    return tuple(sorted((k, v) for k, v in values.items() if defaults.get(k) != v))


def evaluations(condition: Mapping[str, Any], seeds: Sequence[int], scale: Scale) -> tuple[Evaluation, ...]:
    """The results behind one cell, one per seed.

    Args:
        condition: method, pretrain (dataset), dataset (evaluated), backbone, protocol and what a table adds to them.
        seeds: the seeds asked for; pictures name their own.
        scale: what the user changed.
    """
    evaluations = []
    for seed in condition.get("seeds", seeds):
        run = run_of(condition, seed, scale)
        protocol, dataset = condition["protocol"], condition["dataset"]
        if run.method == "supervised" and protocol == "linear" and run.data == dataset:
            protocol = "classifier"  # scored by the classifier it was trained with: no probe
        split = condition.get("split", "test")
        if protocol != "finetune":  # only finetuning takes long enough to be scaled down
            evaluations.append(Evaluation(run, protocol, dataset, split, epochs=default_epochs(protocol)))
            continue
        whole = FinetuneSettings.epochs
        epochs = min(whole, scale.epochs or whole)
        tag = "-".join([f"e{epochs}"] * (epochs < whole) + [f"n{scale.limit_train}"] * (scale.limit_train is not None))
        evaluations.append(Evaluation(run, protocol, dataset, split, tag, epochs, scale.limit_train))
    return tuple(evaluations)
