"""The table of evaluation protocols: one row each, with its settings and their defaults. No torch here.

The protocols' code in `relatum.evaluation`, the plan of the paper's tables and the report all read this table.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from relatum.config.settings import setting
from relatum.data import sets

_VAL_FRACTION_HELP = "fraction of the training set held out for validation; by default the run's"
_LIMIT_HELP = "train on only this many labelled images, class-balanced; by default all"


@dataclass(frozen=True)
class LinearSettings:
    """Settings of linear evaluation; the defaults are those of the paper and of the authors' code."""

    epochs: int = setting(100, "passes over the labelled images", ge=1)
    lr: float = setting(1e-3, "learning rate of Adam, constant", gt=0)
    batch_size: int = setting(128, "images per step", ge=1)
    solver: str = setting(
        "adam", "Adam as in the paper, or scikit-learn's logistic regression", choices=("adam", "logistic")
    )
    limit_train: int | None = setting(None, _LIMIT_HELP, ge=1)
    val_fraction: float | None = setting(None, _VAL_FRACTION_HELP, ge=0, le=0.9)


@dataclass(frozen=True)
class KNNSettings:
    """Settings of k-nearest-neighbours evaluation (not in the paper)."""

    k: int = setting(20, "number of neighbours", ge=1)
    metric: str = setting("cosine", "distance between representations", choices=("euclidean", "cosine"))
    weighting: str = setting(
        "exp", "weight of a neighbour's vote: exp(similarity / temperature), or 1", choices=("exp", "uniform")
    )
    temperature: float = setting(0.07, "temperature of the exponential weights", gt=0)
    limit_train: int | None = setting(None, _LIMIT_HELP, ge=1)
    val_fraction: float | None = setting(None, _VAL_FRACTION_HELP, ge=0, le=0.9)


@dataclass(frozen=True)
class FinetuneSettings:
    """Settings of finetuning; settings that are None come from the preset (`FINETUNE_PRESETS`)."""

    epochs: int = setting(100, "passes over the labelled images (the paper's main text says 20)", ge=1)
    preset: str = setting("run", "paper or official; by default the run's", choices=("run", "paper", "official"))
    lr: float | None = setting(None, "learning rate of the classifier", gt=0)
    backbone_lr: float | None = setting(None, "learning rate of the backbone", ge=0)
    batch_size: int | None = setting(None, "images per step", ge=1)
    weight_decay: float | None = setting(None, "L2 weight decay", ge=0)
    schedule: str = setting(
        "preset", "learning rate schedule; step divides by 10 at 50 % and 75 %", choices=("preset", "step", "constant")
    )
    augmentation: str = setting("preset", "augmentation of the training images", choices=("preset", "finetune", "none"))
    cutout_area: float | None = setting(
        None, "fraction of the image that cutout blanks; by default the dataset's", gt=0, le=1
    )
    test_every: int = setting(1, "epochs between two tests, for the curve", ge=1)
    save: bool = setting(False, "save the finetuned network in RUN/finetuned")
    limit_train: int | None = setting(None, _LIMIT_HELP, ge=1)
    val_fraction: float | None = setting(None, _VAL_FRACTION_HELP, ge=0, le=0.9)

    def resolve(self, run_preset: str, dataset: str) -> FinetuneSettings:
        """The settings with everything filled in from the preset and the dataset."""
        preset = run_preset if self.preset == "run" else self.preset
        preset = preset if preset in FINETUNE_PRESETS else "paper"
        missing = {k: v for k, v in FINETUNE_PRESETS[preset].items() if getattr(self, k) in (None, "preset")}
        area = self.cutout_area if self.cutout_area is not None else sets.cutout_area(dataset)
        return replace(self, preset=preset, cutout_area=area, **missing)


FINETUNE_PRESETS: dict[str, dict[str, Any]] = {
    "paper": {
        "lr": 1e-3,
        "backbone_lr": 1e-4,
        "batch_size": 32,
        "weight_decay": 0.0,
        "schedule": "step",
        "augmentation": "finetune",
    },
    "official": {
        "lr": 1e-4,
        "backbone_lr": 1e-3,
        "batch_size": 128,
        "weight_decay": 1e-5,
        "schedule": "constant",
        "augmentation": "none",
    },
}


@dataclass(frozen=True)
class RetrievalSettings:
    """Settings of image retrieval."""

    queries_per_class: int = setting(500, "random queries per class; all images of smaller classes", ge=1)
    gallery: str = setting("test", "images that are searched", choices=("test", "train"))
    seeds: int = setting(1, "number of query samples to average over: seed, seed + 1, ...", ge=1)
    backend: str = setting("exact", "exact search, or faiss (float32) if installed", choices=("exact", "faiss"))
    val_fraction: float | None = setting(None, _VAL_FRACTION_HELP, ge=0, le=0.9)


@dataclass(frozen=True)
class TSNESettings:
    """Settings of t-SNE; the defaults are the paper's."""

    points: int = setting(10_000, "maximum number of images, sampled at random", ge=5)
    iterations: int = setting(1000, "iterations, including 250 of early exaggeration", ge=300)
    perplexity: float = setting(30.0, "perplexity; reduced if there are few points", gt=1)
    learning_rate: float = setting(200.0, "learning rate", gt=0)
    backend: str = setting(
        "sklearn", "scikit-learn, or the faster openTSNE (extra `tsne`)", choices=("sklearn", "opentsne")
    )
    val_fraction: float | None = setting(None, _VAL_FRACTION_HELP, ge=0, le=0.9)


@dataclass(frozen=True)
class Protocol:
    """A row of the table of protocols.

    Attributes:
        target: `module:function`; the function takes a `Task` and returns an `Outcome`.
        title: its name in tables and reports.
        summary: one line of description.
        settings: the dataclass of its settings.
        needs_labels: whether images without labels are an error.
    """

    target: str
    title: str
    summary: str
    settings: type
    needs_labels: bool = True


PROTOCOLS: dict[str, Protocol] = {
    "linear": Protocol(
        target="relatum.evaluation.linear:run",
        title="Linear evaluation",
        summary="a linear classifier on frozen features",
        settings=LinearSettings,
    ),
    "knn": Protocol(
        target="relatum.evaluation.knn:run",
        title="kNN",
        summary="k-nearest-neighbours on frozen features; nothing is trained",
        settings=KNNSettings,
    ),
    "finetune": Protocol(
        target="relatum.evaluation.finetune:run",
        title="Finetuning",
        summary="a copy of the backbone is trained together with a linear classifier",
        settings=FinetuneSettings,
    ),
    "retrieval": Protocol(
        target="relatum.evaluation.retrieval:run",
        title="Retrieval",
        summary="classes of the images nearest to query images",
        settings=RetrievalSettings,
        needs_labels=False,
    ),
    "tsne": Protocol(
        target="relatum.evaluation.tsne:run",
        title="t-SNE",
        summary="a two-dimensional map of the representations",
        settings=TSNESettings,
        needs_labels=False,
    ),
}

CLASSIFIER = "classifier"  # the protocol of the result that supervised pretraining itself writes
TITLES: dict[str, str] = {name: row.title for name, row in PROTOCOLS.items()} | {CLASSIFIER: "Supervised classifier"}
