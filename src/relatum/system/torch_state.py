"""Torch's usual state around relatum's functions, whatever the caller has set for its own code.

`torch.set_default_dtype`, `torch.set_default_device`, `torch.no_grad` and `torch.autocast` act on all code that runs
after them or inside them. Under `torch.set_default_dtype(torch.bfloat16)` a backbone would be loaded with its weights
cut to eight bits. No torch here: it is not imported for this.
"""

from __future__ import annotations

import contextlib
import functools
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

_AUTOCAST_DEVICES = ("cpu", "cuda", "mps")
_lock = threading.Lock()
_inside = 0  # calls in all threads: the default type is the process's, not the thread's
_dtype_before: Any = None


def usual_torch_state(function: Callable[P, R]) -> Callable[P, R]:
    """Decorate a public function: it runs in torch's usual state, and the caller's state is restored afterwards."""

    @functools.wraps(function)
    def run(*arguments: P.args, **keywords: P.kwargs) -> R:
        if "torch" not in sys.modules:  # then nobody has changed its state
            return function(*arguments, **keywords)
        with _usual():
            return function(*arguments, **keywords)

    return run


@contextlib.contextmanager
def _usual() -> Iterator[None]:
    import torch

    with contextlib.ExitStack() as stack:
        stack.enter_context(_float32())
        # Only where it is needed: inside, each call of torch takes longer.
        if torch.get_default_device().type != "cpu":
            stack.enter_context(torch.device("cpu"))
        for device in _AUTOCAST_DEVICES:
            if torch.is_autocast_enabled(device):
                stack.enter_context(torch.autocast(device, enabled=False))
        stack.enter_context(torch.inference_mode(False))
        stack.enter_context(torch.enable_grad())
        yield


@contextlib.contextmanager
def _float32() -> Iterator[None]:
    """float32 as torch's default type, until the last thread inside has left."""
    import torch

    global _inside, _dtype_before
    with _lock:
        if _inside == 0:
            _dtype_before = torch.get_default_dtype()
            if _dtype_before != torch.float32:
                torch.set_default_dtype(torch.float32)
        _inside += 1
    try:
        yield
    finally:
        with _lock:
            _inside -= 1
            if _inside == 0 and _dtype_before != torch.float32:
                torch.set_default_dtype(_dtype_before)
