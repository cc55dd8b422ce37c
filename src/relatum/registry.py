"""The tables of backbones and datasets, and how a row's code is imported. No torch here.

A new backbone or dataset is one file and one row; the table of methods is `relatum.config.methods`. A row names its
code as `module:attribute`; it is imported only when it is used, so `relatum --help` and `relatum list` stay instant.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from relatum.errors import InputError, on_command_line, unknown

KERNELS = ("auto", "numba", "torch", "reference")  # implementations of views and pairs; auto picks one

# ------------------------------------------------------------------------------------------------------- backbones


@dataclass(frozen=True)
class Backbone:
    """A row of the table of backbones.

    Attributes:
        target: the function that builds it, `module:attribute`.
        title: its name as the paper writes it.
        summary: one line of description.
        num_features: size of its representation.
        parameters: number of its parameters, without a classifier.
        multiply_adds: of one forward pass of a 32 x 32 image; only estimates of training time use it.
    """

    target: str
    title: str
    summary: str
    num_features: int
    parameters: int
    multiply_adds: float = 75e6


BACKBONES: dict[str, Backbone] = {
    "conv4": Backbone("relatum.backbones.conv4:conv4", "Conv-4", "four convolution blocks", 64, 24_648, 1.1e6),
    "resnet8": Backbone(
        "relatum.backbones.resnet_small:resnet8", "ResNet-8", "small ResNet, 16-32-64 channels", 64, 77_392, 12.5e6
    ),
    "resnet32": Backbone(
        "relatum.backbones.resnet_small:resnet32", "ResNet-32", "small ResNet, 16-32-64 channels", 64, 466_256, 69e6
    ),
    "resnet56": Backbone(
        "relatum.backbones.resnet_small:resnet56", "ResNet-56", "small ResNet, 16-32-64 channels", 64, 855_120, 126e6
    ),
    "resnet34": Backbone(
        "relatum.backbones.resnet34:resnet34", "ResNet-34", "the standard ResNet-34", 512, 21_284_672, 75e6
    ),
}

LIBRARIES = ("timm", "torchvision")  # `timm:NAME` and `torchvision:NAME` are backbones too
_MODEL = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.]*")

# -------------------------------------------------------------------------------------------------------- datasets


# The facts about each dataset are in its file.
DATASETS: dict[str, str] = {
    "cifar10": "relatum.data.sets.cifar:CIFAR10",
    "cifar100": "relatum.data.sets.cifar:CIFAR100",
    "cifar100-20": "relatum.data.sets.cifar:CIFAR100_20",
    "stl10": "relatum.data.sets.stl10:STL10",
    "tiny-imagenet": "relatum.data.sets.tiny_imagenet:TINY_IMAGENET",
    "slimagenet": "relatum.data.sets.slimagenet:SLIMAGENET",
    "shapes": "relatum.data.sets.shapes:SHAPES",
}

IN_MEMORY = "images"  # stands for the name of images that were passed from Python

# --------------------------------------------------------------------------------------------------------- look-ups


def find(table: Mapping[str, Any], what: str, name: str) -> Any:
    """A row by its name, or an error with the nearest name."""
    if name not in table:
        raise unknown(what, name, table)
    return table[name]


def parse_library(name: str) -> tuple[str, str, bool]:
    """`timm:NAME` or `torchvision:NAME`, with `/small` for a small stem, as (library, model, small).

    Raises:
        InputError: the name is not a plain model name (timm's `hf-hub:` names download files).
    """
    library, _, rest = name.partition(":")
    model, slash, ending = rest.partition("/")
    if library not in LIBRARIES or not _MODEL.fullmatch(model) or (slash and ending != "small"):
        raise InputError(
            f"backbone '{name}' is not LIBRARY:MODEL or LIBRARY:MODEL/small, with {' or '.join(LIBRARIES)}."
        )
    return library, model, bool(slash)


def backbone_from_file(name: Any, source: object) -> str:
    """A backbone name that was read from a file: only registered names, because `module:function` would run code.

    Args:
        name: what the file says.
        source: the file or run folder, for the message.

    Raises:
        InputError: the name is not in the registry.
    """
    if not isinstance(name, str):
        raise InputError(f"{source} does not say which backbone it is; name it with --backbone.")
    if name in BACKBONES:
        return name
    module, colon, attribute = name.partition(":")
    if module in LIBRARIES:
        parse_library(name)  # a model of timm or torchvision is not code that the file names
        return name
    if not colon:
        raise InputError(f"{source}: {unknown('backbone', name, BACKBONES)}")
    if module == "object":
        hint = "pass it as backbone=..."
        if on_command_line():
            hint = "name a function that builds it, --backbone module:function, or use Python."
        raise InputError(f"{source} was trained with a custom backbone of class {attribute}: {hint}")
    raise InputError(
        f"{source} names the backbone '{name}', which is Python code. relatum does not import code that only a file"
        f" names: if you trust it, give the name yourself (--backbone {name}, or backbone={name!r} in Python)."
    )


def resolve(target: str) -> Any:
    """Import what a row names as `module:attribute`."""
    module, _, attribute = target.partition(":")
    return getattr(importlib.import_module(module), attribute)
