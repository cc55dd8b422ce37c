"""`Recipe`: all settings of a run, typed, documented and validated. No torch here.

`relatum.config.layers` builds one from defaults, files and flags.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from relatum import registry
from relatum.config.methods import METHODS, PRESETS
from relatum.config.settings import build, setting, table
from relatum.errors import InputError, unknown
from relatum.system import signals
from relatum.system.devices import DEVICES

Values = dict[str, Any]  # dotted keys: {"train.lr": 1e-3}


@dataclass(frozen=True)
class Data:
    """Training data."""

    name: str = setting("", "dataset name, folder of images or shards, or URL of shards")
    split: str = setting("train", "split used for training", choices=("train", "unlabeled"))
    side: int | None = setting(None, "side of a view in pixels", ge=8)
    mean: tuple[float, float, float] | None = setting(None, "channel means that views are normalised with")
    std: tuple[float, float, float] | None = setting(None, "channel standard deviations", gt=0)
    pad: int | None = setting(None, "zero padding of the padded-crop chain", ge=0)
    limit_train: int = setting(0, "use only this many images, class-balanced; 0 uses all", ge=0)
    val_fraction: float = setting(0.0, "fraction of the training set held out for validation", ge=0, le=0.9)
    labels: float = setting(0.0, "fraction of labels visible to semi-supervised training", ge=0, le=1)
    strict: bool = setting(False, "raise an error on unreadable files instead of skipping them")
    storage: str = setting(
        "auto",
        "map decodes all images once into an array on disk; stream decodes them from tar shards whenever they are"
        " needed; auto streams URLs, and shards whose decoded images would take more than a quarter of the disk",
        choices=("auto", "map", "stream"),
    )
    window: int = setting(16384, "streaming: number of images that are shuffled at a time", ge=1)
    lanes: int = setting(
        8, "streaming: shards that are read in parallel; ideally a multiple of the number of processes", ge=1
    )
    cache_gb: float = setting(8.0, "streaming from a URL: disk space of the cache on each machine, in GB", gt=0)
    images: int | None = setting(None, "number of training images", ge=0)
    fingerprint: str = setting("", "hash of the images and labels; resuming with different data is an error")


@dataclass(frozen=True)
class Views:
    """How an image becomes K views."""

    policy: str = setting("relational", "the chain of augmentations")
    number: int = setting(32, "K, views per image", ge=1, le=10_000)
    strength: float = setting(
        1.0, "scales the ranges of the colour jitter (brightness, contrast, saturation, hue)", ge=0, le=1.25
    )
    cutout_area: float | None = setting(
        None, "fraction of a view that cutout blanks (finetune chain); by default the dataset's", gt=0, le=1
    )
    small_number: int = setting(0, "small views per image besides the K views (multi-crop)", ge=0, le=10_000)
    small_side: int | None = setting(None, "side of a small view in pixels; by default half of `data.side`", ge=8)
    small_policy: str = setting("small-crop", "the chain of augmentations of small views")


@dataclass(frozen=True)
class BackboneName:
    """The backbone."""

    name: str = setting(
        "conv4", "backbone name (see `relatum list backbones`), timm:NAME, torchvision:NAME or module:function"
    )


@dataclass(frozen=True)
class Train:
    """Optimisation."""

    epochs: int = setting(200, "number of training epochs", ge=0)
    batch_size: int = setting(128, "M, images per step", ge=1)
    optimizer: str = setting("adam", "the optimiser", choices=("adam", "sgd"))
    lr: float = setting(1e-3, "learning rate", gt=0)
    backbone_lr: float | None = setting(None, "learning rate of the backbone; by default `train.lr`", gt=0)
    momentum: float = setting(0.9, "momentum of SGD", ge=0, le=1)
    weight_decay: float = setting(0.0, "L2 weight decay", ge=0)
    schedule: str = setting(
        "constant",
        "learning rate schedule; step divides by 10 at 50 % and 75 %",
        choices=("constant", "cosine", "step"),
    )
    warmup_epochs: float = setting(0.0, "epochs of linear warm-up", ge=0)
    clip_norm: float = setting(0.0, "maximum gradient norm; 0 disables clipping", ge=0)
    drop_last: bool = setting(False, "drop the last mini-batch of an epoch if it is incomplete")
    sync: str = setting(
        "global",
        "several processes: global computes the loss and batch statistics of the whole mini-batch, as one process"
        " would; local those of each process's part, which is cheaper but a different objective",
        choices=("global", "local"),
    )


@dataclass(frozen=True)
class Machine:
    """Hardware and speed; `auto` is resolved before training starts."""

    device: str = setting("auto", "device", choices=("auto", *sorted(DEVICES)))
    devices: int = setting(1, "number of devices (data-parallel), over all machines", ge=1)
    threads: int | None = setting(None, "CPU threads of each process", ge=1, le=1024)
    precision: str = setting("32", "numeric precision", choices=("32", "bf16-mixed", "16-mixed"))
    compile: str = setting("auto", "compile the backbone", choices=("auto", "on", "off"))
    recompute: bool = setting(
        False, "activation checkpointing: less memory, a third more time, the same results (not for fused Conv-4)"
    )
    kernels: str = setting("auto", "implementation of views and pairs", choices=registry.KERNELS)
    prefetch: str = setting("auto", "prepare views in a background thread", choices=("auto", "on", "off"))


@dataclass(frozen=True)
class Checkpoint:
    """How often checkpoints are saved."""

    every_steps: int = setting(
        0, "steps between checkpoints; with 0, checkpoints are saved by time and at the end of each epoch", ge=0
    )
    every_seconds: float = setting(120.0, "maximum seconds between checkpoints", gt=0)
    signal: str = setting(
        "SIGUSR1", "additional signal that saves and stops, like SIGTERM; none ignores SIGUSR1", choices=signals.NAMES
    )


@dataclass(frozen=True)
class Log:
    """What is logged during training."""

    every_steps: int = setting(10, "steps between two rows of metrics.jsonl", ge=1)
    knn_every: int = setting(0, "epochs between two kNN evaluations; 0 disables them", ge=0)
    tensorboard: bool = setting(False, "also write TensorBoard files (extra `tensorboard`)")
    wandb: bool = setting(False, "also log to Weights & Biases (extra `wandb`; respects `WANDB_MODE`)")


SECTIONS: dict[str, type] = {
    "data": Data,
    "views": Views,
    "backbone": BackboneName,
    "train": Train,
    "run": Machine,
    "checkpoint": Checkpoint,
    "log": Log,
}
TOP: dict[str, Any] = {"version": "", "method": "relational", "preset": "paper", "seed": 1, "init": ""}


@dataclass(frozen=True)
class Recipe:
    """The complete settings of a run.

    `objective` is an instance of its method's options; a plain table where that method is not registered here.
    """

    method: str
    preset: str
    seed: int
    init: str
    data: Data
    views: Views
    backbone: BackboneName
    objective: Any
    train: Train
    run: Machine
    checkpoint: Checkpoint
    log: Log
    version: str = ""

    @classmethod
    def from_values(cls, values: Mapping[str, Any], *, finished: bool = False) -> Recipe:
        """A recipe from dotted keys, every one checked.

        Args:
            values: settings by dotted key.
            finished: it is the recipe of an existing run, so its method need not be registered in this process.
        """
        tables: dict[str, Values] = {name: {} for name in (*SECTIONS, "objective")}
        top = dict(TOP)
        for key, value in values.items():
            section, dot, name = key.partition(".")
            if not dot and key in TOP:
                top[key] = value
            elif dot and section in tables:
                tables[section][name] = value
            else:
                raise unknown("key", key, all_keys(str(values.get("method", TOP["method"]))))
        if top["preset"] not in PRESETS:
            raise unknown("preset", str(top["preset"]), PRESETS)
        top["seed"] = seed(top["seed"])
        sections: dict[str, Any] = {name: build(kind, tables[name], name) for name, kind in SECTIONS.items()}
        objective: Any = tables["objective"]
        if not finished or top["method"] in METHODS:
            method = registry.find(METHODS, "method", str(top["method"]))
            objective = build(method.options, objective, "objective")
        if ":" not in sections["backbone"].name:
            registry.find(registry.BACKBONES, "backbone", sections["backbone"].name)
        return cls(**top, **sections, objective=objective)

    def tables(self) -> dict[str, Any]:
        """The recipe as nested TOML tables."""
        result: dict[str, Any] = {name: getattr(self, name) for name in TOP}
        for name in (*SECTIONS, "objective"):
            result[name] = table(getattr(self, name))
        return result

    def to_toml(self) -> str:
        """The recipe as a TOML document."""
        import tomli_w

        return tomli_w.dumps(self.tables())


def seed(value: Any) -> int:
    """A random seed from a number or a string; an integer from 0 to 2**63 - 1."""
    try:
        number = int(value)
    except (TypeError, ValueError, OverflowError):
        number = None
    if number is None or isinstance(value, bool) or (isinstance(value, float) and number != value):
        raise InputError(f"seed = {value!r} is not a whole number.")
    if not 0 <= number < 2**63:
        raise InputError(f"seed = {number} is out of range: a seed lies between 0 and 2**63 - 1.")
    return number


def all_keys(method: str = TOP["method"]) -> list[str]:
    """Every key that `--set` can change."""
    row = METHODS.get(method, METHODS[TOP["method"]])
    sections = {**SECTIONS, "objective": row.options}
    return [*TOP, *(f"{name}.{f.name}" for name, kind in sections.items() for f in fields(kind))]
