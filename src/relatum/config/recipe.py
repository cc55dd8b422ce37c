"""`Recipe`: everything that decides a run, typed, documented and validated; TOML in, TOML out. No torch here.

A recipe is built in layers, each overriding the one before: defaults of the paper for the method, preset, dataset and
backbone; values that depend on this machine and the data (`auto`); a recipe file; `--set key=value`; flags. A `Draft`
keeps what the user asked for; `Draft.recipe(detected)` returns the complete recipe, which the run folder stores.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any

from relatum import registry
from relatum.config import conditions
from relatum.config.methods import METHODS, PRESETS
from relatum.config.settings import build, setting, table
from relatum.data import sets
from relatum.errors import InputError, unknown
from relatum.system import signals
from relatum.system.devices import DEVICES

Values = dict[str, Any]  # dotted keys: {"train.lr": 1e-3}


@dataclass(frozen=True)
class Data:
    """Training data."""

    name: str = setting("", "a dataset's name or a folder")
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
        " needed; auto streams URLs, and shards that decoded would take a quarter of the disk",
        choices=("auto", "map", "stream"),
    )
    window: int = setting(16384, "streaming: number of images that are shuffled at a time", ge=1)
    lanes: int = setting(8, "streaming: shards that are read side by side; best a multiple of the processes", ge=1)
    cache_gb: float = setting(8.0, "streaming from a URL: disk space of the cache on each machine, in GB", gt=0)
    images: int | None = setting(None, "number of training images", ge=0)
    fingerprint: str = setting("", "hash of the images and labels; a resume with other data is an error")


@dataclass(frozen=True)
class Views:
    """How an image becomes K views."""

    policy: str = setting("relational", "the chain of augmentations")
    number: int = setting(32, "K, views per image", ge=1)
    strength: float = setting(
        1.0, "factor of the ranges of the colour jitter (brightness, contrast, saturation, hue)", ge=0, le=1.25
    )
    cutout_area: float | None = setting(
        None, "share of a view that cutout blanks (finetune chain); by default the dataset's", gt=0, le=1
    )
    small_number: int = setting(0, "small views per image besides the K views (multi-crop)", ge=0)
    small_side: int | None = setting(None, "side of a small view in pixels; by default half of `data.side`", ge=8)
    small_policy: str = setting("small-crop", "the chain of augmentations of small views")


@dataclass(frozen=True)
class BackboneName:
    """The backbone."""

    name: str = setting("conv4", "a name of `relatum list backbones`, or module:function")


@dataclass(frozen=True)
class Train:
    """Optimisation."""

    epochs: int = setting(200, "passes over the data", ge=0)
    batch_size: int = setting(128, "M, images per step", ge=1)
    optimizer: str = setting("adam", "the optimiser", choices=("adam", "sgd"))
    lr: float = setting(1e-3, "learning rate", gt=0)
    backbone_lr: float | None = setting(None, "learning rate of the backbone; by default `train.lr`", gt=0)
    momentum: float = setting(0.9, "of SGD", ge=0, le=1)
    weight_decay: float = setting(0.0, "L2 weight decay", ge=0)
    schedule: str = setting(
        "constant",
        "learning rate over time; step divides by 10 at 50 % and 75 %",
        choices=("constant", "cosine", "step"),
    )
    warmup_epochs: float = setting(0.0, "linear warm-up at the start", ge=0)
    clip_norm: float = setting(0.0, "maximum gradient norm; 0 disables clipping", ge=0)
    drop_last: bool = setting(False, "drop the last mini-batch of an epoch if it is incomplete")
    sync: str = setting(
        "global",
        "several processes: global computes the loss and batch statistics of the whole mini-batch, as one process"
        " would; local those of each process's part, which is cheaper and another objective",
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
        False, "activation checkpointing: less memory, about a third more time, the same results (not fused Conv-4)"
    )
    kernels: str = setting("auto", "implementation of views and pairs", choices=registry.KERNELS)
    prefetch: str = setting("auto", "prepare views in a background thread", choices=("auto", "on", "off"))


@dataclass(frozen=True)
class Checkpoint:
    """How often checkpoints are saved."""

    every_steps: int = setting(0, "steps between checkpoints; 0 saves by time and at each epoch's end only", ge=0)
    every_seconds: float = setting(120.0, "maximum seconds between checkpoints", gt=0)
    signal: str = setting(
        "SIGUSR1", "a further signal that saves and stops, like SIGTERM; none ignores SIGUSR1", choices=signals.NAMES
    )


@dataclass(frozen=True)
class Log:
    """What is logged during training."""

    every_steps: int = setting(10, "steps between two lines of the metrics file", ge=1)
    knn_every: int = setting(0, "epochs between two kNN evaluations; 0 disables them", ge=0)
    tensorboard: bool = setting(False, "also write TensorBoard files (extra `tensorboard`)")
    wandb: bool = setting(False, "also log to Weights & Biases, as `WANDB_MODE` says (extra `wandb`)")


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
    """A complete run as data.

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
    """A random seed from a number or its text; an integer below 2**63."""
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
    """Every key that `--set` reaches."""
    row = METHODS.get(method, METHODS[TOP["method"]])
    sections = {**SECTIONS, "objective": row.options}
    return [*TOP, *(f"{name}.{f.name}" for name, kind in sections.items() for f in fields(kind))]


def flatten(tables: Mapping[str, Any]) -> Values:
    """Nested TOML tables as dotted keys."""
    flat: Values = {}
    for key, value in tables.items():
        if isinstance(value, Mapping):
            flat.update({f"{key}.{name}": inner for name, inner in value.items()})
        else:
            flat[key] = value
    return flat


def defaults(method: str, preset: str, dataset: str, backbone: str) -> Values:
    """What a preset uses for this condition: the paper's settings, those of the authors' code, or the fast ones."""
    row = registry.find(METHODS, "method", method)
    values: Values = {**row.defaults, **(row.official if preset == "official" else {})}
    if preset == "fast" and not conditions.has_preset(preset, method):
        raise InputError(f"{method} has no preset fast: use paper or official.")
    if row.trains:
        values |= conditions.values(preset, method, row.uses_labels, dataset, backbone)
    if dataset in sets.names():
        facts = sets.get(dataset)
        values |= {"data.side": facts.side, "data.mean": facts.mean, "data.std": facts.std, "data.pad": facts.pad}
        values["data.split"] = "train" if row.uses_labels else facts.pretrain_split
    return values


@dataclass(frozen=True)
class Draft:
    """What the user asked for, before defaults and `auto` are filled in.

    Attributes:
        values: all settings of the user, by dotted key.
        explicit: the keys given by flags and `--set`; a recipe file usually has many more.
    """

    values: Values
    explicit: frozenset[str] = frozenset()

    def get(self, key: str, default: Any = None) -> Any:
        """The user's value of `key`, or `default`."""
        return self.values.get(key, default)

    @cached_property
    def request(self) -> Recipe:
        """What the user asked for with the paper's defaults, before data and machine are known."""
        return self.recipe()

    def recipe(self, detected: Mapping[str, Any] | None = None) -> Recipe:
        """The complete recipe; `detected` (machine, data) overrides the paper's defaults, the user overrides both."""
        get, detected = self.values.get, detected or {}
        method = str(get("method", TOP["method"]))
        preset = get("preset", detected.get("preset", TOP["preset"]))
        backbone = get("backbone.name", detected.get("backbone.name", BackboneName.name))
        base = defaults(method, preset, get("data.name", ""), backbone)
        untrained = {} if METHODS[method].trains else {"train.epochs": 0}
        values = {**base, **detected, **self.values, **untrained}
        if values.get("views.policy") == "finetune":
            values.setdefault("views.cutout_area", sets.cutout_area(str(get("data.name", ""))))
        return Recipe.from_values(values)


def draft(
    *, recipe_file: str | Path | None = None, sets: Iterable[str] = (), flags: Mapping[str, Any] | None = None
) -> Draft:
    """Collect what the user asked for: a recipe file, `key=value` texts, then flags (None is not given)."""
    values: Values = {}
    if recipe_file is not None:
        values.update(flatten(read_toml(Path(recipe_file))))
        detected = {"version", "data.images", "data.fingerprint"}  # facts of that run; this run determines them again
        if (flags or {}).get("data.name") not in (None, values.get("data.name")):
            detected |= {"views.cutout_area"}
            detected |= {f"data.{name}" for name in ("split", "side", "mean", "std", "pad", "storage")}
        values = {key: value for key, value in values.items() if key not in detected}
    explicit: Values = {}
    for text in sets:
        key, equals, value = text.partition("=")
        if not equals:
            raise InputError(f"--set {text!r} has no '='; write --set key=value, for example --set train.lr=0.001.")
        explicit[key.strip()] = value.strip()
    explicit.update({key: value for key, value in (flags or {}).items() if value is not None})
    if "backbone.name" in values and "backbone.name" not in explicit:
        registry.backbone_from_file(values["backbone.name"], recipe_file)
    result = Draft({**values, **explicit}, frozenset(explicit))
    _ = result.request  # an unknown key or a bad value is an error now, not after an hour of decoding
    return result


def read_toml(path: Path) -> dict[str, Any]:
    """A TOML file, or an error in one line."""
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        raise InputError(f"no recipe at {path}.") from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InputError(f"{path} is not a readable TOML file: {error}") from None
