"""Settings for particular presets, methods, datasets and backbones, as rows of a table.

A row applies to a run that matches all its fields; an empty field matches everything. Later rows override earlier
ones, and all override the method's defaults (`relatum.config.methods`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Condition:
    """A row of the table.

    Attributes:
        preset: a preset's name; a row without one has settings of the paper and applies to every preset.
        method: a method's name.
        dataset: a dataset's name.
        backbone: a backbone's name.
        values: recipe keys and their values.
    """

    preset: str = ""
    method: str = ""
    dataset: str = ""
    backbone: str = ""
    values: Mapping[str, Any]

    def matches(self, preset: str, method: str, dataset: str, backbone: str) -> bool:
        """Whether the row applies to a run."""
        return (
            self.preset in ("", preset)
            and self.method in ("", method)
            and self.dataset in ("", dataset)
            and self.backbone in ("", backbone)
        )


# What the rows of the preset `fast` have in common: half the colour jitter, and a learning rate that falls to zero.
_FAST = {"views.strength": 0.5, "train.schedule": "cosine", "train.warmup_epochs": 1.0}

CONDITIONS: tuple[Condition, ...] = (
    # K is 32 except for these (section 4, Implementation).
    Condition(method="relational", dataset="slimagenet", values={"views.number": 16}),
    Condition(method="relational", dataset="tiny-imagenet", backbone="resnet32", values={"views.number": 16}),
    Condition(method="relational", dataset="stl10", backbone="resnet34", values={"views.number": 25}),
    Condition(dataset="stl10", values={"train.epochs": 300}),
    # Supervised on STL-10: from scratch with the schedule and the augmentations of finetuning.
    Condition(
        method="supervised",
        dataset="stl10",
        values={
            "train.epochs": 100,
            "train.optimizer": "adam",
            "train.batch_size": 32,
            "train.lr": 1e-3,
            "train.backbone_lr": 1e-4,
            "views.policy": "finetune",
        },
    ),
    # The preset `fast`: the best settings found for less than an hour on two CPU cores; docs/log.md has the trials.
    # Both methods see 40 million views of CIFAR-10.
    Condition(
        preset="fast",
        method="relational",
        values={
            "views.number": 8,
            "objective.negatives_per_positive": 8,
            "train.epochs": 100,
            **_FAST,
        },
    ),
    Condition(
        preset="fast",
        method="simclr",
        values={
            "views.number": 2,
            "objective.temperature": 0.2,
            "train.epochs": 400,
            **_FAST,
        },
    ),
    *(
        Condition(preset="fast", method=method, backbone="conv4", values={"train.lr": 4e-3})
        for method in ("relational", "simclr")
    ),
)


def values(preset: str, method: str, dataset: str, backbone: str) -> dict[str, Any]:
    """The settings for a run, from all rows that apply to it."""
    result: dict[str, Any] = {}
    for row in CONDITIONS:
        if row.matches(preset, method, dataset, backbone):
            result |= row.values
    return result


def has_preset(preset: str, method: str) -> bool:
    """Whether a row sets something for this preset and method."""
    return any(row.preset == preset and row.method == method for row in CONDITIONS)
