"""The whole training step, measured three ways in one run: ours, the bare backbone, and the plain loop.

- ours: exactly what `relatum pretrain` does in a step: make the batch, forward, backward, update
  (`Trainer.train_step`).
- bare: the backbone as plain PyTorch modules, channels-last, `torch.compile` with default settings, forward + backward
  + Adam on prepared tensors. It is the lower bound for any method that uses this backbone unchanged.
- plain: views by a lean Pillow chain in a `DataLoader` with as many workers as cores, eager backbone, pairs listed,
  concatenated and passed through an eager head; timed in steady state, after the batches prepared ahead are used up.

The three are timed in turn, so that other load on the machine affects all of them; results are medians over steps.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader

from relatum import backbones, config
from relatum.bench import real_images, spread
from relatum.bench.plain import PillowChain, PlainViews
from relatum.bench.plain_head import PlainHead
from relatum.config.methods import METHODS
from relatum.errors import InputError
from relatum.objectives import EpochContext
from relatum.runs.folder import RunFolder
from relatum.system.allocator import keep_freed_memory
from relatum.training.batches import BatchMaker
from relatum.training.build import compile_backbone, make_batches, make_objective
from relatum.training.engine import make_fabric
from relatum.training.loop import Trainer
from relatum.training.monitor import clean_features
from relatum.training.resolve import Resolved, check_recipe, resolve_machine, visible_labels

_HEAD_START = 2  # batches that each worker prepares ahead (PyTorch's default)
Step = Callable[[], None]


def measure(
    *,
    method: str = "relational",
    backbone: str = "conv4",
    views: int | None = None,
    batch_size: int | None = None,
    side: int | None = None,
    repeats: int = 3,
    steps: int = 6,
    compile: str = "auto",
    plain: bool = True,
    root: str | Path | None = None,
) -> dict[str, Any]:
    """Seconds of one training step: ours, the bare backbone and the plain loop.

    Args:
        method: any method; the plain loop exists for `relational`.
        backbone: a name of the table.
        views: K; by default the method's.
        batch_size: M; by default the method's.
        side: of the images; that of the dataset by default.
        repeats: rounds in which the sides take turns.
        steps: timed steps of each side in a round.
        compile: whether our side compiles its backbone.
        plain: whether the plain loop is measured.
        root: where CIFAR-10 lies; without it the images are `shapes`.
    """
    resolved = prepare_step(method, backbone, views, batch_size, side, compile, root)
    recipe = resolved.recipe
    keep_freed_memory()  # as training does; the bare side gains from it too (a third for Conv-4)
    sides: dict[str, Step] = {"bare": bare_step(recipe), "ours": our_step(resolved)}
    loop = plain_loop(resolved) if plain and method == "relational" else None
    for step in sides.values():  # compile, fill caches
        for _ in range(3):
            step()
    seconds: dict[str, list[float]] = {"bare": [], "ours": [], "plain": []}
    for _ in range(repeats):
        for name, step in sides.items():
            seconds[name] += _time(step, steps)
        if loop is not None:
            seconds["plain"] += _time_loop(loop, max(2, steps // 2))
    ours, bare = float(np.median(seconds["ours"])), float(np.median(seconds["bare"]))
    usual = float(np.median(seconds["plain"])) if seconds["plain"] else None
    return {
        "what": "step",
        "method": method,
        "views": recipe.views.number,
        "batch_size": recipe.train.batch_size,
        "side": recipe.data.side,
        "backbone": backbone,
        "data": recipe.data.name,
        "ours_seconds": ours,
        "plain_seconds": usual,
        "speedup": None if usual is None else usual / ours,
        "bare_seconds": bare,
        "overhead": ours / bare,
        "spread": {name: spread(values) for name, values in seconds.items() if values},
        "threads": recipe.run.threads,
    }


def prepare_step(
    method: str, backbone: str, views: int | None, batch_size: int | None, side: int | None, compile: str, root: Any
) -> Resolved:
    """The recipe and the images of the step to measure."""
    if method in METHODS and not METHODS[method].trains:
        raise InputError(f"method '{method}' is not trained: it has no step to measure.")
    images = real_images(side, root)
    flags = {
        "data.name": images.name,
        "method": method,
        "backbone.name": backbone,
        "views.number": views,
        "train.batch_size": batch_size,
        "run.compile": compile,
        "run.device": "cpu",
        "train.epochs": 1000,  # what `auto` decides for a long run
    }
    data_facts = {"data.side": images.side, "data.pad": images.pad, "data.images": len(images)}
    recipe = resolve_machine(config.draft(flags=flags).recipe(data_facts))
    check_recipe(recipe)
    return Resolved(recipe, images, None, visible_labels(images, recipe))


def bare_step(recipe: config.Recipe) -> Step:
    """Forward, backward and Adam of the compiled plain backbone on prepared tensors."""
    count, side = recipe.views.number * recipe.train.batch_size, recipe.data.side or 32
    module = backbones.build(recipe.backbone.name).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    compiled: Callable[[Tensor], Tensor] = torch.compile(module)
    optimizer = torch.optim.Adam(module.parameters(), 1e-3, fused=True)
    ready = torch.randn(count, 3, side, side).contiguous(memory_format=torch.channels_last)

    def step() -> None:
        torch.autograd.backward(compiled(ready).square().mean())
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


def our_step(resolved: Resolved) -> Step:
    """The step of `relatum pretrain`, batch after batch."""
    recipe = resolved.recipe
    objective = make_objective(resolved)
    fabric = make_fabric(recipe)
    maker: BatchMaker = make_batches(resolved, objective, fabric)
    count, side = recipe.views.number * recipe.train.batch_size, recipe.data.side or 32
    if recipe.run.compile == "on":
        example = torch.zeros(count, 3, side, side).contiguous(memory_format=torch.channels_last)
        failure = compile_backbone(objective, example, fabric)
        if failure is not None:
            raise InputError(f"torch.compile does not work here: {failure}")
    folder = RunFolder(Path(tempfile.gettempdir()))  # nothing is written by single steps
    trainer = Trainer(objective, recipe, maker, folder, fabric=fabric)
    full = len(resolved.images) // recipe.train.batch_size  # a short last batch is another step

    def step() -> None:
        batch = maker.make(trainer.step % max(full, 1))
        trainer.train_step(batch)
        trainer.step += 1

    objective.start_epoch(EpochContext(1, 0, lambda: clean_features(objective.backbone, resolved.images)))
    objective.train()
    return step


def plain_loop(resolved: Resolved) -> Iterator[None]:
    """The straightforward training loop; each item is one finished step."""
    recipe = resolved.recipe
    chain = PillowChain(recipe.data.side or 32, recipe.data.mean or (0.5,) * 3, recipe.data.std or (0.25,) * 3)
    images = PlainViews(resolved.images.images, recipe.views.number, chain)
    loader = DataLoader(
        images,
        recipe.train.batch_size,
        shuffle=True,
        drop_last=True,
        num_workers=recipe.run.threads or 1,
        prefetch_factor=_HEAD_START,
        persistent_workers=True,
    )
    backbone = backbones.build(recipe.backbone.name)
    model = PlainHead(backbones.feature_size(backbone), recipe.views.number, recipe.train.batch_size)
    optimizer = torch.optim.Adam([*backbone.parameters(), *model.parameters()], 1e-3)
    while True:
        for batch_MKCHW in loader:
            views_KMCHW: Tensor = batch_MKCHW.transpose(0, 1)
            loss = model(backbone(views_KMCHW.flatten(0, 1)))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            yield


def _time(step: Step, count: int) -> list[float]:
    step()  # warm the caches that the other side has cooled
    taken = []
    for _ in range(count):
        began = time.perf_counter()
        step()
        taken.append(time.perf_counter() - began)
    return taken


def _time_loop(loop: Iterator[None], count: int) -> list[float]:
    """Use up what the workers prepared while others were measured, then time; at the end let them fall asleep."""
    for _ in range(_HEAD_START * torch.get_num_threads() + 2):
        next(loop)
    taken = []
    for _ in range(count):
        began = time.perf_counter()
        next(loop)
        taken.append(time.perf_counter() - began)
    time.sleep(max(1.0, 3 * _HEAD_START * float(np.median(taken))))
    return taken
