"""The training loop: one readable loop on Lightning Fabric (device, precision, data-parallel), with exact resume.

The engine knows the contract of objectives (`relatum.objectives.base`) and never a concrete method. A step is a pure
function of the state and its number; what is measured, logged and saved never changes it.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Mapping
from contextlib import closing, nullcontext
from pathlib import Path
from typing import Any

import torch
from lightning_fabric import Fabric
from torch import Tensor, distributed

from relatum.backbones import seeded_dropout
from relatum.config import Recipe
from relatum.errors import InputError, Interrupted, RelatumError
from relatum.objectives.base import EpochContext, Objective
from relatum.objectives.batch import Batch
from relatum.runs import checkpoint
from relatum.runs.folder import RunFolder
from relatum.runs.metrics import MetricsWriter
from relatum.runs.weights import relation_state, save_run_weights, weights_metadata
from relatum.system import signals
from relatum.system.progress import Display
from relatum.system.text import counted
from relatum.training import health, messages, optim
from relatum.training.batches import BatchMaker, batches
from relatum.training.monitor import clean_features
from relatum.training.resume import Start

MILESTONES = (25, 50, 75, 100)
Monitor = Callable[[torch.nn.Module], Mapping[str, float]]


class Trainer:
    """One run: an objective, its optimiser, its batches and its folder.

    Args:
        objective: the method, on the CPU; Fabric moves it.
        recipe: the complete recipe.
        maker: makes the batch of any step.
        folder: the run folder.
        fabric: devices and precision, launched.
        monitor: evaluates the backbone every `log.knn_every` epochs and returns numbers for the log.
        display: prints progress and messages.
        seconds: the time that the run took so far; recorded with each checkpoint, for a process that is killed.
    """

    def __init__(
        self,
        objective: Objective,
        recipe: Recipe,
        maker: BatchMaker,
        folder: RunFolder,
        *,
        fabric: Fabric,
        monitor: Monitor | None = None,
        display: Display | None = None,
        seconds: Callable[[], float] | None = None,
    ) -> None:
        self.objective, self.recipe, self.maker, self.folder = objective, recipe, maker, folder
        self.info = weights_metadata(recipe, objective.num_features)
        self.fabric, self.monitor, self.seconds = fabric, monitor, seconds
        self.display = display or Display(quiet=True)
        self.total = recipe.train.epochs * maker.steps_per_epoch
        self.step = 0
        self.resumed = False
        self.metrics_digest = ""
        self._in_folder = False  # whether the folder had a recipe when training began
        self._good: tuple[Path, int] | None = None  # the checkpoint to return to, and its step
        self._reached = False  # whether a gradient has reached the backbone
        self._unsaved = health.unsaved_buffers(objective.backbone)
        fused = not (recipe.run.precision == "16-mixed" and recipe.train.clip_norm)  # Fabric cannot unscale fused ones
        groups = optim.parameter_groups(recipe.train, objective, objective.backbone)
        self.optimizer = optim.make_optimizer(recipe.train, groups, fused=fused)
        self.module, self.optimizer = fabric.setup(objective, self.optimizer, move_to_device=True)
        self._saved_at = time.monotonic()
        self._seen = 0  # views since the last log
        self.health = health.Health(objective.num_features, self.display.warn, objective.chance_loss)
        self._update_threads = optim.update_threads(objective, fabric.device)

    # ------------------------------------------------------------------------------------------------------- state

    def state(self) -> checkpoint.State:
        """The state that an exact resume needs."""
        return {
            "objective": self.objective.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "step": self.step,
            "precision": self.fabric.strategy.precision.state_dict(),  # the loss scale of 16-mixed
            "recipe": self.recipe.to_toml(),
            "info": self.info,
            "metrics": self.metrics_digest,
        }

    def restore(self, start: Start) -> None:
        """Continue from a checkpoint.

        Raises:
            InputError: it is of another run: its step is beyond the last one, or its tensors do not fit.
        """
        state = start.state
        if start.step > self.total:
            raise InputError(
                f"{start.path} cannot be used: its step is {start.step:,}, and the run has {self.total:,}."
            )
        try:
            self.objective.load_state_dict(state["objective"], strict=True)
            self.optimizer.load_state_dict(state["optimizer"])
            self.fabric.strategy.precision.load_state_dict(state.get("precision", {}))
        except (RuntimeError, ValueError, KeyError, TypeError, AttributeError) as error:
            reason = " ".join(str(error).split())[:200]
            raise InputError(f"{start.path} does not fit this run: {reason}") from None
        self.resumed, self.step, self._good = True, start.step, (start.path, start.step)
        self.metrics_digest = str(state.get("metrics", ""))
        state.clear()  # its memory is needed for training

    def save(self, metrics: MetricsWriter | None = None) -> None:
        """Write the newest checkpoint, and before it a milestone when a quarter of the training is done."""
        if not self.fabric.is_global_zero:
            return
        self._check_folder()
        if metrics is not None:
            metrics.sync()
            self.metrics_digest = metrics.digest
        state = self.state()
        for percent in self._milestones():  # first: a process that is killed in between saves both when it is resumed
            checkpoint.save(self.folder.milestone(percent), state)
        last_is_good = self._good is not None and self._good[0] == self.folder.last
        checkpoint.save_last(self.folder, state, keep=last_is_good)
        self._good, self._saved_at = (self.folder.last, self.step), time.monotonic()
        if self.seconds is not None:
            self.folder.update_record(seconds=self.seconds(), steps=self.step)

    def _milestones(self) -> list[int]:
        """The percentages of the training that are complete at exactly this step."""
        return [percent for percent in MILESTONES if self.total and self.step == -(-self.total * percent // 100)]

    def _check_folder(self) -> None:
        """Stop if the folder was moved or removed: a checkpoint saved now would be only a part of the run."""
        if self._in_folder and not self.folder.exists():
            raise RelatumError(
                f"{self.folder.path} was moved or removed during training. Its checkpoints moved with it: "
                "`relatum pretrain --resume --out FOLDER` continues."
            )

    # -------------------------------------------------------------------------------------------------------- loop

    def train(self) -> None:
        """Run all steps that are left; afterwards the run folder holds the finished weights."""
        ahead = self.recipe.run.prefetch == "on"
        self._in_folder = self.folder.exists()
        self.objective.train()
        with (
            self._log() as metrics,
            signals.collect(self.recipe.checkpoint.signal) as stopped,
            self.display.training(self.total, self.step),
            closing(self.maker),
        ):
            # Collapse is measured on the first mini-batch of the run: the last one of an epoch may have few images.
            self._sample = self.maker.make(0).views[0, : health.MOST_IMAGES].clone()
            self._clock = time.monotonic()
            for batch in batches(self.maker, self.step, self.total, ahead=ahead):
                if self.step % self.maker.steps_per_epoch == 0:
                    self._start_epoch()
                loss, values = self.train_step(batch)
                loss, values, stop = self._across_processes(loss, values, bool(stopped))
                self.step += 1
                processes = 1 if self.maker.shared else self.maker.world
                self._seen += batch.all_views * batch.num_images * processes
                self._after_step(loss, values, metrics)
                self.display.tick(self.step)
                if stop or (stopped and self.maker.world == 1):
                    self._check_finite(loss)
                    self.save(metrics)
                    self.fabric.barrier()  # no process ends before the first one has saved: launchers kill the rest
                    signum = stopped[0] if stopped else signal.SIGTERM
                    error = Interrupted(signum, f"stopped at step {self.step} of {self.total}; --resume continues.")
                    error.quiet = not self.fabric.is_global_zero
                    raise error

    def _across_processes(
        self, loss: Tensor, values: Mapping[str, Tensor], stop: bool
    ) -> tuple[Tensor, dict[str, Tensor], bool]:
        """Loss and metrics over all processes, and whether any of them wants to stop: then all do, at the same step."""
        if self.maker.world == 1:
            return loss, dict(values), stop
        stopping = torch.tensor(float(stop))
        message = torch.stack([loss, *(v.to(loss.dtype) for v in values.values())])
        if loss.device.type == "cpu":  # one message for both
            message = torch.cat([message, stopping.to(loss.dtype)[None]])
            distributed.all_reduce(message)
            message, stopping = message[:-1], message[-1]
        else:  # exchanged between hosts, so that no process waits for a device
            distributed.all_reduce(message)
            distributed.all_reduce(stopping)
        loss, *means = message / self.maker.world
        return loss, dict(zip(values, means, strict=True)), bool(stopping > 0)

    def _log(self) -> Any:
        """Where metrics go: the first process writes them."""
        if not self.fabric.is_global_zero:
            return nullcontext()
        log = self.recipe.log
        metrics = MetricsWriter(self.folder.metrics, self.step, tensorboard=log.tensorboard, wandb=log.wandb)
        if metrics.damaged:
            self.display.warn(f"removed {counted(metrics.damaged, 'damaged line')} from {self.folder.metrics}.")
        elif self.metrics_digest and self.metrics_digest != metrics.digest:
            self.display.warn(f"{self.folder.metrics} was changed after the checkpoint; the weights are not affected.")
        return closing(metrics)

    def train_step(self, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        """Forward, backward, update. No value is copied to the host here."""
        train = self.recipe.train
        optim.set_learning_rate(self.optimizer, optim.learning_rate(train, self.step, self.maker.steps_per_epoch))
        draws = seeded_dropout(self.fabric.device, self.recipe.seed, self.step, self.maker.rank)
        with self._stance(batch), draws:
            loss, values = self.module(batch)
            self.fabric.backward(loss)
        if not self._reached:
            self._reached = health.check_reached(self.objective.backbone)
        if train.clip_norm:  # gradients that are not finite pass: the check of loss and weights explains them,
            # and the loss scaler of 16-mixed skips the step
            self.fabric.clip_gradients(self.module, self.optimizer, max_norm=train.clip_norm, error_if_nonfinite=False)
        with self._update_threads:
            self.optimizer.step()
            with torch.no_grad():
                self.objective.after_step(self.step, self.total)
        self.optimizer.zero_grad(set_to_none=True)
        return loss.detach(), values

    def _stance(self, batch: Batch) -> Any:
        """A short last batch runs eagerly: compiled code depends on the full shape alone, and so do resumed bits."""
        full = -(-self.recipe.train.batch_size // self.maker.world)
        if self.recipe.run.compile == "on" and batch.views.shape[1] != full:
            return torch.compiler.set_stance("force_eager")
        return nullcontext()

    def _start_epoch(self) -> None:
        epoch = self.step // self.maker.steps_per_epoch

        def features() -> Tensor:
            return clean_features(self.objective.backbone, self.maker.images)

        context = EpochContext(self.recipe.seed, epoch, features, self.display.print)
        renewed = self.objective.start_epoch(context)
        optim.forget(self.optimizer, renewed)
        self.objective.train()

    def _after_step(self, loss: Tensor, values: Mapping[str, Tensor], metrics: MetricsWriter | None) -> None:
        """Log and save where it is due; both are rare enough for a device-to-host copy."""
        recipe, step = self.recipe, self.step
        epoch_ends = step % self.maker.steps_per_epoch == 0
        every = recipe.log.every_steps
        if step % every == 0 or step == 1 or epoch_ends:
            row = self._row(loss, values)
            if epoch_ends:
                row |= self._look(step // self.maker.steps_per_epoch)
            if metrics is not None:
                metrics.write(row)
            self.health.check(row, images=len(self._sample), last=step == self.total)
            self.display.update(step, row)
        due = recipe.checkpoint.every_steps and step % recipe.checkpoint.every_steps == 0
        late = self.fabric.is_global_zero and time.monotonic() - self._saved_at > recipe.checkpoint.every_seconds
        if due or late or epoch_ends or self._milestones():
            self._check_finite(loss)
            self.save(metrics)
        elif step % every == 0 and not torch.isfinite(loss):
            self._check_finite(loss)

    def _check_finite(self, loss: Tensor) -> None:
        """Stop before a checkpoint if the loss, a weight or a buffer is not finite: checkpoints stay good ones."""
        if what := health.not_finite(loss, self.objective):
            indices = self.maker.images_of(self.step - 1)
            images = self.maker.names(indices) or [f"number {number}" for number in indices]
            error = RelatumError(messages.not_finite(what, self.step, images, self._good))
            error.quiet = not self.fabric.is_global_zero  # all processes see it, and the first one knows the checkpoint
            raise error

    def _row(self, loss: Tensor, values: Mapping[str, Tensor]) -> dict[str, Any]:
        now = time.monotonic()
        speed = self._seen / max(now - self._clock, 1e-9)
        self._clock, self._seen = now, 0
        return {
            "step": self.step,
            "epoch": (self.step - 1) // self.maker.steps_per_epoch + 1,
            "loss": float(loss),
            "views_per_second": round(speed, 1),
            "lr": self.optimizer.param_groups[0]["lr"],
            **{name: float(value) for name, value in values.items()},
        }

    def _look(self, epoch: int) -> dict[str, float]:
        """Metrics of the backbone, computed in eval mode, so that the run does not change."""
        if not self.fabric.is_global_zero:
            return {}
        numbers = health.spread(self.objective.backbone, self._sample)
        due = self.monitor is not None and epoch % self.recipe.log.knn_every == 0
        if due and health.all_finite(self.objective):  # otherwise the run stops in a moment
            numbers |= self.monitor(self.objective.backbone)  # type: ignore[misc]
        self.objective.train()
        self._clock = time.monotonic()
        return numbers

    def finish(self) -> None:
        """Write the weights: the head first and the backbone last, whose presence says that the run is finished."""
        self._check_folder()
        health.warn_of_lost(self.objective.backbone, self._unsaved, self.display.warn)
        relation = relation_state(self.objective.head_state())
        save_run_weights(self.folder.path, self.objective.backbone.state_dict(), relation, self.info)
