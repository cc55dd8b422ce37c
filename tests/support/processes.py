"""Processes that are connected by gloo: started once, they run function after function and return the results."""

from __future__ import annotations

import io
import os
import tempfile
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

import torch
from torch import distributed, multiprocessing

_SECONDS = 180


def _serve(rank: int, size: int, folder: str, pipe: Connection) -> None:
    """Run what arrives through the pipe, until None does. Results travel as bytes: no shared memory to clean up."""
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=size)
    while (task := pipe.recv()) is not None:
        function, arguments = task
        try:
            result = function(*arguments)
        except Exception:
            pipe.send(("error", traceback.format_exc()))
            return  # the others may wait for this process in vain: the group cannot be used again
        buffer = io.BytesIO()
        torch.save(result, buffer)
        pipe.send(("result", buffer.getvalue()))
    distributed.destroy_process_group()


class Processes:
    """`size` connected processes; use it as a context manager."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._folder = tempfile.TemporaryDirectory()
        context = multiprocessing.get_context("spawn")
        self._pipes, self._processes = [], []
        for rank in range(size):
            ours, theirs = context.Pipe()
            process = context.Process(target=_serve, args=(rank, size, self._folder.name, theirs), daemon=True)
            process.start()
            theirs.close()
            self._pipes.append(ours)
            self._processes.append(process)

    def run(self, function: Callable[..., Any], *arguments: Any) -> list[Any]:
        """What `function(*arguments)` returns in each process; tensors and plain values."""
        for pipe in self._pipes:
            pipe.send((function, arguments))
        answers = []
        for rank, pipe in enumerate(self._pipes):
            assert pipe.poll(_SECONDS), f"process {rank} did not answer"
            kind, value = pipe.recv()
            assert kind == "result", f"process {rank}:\n{value}"
            answers.append(torch.load(io.BytesIO(value), weights_only=False))
        return answers

    def __enter__(self) -> Processes:
        return self

    def __exit__(self, *error: object) -> None:
        for pipe, process in zip(self._pipes, self._processes, strict=True):
            if error[0] is None and process.is_alive():
                pipe.send(None)
        for process in self._processes:
            process.join(20 if error[0] is None else 0)
            if process.is_alive():
                process.kill()
        self._folder.cleanup()
