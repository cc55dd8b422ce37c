"""Time and memory of the relation head, forward and backward, compared with concatenating all pairs.

Both implementations run in this process, in turn, on the same features and parameters; medians and quartiles are
reported. Peak extra memory is measured in a new process for each: the highest resident set during the first step minus
the resident set before it, when torch, features and compiled kernels are loaded and a tiny list has been processed. It
includes the arrays of both torch and numpy.
"""

from __future__ import annotations

import multiprocessing
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from relatum.bench import spread
from relatum.bench.plain_head import PlainHead
from relatum.relation import RelationHead, choose_backend, pair_loss, roll_pairs


def measure(views: int = 32, batch_size: int = 64, num_features: int = 64, repeats: int = 20) -> dict[str, Any]:
    """Time and memory of the head with loss, forward and backward, for both sides.

    Args:
        views: K.
        batch_size: M.
        num_features: d.
        repeats: measured steps of each side, after two that are not.
    """
    steps = {side: make_step(side, views, batch_size, num_features) for side in ("ours", "plain")}
    seconds = _interleaved(steps, repeats)
    extra = {side: extra_bytes(side, views, batch_size, num_features) for side in steps}
    medians = {side: statistics.median(times) for side, times in seconds.items()}
    head, features = _inputs(views, batch_size, num_features)
    return {
        "what": "head",
        "method": "relational",
        "views": views,
        "batch_size": batch_size,
        "side": None,
        "backbone": None,
        "num_features": num_features,
        "pairs": len(roll_pairs(views, batch_size)),
        "kernels": choose_backend(head, features),
        "threads": torch.get_num_threads(),
        "repeats": repeats,
        "ours_seconds": medians["ours"],
        "plain_seconds": medians["plain"],
        "speedup": medians["plain"] / medians["ours"],
        "spread": {side: spread(times) for side, times in seconds.items()},
        "extra_bytes_ours": extra["ours"],
        "extra_bytes_plain": extra["plain"],
    }


def make_step(side: str, views: int, batch_size: int, num_features: int) -> Callable[[], Tensor]:
    """One forward and backward of a side, `ours` or `plain`, on fixed features; both give the same loss."""
    head, features = _inputs(views, batch_size, num_features)
    model: nn.Module = head
    if side == "plain":
        model = PlainHead(num_features, views, batch_size)
        model.load_state_dict(head.state_dict())

    def step() -> Tensor:
        model.zero_grad(set_to_none=True)
        leaf = features.detach().requires_grad_()
        loss: Tensor
        if side == "plain":
            loss = model(leaf)
        else:
            loss = pair_loss(model, leaf, roll_pairs(views, batch_size)).loss
        loss.backward()  # type: ignore[no-untyped-call]
        return loss.detach()

    return step


def extra_bytes(side: str, views: int, batch_size: int, num_features: int) -> int | None:
    """Peak memory of the first step of a side in a new process, beyond what was resident before; None on Windows."""
    context = multiprocessing.get_context("spawn")
    with context.Pool(1) as pool:
        return pool.apply(_peak_growth, (side, views, batch_size, num_features, torch.get_num_threads()))


def _peak_growth(side: str, views: int, batch_size: int, num_features: int, threads: int) -> int | None:
    torch.set_num_threads(threads)
    for _ in range(2):
        make_step(side, 3, 4, num_features)()
    step = make_step(side, views, batch_size, num_features)
    before = _resident_and_peak()
    step()
    after = _resident_and_peak()
    return None if before is None or after is None else after[1] - before[0]


def _resident_and_peak() -> tuple[int, int] | None:
    """The resident memory now and its peak, in bytes; None on Windows.

    Linux has `ru_maxrss` too, but a child process inherits its parent's peak there.
    """
    try:
        lines = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
        return tuple(int(lines[name].split()[0]) * 1024 for name in ("VmRSS", "VmHWM"))  # type: ignore[return-value]
    except OSError:
        try:
            import resource
        except ImportError:  # Windows
            return None
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # macOS, in bytes
        return peak, peak


def _inputs(views: int, batch_size: int, num_features: int) -> tuple[RelationHead, Tensor]:
    torch.manual_seed(0)
    return RelationHead(num_features), torch.randn(views * batch_size, num_features)


def _interleaved(steps: dict[str, Callable[[], Tensor]], repeats: int) -> dict[str, list[float]]:
    for step in steps.values():
        step()
        step()
    seconds: dict[str, list[float]] = {side: [] for side in steps}
    for _ in range(repeats):
        for side, step in steps.items():
            started = time.perf_counter()
            step()
            seconds[side].append(time.perf_counter() - started)
    return seconds
