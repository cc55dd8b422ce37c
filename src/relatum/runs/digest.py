"""A SHA-256 over tensors and plain values: checkpoints and weights contain theirs, and reading checks it.

It covers names, types, shapes and bits, and not how a file stores them: a file is rejected exactly if something in it
differs from what was written.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

KEY = "digest"


def digest(value: Any) -> str:
    """`sha256:HEX` of nested mappings, sequences, tensors, bytes, texts, numbers and None.

    Of anything else only the type counts. Training writes nothing else; an objective with extra state may.
    """
    state = hashlib.sha256()
    _update(state, value)
    return f"sha256:{state.hexdigest()}"


def _update(state: Any, value: Any) -> None:
    if isinstance(value, Tensor):
        tensor = value.detach().cpu().contiguous()
        state.update(f"tensor {tensor.dtype} {tuple(tensor.shape)};".encode())
        if tensor.numel():
            state.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    elif isinstance(value, Mapping):
        state.update(f"mapping {len(value)};".encode())
        for key, item in value.items():
            _update(state, key)
            _update(state, item)
    elif isinstance(value, list | tuple):
        state.update(f"sequence {len(value)};".encode())
        for item in value:
            _update(state, item)
    elif value is None or isinstance(value, str | bool | int | float):
        text = (value if isinstance(value, str) else repr(value)).encode("utf-8", "surrogatepass")
        state.update(f"{type(value).__name__} {len(text)};".encode() + text)
    elif isinstance(value, bytes):
        state.update(f"bytes {len(value)};".encode() + value)
    else:
        state.update(f"{type(value).__name__};".encode())
