"""Data-parallel training that computes the same as one process.

Each process runs the backbone on its share of the mini-batch. `World.gather` collects the representations of all
processes, with their gradient, so that every method sees the whole mini-batch; `GlobalBatchNorm` normalises by the
statistics of the whole mini-batch.

Convention: the loss of the mini-batch is the mean over processes of the losses that they return. A method that computes
the whole loss in every process returns it as it is; one that shares the work returns its part times the number of
processes. DDP averages gradients, so both give the gradient of the whole loss.
"""

from relatum.distributed.batch_norm import GlobalBatchNorm, Reduce, convert, merge, update_running
from relatum.distributed.world import ALONE, World, current

__all__ = ["ALONE", "GlobalBatchNorm", "Reduce", "World", "convert", "current", "merge", "update_running"]
