"""Run a function in several processes that are connected by gloo, and get what each returned."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import distributed, multiprocessing


def _start(rank: int, size: int, folder: str, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=size)
    try:
        torch.save(function(*arguments), Path(folder) / f"{rank}.pt")
        distributed.barrier()
    finally:
        distributed.destroy_process_group()


def run_in_processes(size: int, function: Callable[..., Any], *arguments: Any) -> list[Any]:
    """What `function(*arguments)` returns in each of `size` processes; tensors and plain values."""
    with tempfile.TemporaryDirectory() as folder:
        context = multiprocessing.get_context("spawn")
        started = [
            context.Process(target=_start, args=(rank, size, folder, function, arguments)) for rank in range(size)
        ]
        for process in started:
            process.start()
        for process in started:
            process.join(180)
        for process in started:
            if process.is_alive():
                process.kill()
        assert [process.exitcode for process in started] == [0] * size
        return [torch.load(Path(folder) / f"{rank}.pt", weights_only=False) for rank in range(size)]
