"""`--minutes N`: measure a few steps on this machine, then choose K and the number of epochs that fit.

The values become part of the recipe like any other setting, so a resume or a second run of the recipe does not
measure again and gives the same bits.
"""

from __future__ import annotations

import copy
import math
import tempfile
import time
from contextlib import closing
from dataclasses import replace
from numbers import Real
from pathlib import Path

import torch
from torch import nn

from relatum.config import Draft, Values
from relatum.config.methods import METHODS
from relatum.data import ImageSet
from relatum.errors import InputError
from relatum.objectives import Objective
from relatum.runs.folder import RunFolder
from relatum.system.durations import duration
from relatum.system.progress import Display
from relatum.system.text import counted
from relatum.training import build
from relatum.training.engine import make_fabric
from relatum.training.loop import Trainer
from relatum.training.resolve import Resolved, resolve

_VIEWS = (2, 4, 8, 16, 32)  # K, from small to the paper's
_ENOUGH = 40  # epochs: a larger K is worth more than further epochs from here on (the paper's figure of K)
_MOST = 200  # epochs: the paper's
_WARMUP, _TIMED = 2, 5  # steps
_TRAINING = 0.9  # the share of the budget for steps; the rest is for the start, checkpoints and artifacts


def check_minutes(draft: Draft, minutes: float) -> None:
    """Raise an error if no budget is possible, before any image is read.

    Args:
        draft: what the user asked for.
        minutes: the budget.
    """
    if not isinstance(minutes, Real):
        raise InputError(f"--minutes {minutes!r} is not a number.")
    if not 0 < minutes < math.inf:
        raise InputError(f"--minutes {minutes:g} is out of range: it must be greater than 0 and finite.")
    if draft.request.run.devices > 1:
        raise InputError("--minutes works with one device: each process would measure other times. Use --epochs.")
    if METHODS[draft.request.method].trains and not any(_free(draft)):
        raise InputError("--minutes chooses views and epochs, and both are given: leave one of them out.")


def _free(draft: Draft) -> tuple[bool, bool]:
    """Whether K and whether the number of epochs are left to the budget."""
    return (
        draft.request.method == "relational" and "views.number" not in draft.explicit,
        "train.epochs" not in draft.explicit,
    )


def fit_to_minutes(
    draft: Draft,
    resolved: Resolved,
    minutes: float,
    display: Display,
    *,
    custom_backbone: nn.Module | None = None,
    root: Path | None = None,
    images: ImageSet | None = None,
) -> Resolved:
    """Resolve a draft again with K, epochs and, if need be, fewer images, so that training takes about `minutes`.

    Args:
        draft: what the user asked for; K and epochs that it sets are kept.
        resolved: the draft resolved without a budget.
        minutes: the budget, which `check_minutes` accepts.
        display: prints the plan.
        custom_backbone: a module to train; a copy of it is measured.
        root: the data root folder.
        images: images in memory to train on, in place of the data that the draft names.
    """
    if not METHODS[resolved.recipe.method].trains:
        return resolved
    free_views, free_epochs = _free(draft)
    options = _VIEWS if free_views else (resolved.recipe.views.number,)
    tried = options if len(options) == 1 else (4, 16)
    measured = {views: _seconds_per_step(resolved, views, custom_backbone) for views in tried}
    seconds, budget = _by_views(measured, options), 60 * minutes * _TRAINING
    steps = max(1, -(-len(resolved.images) // resolved.recipe.train.batch_size))
    values = plan(budget, steps, seconds, None if free_epochs else resolved.recipe.train.epochs)
    step = seconds[values["views.number"]]
    if values.pop("limit", False):
        limit = int(budget / step)
        values["data.limit_train"] = min(max(2, limit) * resolved.recipe.train.batch_size, len(resolved.images))
    planned = resolve(replace(draft, values={**draft.values, **values}), root=root, images=images)
    recipe = planned.recipe
    needed = recipe.train.epochs * step * -(-len(planned.images) // recipe.train.batch_size)
    settings = f"--views {recipe.views.number} --epochs {recipe.train.epochs}"
    if "data.limit_train" in values:
        settings += f" --limit-train {values['data.limit_train']}"
    display.print(
        f"budget    {counted(minutes, 'minute')}: {settings}, about {duration(needed)} at {1000 * step:.0f} ms a step"
    )
    return planned


def plan(budget: float, steps: int, seconds: dict[int, float], epochs: int | None = None) -> Values:
    """K and epochs for a number of seconds: the largest K that leaves enough epochs, then as many as fit.

    Args:
        budget: seconds for all steps.
        steps: steps per epoch.
        seconds: seconds per step for each K that may be chosen.
        epochs: the number of epochs, if it is given.

    Returns:
        Recipe keys; `limit` is true if not even one epoch fits.
    """
    fitting = {views: int(budget / (steps * cost)) for views, cost in seconds.items()}
    least = _ENOUGH if epochs is None else epochs
    views = max([v for v, number in fitting.items() if number >= least], default=min(fitting))
    values: Values = {"views.number": views}
    if epochs is None:
        values["train.epochs"] = min(_MOST, max(1, fitting[views]))
        values["limit"] = fitting[views] < 1
    return values


def _by_views(seconds: dict[int, float], options: tuple[int, ...]) -> dict[int, float]:
    """Seconds per step for every K: a line through the measured ones; the work per view is nearly constant."""
    (first, low), (last, high) = min(seconds.items()), max(seconds.items())
    slope = (high - low) / (last - first) if last > first else 0.0
    return {views: max(low + slope * (views - first), 0.25 * low) for views in options}


def _seconds_per_step(resolved: Resolved, views: int, custom_backbone: nn.Module | None) -> float:
    """The median time of a training step with K views, on a copy of everything that a step changes."""
    recipe = replace(resolved.recipe, views=replace(resolved.recipe.views, number=views))
    trial = replace(resolved, recipe=recipe)
    torch.set_num_threads(recipe.run.threads or 1)
    objective = build.make_objective(trial, copy.deepcopy(custom_backbone))
    if type(objective).start_epoch is not Objective.start_epoch:
        raise InputError(f"--minutes cannot time {recipe.method}, whose epochs begin with other work: use --epochs.")
    fabric = make_fabric(recipe)
    maker = build.make_batches(trial, objective, fabric)
    nowhere = RunFolder(tempfile.gettempdir())  # single steps write nothing
    trainer = Trainer(objective, recipe, maker, nowhere, fabric=fabric)
    objective.train()
    times = []
    with closing(maker):  # a stream would decode what follows while the next number of views is measured
        for trainer.step in range(_WARMUP + _TIMED):
            began = time.perf_counter()
            loss, _ = trainer.train_step(maker.make(trainer.step))
            float(loss)  # waits for a GPU
            times.append(time.perf_counter() - began)
    return sorted(times[_WARMUP:])[_TIMED // 2]
