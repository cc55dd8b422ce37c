"""Trains a run from a complete recipe to finished weights: objective, batches, training loop, artifacts, weights."""

from __future__ import annotations

import contextlib
import shlex
import sys
import time
from collections.abc import Iterable
from pathlib import Path

import torch
from lightning_fabric import Fabric
from torch import nn

from relatum import registry
from relatum.backbones import has_idle_weights
from relatum.config import Recipe
from relatum.data.imageset import Skipped
from relatum.data.stream.images import is_streamed
from relatum.distributed import ALONE, World
from relatum.errors import Interrupted, RelatumError
from relatum.objectives import Objective
from relatum.runs import provenance
from relatum.runs.folder import RunFolder
from relatum.runs.heldout import write_held_out
from relatum.system.allocator import keep_freed_memory
from relatum.system.durations import duration
from relatum.system.progress import Display
from relatum.system.team import Team
from relatum.training import build, messages, monitor, snapshots
from relatum.training.batches import BatchMaker
from relatum.training.engine import make_fabric
from relatum.training.loop import Trainer
from relatum.training.resolve import Resolved
from relatum.training.resume import Start


def train(
    resolved: Resolved,
    folder: RunFolder,
    display: Display,
    *,
    team: Team | None = None,
    custom_backbone: nn.Module | None = None,
    root: Path | None = None,
    start: Start | None = None,
    replace: bool = False,
) -> Objective | None:
    """Train a run to its end.

    Args:
        resolved: the recipe and its data.
        folder: the run folder, locked by the caller.
        display: prints progress.
        team: the connected processes of the run; by default this one alone.
        custom_backbone: a module to train, in place of the backbone that the recipe names.
        root: the data root folder.
        start: the checkpoint to continue from.
        replace: delete the run in the folder, once everything that could stop the new one has been checked.

    Returns:
        The trained objective; None in all but the first process of a data-parallel run.
    """
    team = team or Team()
    began = time.monotonic() - (_recorded_seconds(folder) if team.first and not replace else 0.0)

    def seconds() -> float:
        """The time that the run took so far, in earlier processes as well."""
        return time.monotonic() - began

    first = team.first
    objective, fabric, maker = team.together(
        lambda: _prepare(resolved, display, team, custom_backbone, init=first and start is None)
    )
    if resolved.recipe.init and start is None and team.size > 1:  # the first process alone has read the weights
        objective.load_state_dict(team.first_does(objective.state_dict))
    recipe = maker.recipe = build.compile_where_asked(resolved.recipe, objective, maker, fabric, display)
    measure = monitor.knn_monitor(resolved, root) if first else None
    trainer = Trainer(
        objective, recipe, maker, folder, fabric=fabric, monitor=measure, display=display, seconds=seconds
    )
    if start is not None:
        team.together(lambda: trainer.restore(start))
    if first:
        if replace:
            folder.clear()
        messages.warn_about_changes(folder, display)
        _write_start(folder, recipe, resolved, trainer.total, launch=team.place.token)
    try:
        _run_steps(trainer, resolved, display, team)
    except BaseException as error:
        if first and folder.exists():  # it may have been moved
            status = "interrupted" if isinstance(error, Interrupted | KeyboardInterrupt) else "failed"
            with contextlib.suppress(RelatumError, OSError):  # the first error counts
                folder.update_record(status=status, seconds=seconds(), steps=trainer.step)
        raise
    if not first:
        return None
    spent = seconds()
    folder.update_record(status="finished", seconds=spent, steps=trainer.step, metrics_digest=trainer.metrics_digest)
    display.print(f"done in {duration(spent)}: {folder.path}")
    return objective


def _prepare(
    resolved: Resolved, display: Display, team: Team, custom_backbone: nn.Module | None, *, init: bool
) -> tuple[Objective, Fabric, BatchMaker]:
    """Build what can fail in one process alone, before the processes exchange weights and anything is written."""
    recipe = resolved.recipe
    build.use_deterministic_kernels(recipe)
    torch.set_num_threads(recipe.run.threads or 1)
    objective = build.make_objective(resolved, custom_backbone, init=init)
    if recipe.run.device == "cpu":
        keep_freed_memory()
    skips = objective.skips_parameters
    if team.size > 1 and not skips:  # DDP would wait for the gradients of weights that are never used
        skips = has_idle_weights(objective.backbone, recipe.data.side or resolved.images.side)
    fabric = make_fabric(recipe, team.place, skips_parameters=skips)
    if recipe.train.sync == "global":
        objective.connect(World(fabric.global_rank, fabric.world_size))
    maker = build.make_batches(resolved, objective, fabric)
    messages.announce(resolved, maker, objective, display)
    return objective, fabric, maker


def _run_steps(trainer: Trainer, resolved: Resolved, display: Display, team: Team) -> None:
    """Run the steps that are left; the first process then writes the finished weights."""
    folder, maker, objective = trainer.folder, trainer.maker, trainer.objective
    if trainer.resumed:
        display.print(f"resumed at step {trainer.step:,} of {trainer.total:,}")
    elif team.first:
        snapshots.save_views(folder.path, maker)
    if trainer.total:
        trainer.train()
    skipped = dict.fromkeys(resolved.images.skipped)
    if is_streamed(resolved.images.images):  # images that a process could not decode
        skipped.update(dict.fromkeys(item for items in team.gather(resolved.images.images.damaged) for item in items))
    objective.connect(ALONE)  # the other processes end here: what follows must not wait for them
    if not team.first:
        return
    if len(skipped) > len(resolved.images.skipped):
        folder.update_record(skipped=_as_rows(skipped))
    snapshots.save_pairs(folder.path, objective, maker)
    if hasattr(objective, "predict"):  # a run that is killed from here on is scored by the next resume
        folder.update_record(classifier_score="pending")
    trainer.finish()


def _as_rows(skipped: Iterable[Skipped]) -> list[dict[str, str]]:
    return [{"path": item.path, "reason": item.reason} for item in skipped]


def _recorded_seconds(folder: RunFolder) -> float:
    seconds = folder.read_record().get("seconds")
    return float(seconds) if isinstance(seconds, int | float) else 0.0


def _write_start(folder: RunFolder, recipe: Recipe, resolved: Resolved, total_steps: int, launch: str) -> None:
    """Write the recipe and the record of the run before its first step."""
    folder.write_recipe(recipe)
    if resolved.validation is not None and recipe.data.name not in registry.DATASETS and not folder.held_out.exists():
        write_held_out(folder, resolved.validation)
    program = Path(sys.argv[0]).name
    folder.update_record(
        status="running",
        started=folder.read_record().get("started") or time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        images=len(resolved.images),
        classes=list(resolved.images.classes),
        total_steps=total_steps,
        launch=launch,
        command=shlex.join(["relatum", *sys.argv[1:]]) if program in ("relatum", "__main__.py") else None,
        skipped=_as_rows(resolved.images.skipped),
        **provenance.record(),
    )
