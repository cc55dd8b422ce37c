"""Lightning Fabric for a run: device, precision, and the processes that were started and connected before."""

from __future__ import annotations

import contextlib
import inspect
import logging
import os
from collections.abc import Iterator
from typing import Any

import torch
from lightning_fabric import Fabric
from lightning_fabric.plugins.environments.cluster_environment import ClusterEnvironment
from lightning_fabric.plugins.environments.lightning import LightningEnvironment
from lightning_fabric.strategies.ddp import DDPStrategy
from torch.nn.parallel import DistributedDataParallel

from relatum.config import Recipe
from relatum.errors import InputError
from relatum.system.launcher import Place
from relatum.system.text import counted


class _Environment(ClusterEnvironment):
    """Tells Fabric the place of this process among those that the launcher started."""

    def __init__(self, place: Place) -> None:
        self.place = place

    creates_processes_externally = True

    @property
    def main_address(self) -> str:
        return self.place.address

    @property
    def main_port(self) -> int:
        return self.place.port

    @staticmethod
    def detect() -> bool:
        return True

    def world_size(self) -> int:
        return self.place.size

    def set_world_size(self, size: int) -> None:
        pass

    def global_rank(self) -> int:
        return self.place.rank

    def set_global_rank(self, rank: int) -> None:
        pass

    def local_rank(self) -> int:
        return self.place.local_rank

    def node_rank(self) -> int:
        return 0  # Fabric derives the global rank from it, and `global_rank` gives that


def make_fabric(recipe: Recipe, place: Place | None = None, *, skips_parameters: bool = False) -> Fabric:
    """Fabric for the recipe's device and precision, launched; with several processes they are connected already.

    Args:
        recipe: the complete recipe.
        place: the place of this process among those of the run; by default it is the only one.
        skips_parameters: whether some parameters get no gradient in some steps (`Objective.skips_parameters`).
    """
    logging.getLogger("lightning_fabric").setLevel(logging.WARNING)  # it prints the precision, in quiet runs as well
    with _without_fabric_run():
        return _make_fabric(recipe, place or Place(), skips_parameters)


@contextlib.contextmanager
def _without_fabric_run() -> Iterator[None]:
    """Hide the settings of `fabric run` ($LT_PRECISION, ...): Fabric would prefer some of them to the recipe."""
    hidden = {name: os.environ.pop(name) for name in list(os.environ) if name.startswith("LT_")}
    try:
        yield
    finally:
        os.environ.update(hidden)


def _make_fabric(recipe: Recipe, place: Place, skips_parameters: bool) -> Fabric:
    precision: Any = {"32": "32-true"}.get(recipe.run.precision, recipe.run.precision)
    if place.size == 1:
        plugins: Any = [LightningEnvironment()]
        fabric = Fabric(accelerator=recipe.run.device, devices=1, precision=precision, plugins=plugins, loggers=[])
        fabric.launch()
        return fabric
    # Buffers are equal in all processes where statistics are global; DDP need not send them at every step.
    names = inspect.signature(DistributedDataParallel).parameters
    sync_buffers = "forward_sync_buffers" if "forward_sync_buffers" in names else "broadcast_buffers"  # torch < 2.13
    options: Any = {sync_buffers: recipe.train.sync == "local"}
    if skips_parameters:  # DDP would wait for their gradients; torch warns once when every parameter has one again
        options["find_unused_parameters"] = True
    strategy = DDPStrategy(
        parallel_devices=_local_devices(recipe.run.device, place),
        cluster_environment=_Environment(place),
        **options,
    )
    fabric = Fabric(
        accelerator=recipe.run.device,
        devices=place.local_size,
        num_nodes=place.nodes,
        strategy=strategy,
        precision=precision,
        loggers=[],
    )
    threads = os.environ.get("OMP_NUM_THREADS"), torch.get_num_threads()
    fabric.launch()
    torch.set_num_threads(threads[1])  # Fabric has divided the cores by itself; `run.threads` decides
    if threads[0] is None:
        os.environ.pop("OMP_NUM_THREADS", None)
    return fabric


def _local_devices(device: str, place: Place) -> list[torch.device]:
    """The devices of the processes on this machine, by their local number."""
    if device == "mps":
        raise InputError("--device mps is one device; leave --devices out.")
    if device == "cpu":
        return [torch.device("cpu")] * place.local_size
    visible = torch.cuda.device_count()
    if visible == 1 and place.launcher == "srun":  # each task may see only the GPU assigned to it
        return [torch.device("cuda", 0)] * place.local_size
    if visible < place.local_size:
        raise InputError(f"{place.local_size} processes on this machine, but it has {counted(visible, 'GPU')}.")
    return [torch.device("cuda", number) for number in range(place.local_size)]
