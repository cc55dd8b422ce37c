"""From what the user asked for to a complete recipe and its data: every `auto` is resolved here, once."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from relatum import data, registry
from relatum.config import Draft, Recipe, Values
from relatum.config.methods import METHODS
from relatum.data import ImageSet
from relatum.errors import InputError
from relatum.kernels import numba_available
from relatum.version import __version__
from relatum.views import POLICIES

# A compile takes about a minute and saves about a fifth of a step: it pays from some five minutes of training on.
# Two million 32×32 views are about that for Conv-4 on two cores; heavier backbones reach it with fewer.
_COMPILE_VIEWS = 2_000_000
# What `pretrain FOLDER` aims at on a CPU: about half an hour of Conv-4 on 32×32 views.
_FOLDER_VIEWS = 12_000_000


@dataclass(frozen=True)
class Prepared:
    """A complete recipe with its data.

    Attributes:
        recipe: every default and every `auto` resolved.
        images: the training set, without the held-out part.
        validation: the held-out part, or None.
        labels: what training may see: (N,) with -1 for hidden, or None for no labels at all.
        chosen: words on what was chosen for this machine.
        notes: words on what was asked for and does not hold.
    """

    recipe: Recipe
    images: ImageSet
    validation: ImageSet | None
    labels: NDArray[np.int64] | None
    chosen: str = ""
    notes: tuple[str, ...] = ()


def prepare(draft: Draft, *, root: Any = None) -> Prepared:
    """Load the data and resolve the recipe."""
    asked = draft.recipe()
    method = METHODS[asked.method]
    find_device(asked.run.device)
    registry.find(POLICIES, "policy (views.policy):", asked.views.policy)
    check_extras(asked)
    check_method(asked)
    if method.uses_labels and not asked.data.labels and "data.labels" in draft.said:
        raise InputError(f"--labels 0: {asked.method} needs labels. Leave --labels out to show it all of them.")
    whole = _load(asked, root)
    images, validation = divide(whole, asked)
    if len(images) < 2:
        raise InputError(f"{asked.data.name} holds {len(images)} image(s); training needs at least two.")
    found: Values = {
        "version": __version__,
        "data.side": whole.side,
        "data.mean": whole.mean,
        "data.std": whole.std,
        "data.pad": whole.pad,
        "data.images": len(images),
        "data.fingerprint": fingerprint(images.images),
    }
    chosen = {}
    if asked.data.name not in registry.DATASETS and method.trains:
        chosen = {k: v for k, v in _folder_choices(draft, images, whole.side).items() if k not in draft.values}
    recipe = draft.recipe({**found, **chosen})
    recipe = Draft({**draft.values, **resolve_machine(recipe)}).recipe({**found, **chosen})
    return Prepared(recipe, images, validation, visible_labels(images, recipe), _words(chosen), _notes(draft, recipe))


def reload(recipe: Recipe, *, root: Any = None) -> Prepared:
    """The data of a complete recipe again; other data than the run began with is refused."""
    find_device(recipe.run.device)
    check_extras(recipe)
    check_method(recipe)
    images, validation = divide(_load(recipe, root), recipe)
    if fingerprint(images.images) != recipe.data.fingerprint or len(images) != recipe.data.images:
        raise InputError(
            f"the images of {recipe.data.name} are not those this run began with "
            f"({recipe.data.images:,} then, {len(images):,} now, or other content): start a new run."
        )
    return Prepared(recipe, images, validation, visible_labels(images, recipe))


def _load(recipe: Recipe, root: Any) -> ImageSet:
    """The images at the recipe's side, with its mean and standard deviation where it sets them."""
    section = recipe.data
    return data.load(
        section.name,
        section.split,
        root=root,
        side=section.side,
        mean=section.mean,
        std=section.std,
        strict=section.strict,
    )


def check_extras(recipe: Recipe) -> None:
    """What the recipe needs beyond the core is there."""
    if recipe.log.tensorboard and importlib.util.find_spec("tensorboard") is None:
        raise InputError("log.tensorboard needs the extra: pip install 'relatum[tensorboard]'.")


def check_method(recipe: Recipe) -> None:
    """The method can learn from such views and such labels; seen before an image is decoded."""
    method = METHODS[recipe.method]
    if recipe.data.labels and not (method.uses_labels or method.semi_supervised):
        able = ", ".join(name for name, row in METHODS.items() if row.uses_labels or row.semi_supervised)
        raise InputError(f"--labels: {recipe.method} cannot use labels; these can: {able}.")
    if recipe.train.epochs:
        registry.resolve(method.target).check(recipe)


def divide(whole: ImageSet, recipe: Recipe) -> tuple[ImageSet, ImageSet | None]:
    """The part that is learned from and the part held out: seeded, class-balanced; then the limit."""
    images, validation = whole, None
    if recipe.data.val_fraction > 0:
        images, validation = data.split_validation(whole, recipe.data.val_fraction, recipe.seed)
    if recipe.data.limit_train:
        images = data.limit(images, recipe.data.limit_train, recipe.seed)
    return images, validation


def visible_labels(images: ImageSet, recipe: Recipe) -> NDArray[np.int64] | None:
    """The labels that training may see. Unsupervised methods get None: leakage is impossible by default."""
    method = METHODS[recipe.method]
    if not (method.uses_labels or recipe.data.labels):
        return None
    if images.labels is None:
        raise InputError(f"{recipe.data.name} has no labels, and this run needs them ({recipe.method}).")
    if method.uses_labels and not recipe.data.labels:
        return images.labels
    seen = data.labelled_subset(images.labels, recipe.data.labels, recipe.seed)
    return np.where(seen, images.labels, -1)


def fingerprint(images: NDArray[np.uint8]) -> str:
    """A short hash of the shape and of at most 2,048 evenly spaced images."""
    digest = hashlib.sha256(repr(images.shape).encode())
    digest.update(np.ascontiguousarray(images[:: -(-len(images) // 2048) or 1]).tobytes())
    return digest.hexdigest()[:16]


def find_device(wanted: str) -> str:
    """`auto` is CUDA, then Apple's, then the CPU; a device that is not there is an error now."""
    available = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    if wanted == "auto":
        return next(name for name, there in available.items() if there)
    if not available[wanted]:
        there = ", ".join(name for name, yes in available.items() if yes)
        raise InputError(f"--device {wanted} is not available here; there is: {there}.")
    return wanted


def resolve_machine(recipe: Recipe) -> Values:
    """The `run` section, resolved."""
    device = find_device(recipe.run.device)
    if recipe.run.precision == "16-mixed" and device == "cpu":
        raise InputError("--precision 16-mixed needs a GPU; a CPU has bf16-mixed.")
    kernels = recipe.run.kernels
    if kernels == "auto":
        kernels = "numba" if device == "cpu" and numba_available() else "torch"
    compile = recipe.run.compile
    if compile == "auto" and recipe.backbone.name == "conv4" and kernels == "numba" and recipe.run.precision == "32":
        compile = "off"  # it has fused kernels of its own, twice as fast as the compiled modules
    if compile == "auto":
        views = recipe.train.epochs * (recipe.data.images or 0) * recipe.views.number
        work = views * ((recipe.data.side or 32) / 32) ** 2 * (1 if recipe.backbone.name == "conv4" else 8)
        compile = "on" if work >= _COMPILE_VIEWS and (device == "cuda" or has_compiler()) else "off"
    prefetch = recipe.run.prefetch
    if prefetch == "auto":  # on a CPU the views would only take the cores that the network works on
        prefetch = "off" if device == "cpu" else "on"
    threads = recipe.run.threads or torch.get_num_threads()  # the cores there are, or $OMP_NUM_THREADS
    return {
        "run.device": device,
        "run.compile": compile,
        "run.kernels": kernels,
        "run.prefetch": prefetch,
        "run.threads": threads,
    }


def has_compiler() -> bool:
    """Whether `torch.compile` finds a C++ compiler."""
    return any(shutil.which(name) for name in (os.environ.get("CXX", "g++"), "g++", "clang++", "cl"))


def _folder_choices(draft: Draft, images: ImageSet, side: int) -> Values:
    """Sensible defaults for a folder on this machine."""
    gpu = find_device(draft.recipe().run.device) != "cpu"
    backbone = ("resnet34" if side >= 64 else "resnet32") if gpu else "conv4"
    number = draft.get("views.number", 16 if gpu else 8)
    if draft.get("method", "relational") != "relational":
        number = draft.recipe().views.number
    budget = _FOLDER_VIEWS * (32 / side) ** 2
    epochs = 100 if gpu else int(min(200, max(10, round(budget / (len(images) * int(number))))))
    return {"backbone.name": backbone, "views.number": number, "train.epochs": epochs}


def _notes(draft: Draft, recipe: Recipe) -> tuple[str, ...]:
    epochs = draft.get("train.epochs", 0)
    if METHODS[recipe.method].trains or str(epochs) == "0":
        return ()
    return (f"--epochs {epochs}: {recipe.method} weights are not trained; there are 0 epochs.",)


def _words(chosen: Values) -> str:
    if not chosen:
        return ""
    names = {"backbone.name": "--backbone", "views.number": "--views", "train.epochs": "--epochs"}
    return "chosen for this machine: " + ", ".join(f"{names[key]} {value}" for key, value in chosen.items())
