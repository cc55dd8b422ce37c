"""The cost of exact data-parallel training: two processes with one thread each, compared with one with two threads.

    python benchmarks/data_parallel.py [--views 8 32]      writes docs/data_parallel.json

Both sides train the same run (Conv-4, M = 64, built-in images) with the parts that `relatum pretrain` uses, and take
turns block by block, so that other load on the machine affects both; while one computes, the other waits. With
`sync = "local"` processes exchange only gradients: the difference is the cost of exactness. Run it on two idle cores.
"""

import argparse
import json
import multiprocessing
import os
import statistics
import tempfile
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parents[1] / "docs"
SIDES = {"one process, two threads": (1, 2, "global"), "two processes, one thread each": (2, 1, "global")}
SIDES["two processes, one thread each, sync = local"] = (2, 1, "local")


def serve(rank: int, size: int, threads: int, sync: str, views: int, folder: str, pipe: Connection) -> None:
    """Train the number of steps that arrives through the pipe, and answer with the seconds they took."""
    os.environ.update(GLOO_SOCKET_IFNAME="lo", OMP_NUM_THREADS=str(threads))
    import torch
    from torch import distributed

    from relatum import config
    from relatum.distributed import World
    from relatum.runs.folder import RunFolder
    from relatum.system.allocator import keep_freed_memory
    from relatum.system.launcher import Place
    from relatum.training import build
    from relatum.training.batches import batches
    from relatum.training.engine import make_fabric
    from relatum.training.loop import Trainer
    from relatum.training.resolve import resolve

    if size > 1:
        distributed.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=size)
    flags = {"data.name": "shapes", "views.number": views, "train.batch_size": 64, "train.epochs": 1000}
    flags |= {"run.device": "cpu", "run.devices": size, "run.threads": threads, "train.sync": sync}
    resolved = resolve(config.draft(flags=flags))
    torch.set_num_threads(threads)
    keep_freed_memory()
    objective = build.make_objective(resolved)
    fabric = make_fabric(resolved.recipe, Place("relatum", rank, size, rank, size))
    if sync == "global":
        objective.connect(World(rank, size))
    maker = build.make_batches(resolved, objective, fabric)
    trainer = Trainer(objective, resolved.recipe, maker, RunFolder(Path(folder)), fabric=fabric)
    objective.train()
    while (steps := pipe.recv()) is not None:
        began = time.perf_counter()
        ahead = resolved.recipe.run.prefetch == "on"
        for batch in batches(maker, trainer.step, trainer.step + steps, ahead=ahead):
            loss, values = trainer.train_step(batch)
            trainer._across_processes(loss, values, False)
            trainer.step += 1
        pipe.send(time.perf_counter() - began)
    if size > 1:
        distributed.destroy_process_group()


class Side:
    """The processes of one side, which wait while the other computes."""

    def __init__(self, size: int, threads: int, sync: str, views: int) -> None:
        self._folder = tempfile.TemporaryDirectory()
        context = multiprocessing.get_context("spawn")
        self._pipes, self._processes = [], []
        for rank in range(size):
            ours, theirs = context.Pipe()
            arguments = (rank, size, threads, sync, views, self._folder.name, theirs)
            self._processes.append(context.Process(target=serve, args=arguments, daemon=True))
            self._processes[-1].start()
            self._pipes.append(ours)

    def seconds(self, steps: int) -> float:
        """Train some steps; how long one of them took."""
        for pipe in self._pipes:
            pipe.send(steps)
        return max(pipe.recv() for pipe in self._pipes) / steps

    def close(self) -> None:
        """End the processes."""
        for pipe in self._pipes:
            pipe.send(None)
        for process in self._processes:
            process.join()
        self._folder.cleanup()


def measure(views: int, blocks: int, steps: int) -> dict[str, Any]:
    sides = {name: Side(*facts, views) for name, facts in SIDES.items()}
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    for side in sides.values():
        side.seconds(steps)  # the first one compiles
    for _ in range(blocks):
        for name, side in sides.items():
            seconds[name].append(side.seconds(steps))
    for side in sides.values():
        side.close()
    base = statistics.median(seconds[next(iter(SIDES))])
    rows = {
        name: {
            "ms": round(1000 * statistics.median(values), 2),
            "spread_ms": [round(1000 * value, 2) for value in (min(values), max(values))],
            "ratio": round(statistics.median(values) / base, 3),
        }
        for name, values in seconds.items()
    }
    return {"views": views, "batch_size": 64, "backbone": "conv4", "blocks": blocks, "steps": steps, "sides": rows}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--views", type=int, nargs="+", default=[8, 32])
    parser.add_argument("--blocks", type=int, default=9, help="blocks of steps per side")
    parser.add_argument("--seconds", type=float, default=30.0, help="roughly, for each number of views")
    parser.add_argument("--out", type=Path, default=DOCS, help="folder of data_parallel.json")
    options = parser.parse_args()
    from relatum.runs import provenance

    results = []
    for views in options.views:
        per_step = 0.006 * views  # seconds, on the machine of docs/performance.md
        steps = max(1, round(options.seconds / len(SIDES) / options.blocks / per_step))
        results.append(measure(views, options.blocks, steps))
        print(json.dumps(results[-1], indent=1), flush=True)
    path = options.out / "data_parallel.json"
    path.write_text(json.dumps({"results": results, **provenance.record()}, indent=1) + "\n")


if __name__ == "__main__":
    main()
