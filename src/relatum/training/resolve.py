"""Completes the recipe from a draft (the user's settings) and loads its data. Every `auto` is resolved here, once."""

from __future__ import annotations

import importlib.util
import os
import shutil
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from relatum import config, data, registry
from relatum.config import Draft, Recipe, Values
from relatum.config.conditions import has_preset
from relatum.config.methods import METHODS
from relatum.config.recipe import Machine
from relatum.data import ImageSet
from relatum.data.fingerprint import fingerprint, matches
from relatum.data.stream.images import is_streamed
from relatum.errors import InputError, missing_package
from relatum.kernels import numba_available
from relatum.system import launcher
from relatum.system.devices import find_device
from relatum.system.text import counted
from relatum.training.resume import FREE_ON_RESUME, is_moved_folder
from relatum.version import __version__
from relatum.views import POLICIES

# Compiling takes about a minute and saves about a fifth of a step: worthwhile from some five minutes of training on.
# Two million 32×32 views are about that for Conv-4 on two cores; heavier backbones reach it with fewer.
_COMPILE_VIEWS = 2_000_000
# What `pretrain FOLDER` aims at on a CPU: about half an hour of Conv-4 on 32×32 views.
_FOLDER_VIEWS = 12_000_000
FOLDER_K = {"cpu": 8, "gpu": 16}  # views per image of a folder


@dataclass(frozen=True)
class Resolved:
    """A complete recipe with its data.

    Attributes:
        recipe: every default and every `auto` resolved.
        images: the training set, without the held-out part.
        validation: the held-out part, or None.
        labels: the labels that training may use: (N,) with -1 for hidden, or None for no labels at all.
        folder_defaults: settings that were picked for a folder of images on this machine.
        warnings: what the user should know before training starts.
    """

    recipe: Recipe
    images: ImageSet
    validation: ImageSet | None
    labels: NDArray[np.int64] | None
    folder_defaults: Values = field(default_factory=dict)
    warnings: tuple[str, ...] = ()


def resolve(draft: Draft, *, root: Path | None = None, images: ImageSet | None = None) -> Resolved:
    """Load the data of a new run and complete its recipe.

    Args:
        draft: what the user asked for.
        root: the data root folder.
        images: images in memory to train on, in place of the data that the draft names.
    """
    request = draft.request
    method = METHODS[request.method]
    check_recipe(request)
    if method.uses_labels and not request.data.labels and "data.labels" in draft.explicit:
        raise InputError(f"--labels 0: {request.method} needs labels. Leave --labels out to train on all of them.")
    whole = _load(request, root) if images is None else images
    images, validation = hold_out(whole, request)
    if len(images) < 2:
        raise InputError(f"{request.data.name} has {counted(len(images), 'image')}; training needs at least two.")
    data_facts: Values = {
        "version": __version__,
        "data.side": whole.side,
        "data.mean": whole.mean,
        "data.std": whole.std,
        "data.pad": whole.pad,
        "data.images": len(images),
        "data.fingerprint": fingerprint(images),
    }
    # `auto` depends on the disk, and a resume must not.
    storage = "stream" if is_streamed(images.images) else "map"
    draft = replace(draft, values={**draft.values, "data.storage": storage})
    folder_defaults: Values = {}
    if request.data.name not in registry.DATASETS and method.trains:
        folder_defaults = _folder_defaults(draft, len(images), whole.side)
    recipe = resolve_machine(draft.recipe({**data_facts, **folder_defaults}))
    labels = visible_labels(images, recipe)
    return Resolved(recipe, images, validation, labels, folder_defaults, _warnings(draft, recipe))


def resume(
    run: Path, started: Recipe, draft: Draft, *, root: Path | None = None, images: ImageSet | None = None
) -> Resolved:
    """The complete recipe of a run that is resumed, and its data.

    Args:
        run: the run folder.
        started: the recipe that the run started with.
        draft: what the user asked for now.
        root: the data root folder.
        images: images in memory that the run is trained on.

    Raises:
        InputError: the draft contradicts the recipe, or the data has changed: the bits would change.
    """
    before = config.flatten(started.tables())
    changes = {key: value for key, value in draft.values.items() if value != "auto"}
    recipe = Recipe.from_values({**before, **changes})
    now = config.flatten(recipe.tables())
    warnings = []
    for key in sorted(before.keys() | now.keys()):
        old, new = before.get(key), now.get(key)
        if old == new or key.startswith(FREE_ON_RESUME) or is_moved_folder(key, new, old):
            continue
        if not key.startswith("run."):
            hint = f"\nIt can start from the weights of this one: --init {run}" if key != "backbone.name" else ""
            raise InputError(f"--resume cannot change {key} from {old!r} to {new!r}; start a new run.{hint}")
        warnings.append(f"{key} was {old} and is now {new}: the resumed run's bits will differ.")
    if started.version != __version__:
        warnings.append(f"this run started with relatum {started.version}; this is {__version__}: bits may differ.")
    if "backbone.name" not in draft.explicit:
        registry.backbone_from_file(recipe.backbone.name, run)
    check_recipe(recipe)
    in_memory = recipe.data.name == registry.IN_MEMORY  # folders have absolute paths
    if in_memory and images is None:
        raise InputError(
            f"{run} was trained on images in memory: resume it in Python with the same images, "
            f"relatum.pretrain(IMAGES, resume=True, out={str(run)!r})."
        )
    try:
        images, validation = hold_out(_load(recipe, root) if images is None else images, recipe)
    except InputError as error:
        if recipe.data.name in registry.DATASETS or Path(recipe.data.name).exists():
            raise
        raise InputError(
            f"{error}\nIf the folder was moved, give its new place: relatum pretrain FOLDER --resume --out {run}"
        ) from None
    if len(images) != recipe.data.images or not matches(images, recipe.data.fingerprint):
        raise InputError(
            f"the images of {recipe.data.name} are not those this run started with "
            f"({recipe.data.images:,} then, {len(images):,} now, or other pixels, labels or file names), "
            "so it cannot be resumed.\nA new run can start from its weights: "
            f"relatum pretrain {'IMAGES' if in_memory else recipe.data.name} --init {run} --out NEW_RUN"
        )
    return Resolved(recipe, images, validation, visible_labels(images, recipe), warnings=tuple(warnings))


def check_recipe(recipe: Recipe) -> None:
    """Refuse a recipe that cannot run here, before an image is decoded."""
    if find_device(recipe.run.device) == "cpu" and recipe.run.precision == "16-mixed":
        raise InputError("--precision 16-mixed needs a GPU; a CPU supports bf16-mixed.")
    registry.find(POLICIES, "policy (views.policy):", recipe.views.policy)
    registry.find(POLICIES, "policy (views.small_policy):", recipe.views.small_policy)
    if recipe.log.wandb and importlib.util.find_spec("wandb") is None:
        raise missing_package("log.wandb", "wandb")
    if recipe.log.tensorboard and importlib.util.find_spec("tensorboard") is None:
        raise missing_package("log.tensorboard", "tensorboard")
    method = METHODS[recipe.method]
    if recipe.data.labels and not (method.uses_labels or method.semi_supervised):
        able = ", ".join(name for name, row in METHODS.items() if row.uses_labels or row.semi_supervised)
        raise InputError(f"--labels: {recipe.method} cannot use labels; these can: {able}.")
    if recipe.train.epochs:
        registry.resolve(method.target).check(recipe)


def _load(recipe: Recipe, root: Path | None) -> ImageSet:
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
        storage=section.storage,
        cache_bytes=int(section.cache_gb * 1e9 / launcher.processes_per_machine(recipe.run.devices)),
        threads=_threads(recipe.run),
    )


def hold_out(whole: ImageSet, recipe: Recipe) -> tuple[ImageSet, ImageSet | None]:
    """The images to train on, and the held-out part: seeded and class-balanced. The limit is applied last."""
    images, validation = whole, None
    if recipe.data.val_fraction > 0:
        images, validation = data.split_validation(whole, recipe.data.val_fraction, recipe.seed)
    if recipe.data.limit_train:
        images = data.limit(images, recipe.data.limit_train, recipe.seed)
    return images, validation


def visible_labels(images: ImageSet, recipe: Recipe) -> NDArray[np.int64] | None:
    """The labels that training may use. Unsupervised methods get None: leakage is impossible by default."""
    method = METHODS[recipe.method]
    if not (method.uses_labels or recipe.data.labels):
        return None
    if images.labels is None:
        raise InputError(f"{recipe.method} training needs labels, and {recipe.data.name} has none.")
    if method.uses_labels and not recipe.data.labels:
        return images.labels
    visible = data.labelled_subset(images.labels, recipe.data.labels, recipe.seed)
    return np.where(visible, images.labels, -1)


def resolve_machine(recipe: Recipe) -> Recipe:
    """The recipe with every `auto` of its `run` section replaced by what suits this machine."""
    run = recipe.run
    device = find_device(run.device)
    kernels, compile, prefetch = run.kernels, run.compile, run.prefetch
    if kernels == "auto":
        kernels = "numba" if device == "cpu" and numba_available() else "torch"
    if compile == "auto" and run.recompute:
        compile = "off"
    if compile == "auto" and recipe.backbone.name == "conv4" and kernels == "numba" and run.precision == "32":
        compile = "off"  # Conv-4 has fused kernels, twice as fast as the compiled modules
    if compile == "auto":
        views = recipe.train.epochs * (recipe.data.images or 0) * recipe.views.number
        work = views * ((recipe.data.side or 32) / 32) ** 2 * (1 if recipe.backbone.name == "conv4" else 8)
        compile = "on" if work >= _COMPILE_VIEWS and (device == "cuda" or has_compiler()) else "off"
    if prefetch == "auto":  # on a CPU the views would only take the cores that the network works on
        prefetch = "off" if device == "cpu" else "on"
    resolved = replace(run, device=device, kernels=kernels, compile=compile, prefetch=prefetch, threads=_threads(run))
    return replace(recipe, run=resolved)


def _threads(run: Machine) -> int:
    """CPU threads of this process: as the recipe says, else an equal share of the cores."""
    return run.threads or max(1, torch.get_num_threads() // launcher.processes_per_share(run.devices))


def has_compiler() -> bool:
    """Whether `torch.compile` can use a C++ compiler."""
    return any(shutil.which(name) for name in (os.environ.get("CXX", "g++"), "g++", "clang++", "cl"))


def _folder_defaults(draft: Draft, images: int, side: int) -> Values:
    """Preset, backbone, views and epochs for a folder on this machine, where the user did not set them."""
    gpu = find_device(draft.request.run.device) != "cpu"
    backbone = ("resnet34" if side >= 64 else "resnet32") if gpu else "conv4"
    views = draft.get("views.number", FOLDER_K["gpu" if gpu else "cpu"])
    if draft.request.method != "relational":
        views = draft.request.views.number
    budget = _FOLDER_VIEWS * (32 / side) ** 2
    epochs = 100 if gpu else int(min(200, max(10, round(budget / (images * int(views))))))
    defaults: Values = {"backbone.name": backbone, "views.number": views, "train.epochs": epochs}
    if has_preset("fast", draft.request.method):
        defaults = {"preset": "fast", **defaults}
    return {key: value for key, value in defaults.items() if key not in draft.values}


def _warnings(draft: Draft, recipe: Recipe) -> tuple[str, ...]:
    epochs = draft.get("train.epochs", 0)
    if METHODS[recipe.method].trains or str(epochs) == "0":
        return ()
    return (f"--epochs {epochs} is ignored: {recipe.method} weights are not trained.",)
