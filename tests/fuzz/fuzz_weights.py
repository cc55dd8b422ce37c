"""Fuzzes checkpoints and weights files: `python tests/fuzz/fuzz_weights.py --minutes 10`."""

from __future__ import annotations

import tempfile
from pathlib import Path

import torch
from harness import fuzz

from relatum.runs import checkpoint
from relatum.runs.weights import load_backbone, load_weights, save_weights


def seeds() -> list[bytes]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "file"
        state = {"objective": {"backbone.w": torch.arange(12.0).reshape(3, 4)}, "step": 3, "epoch": 1, "list": [1, "a"]}
        checkpoint.save(path, state)
        first = path.read_bytes()
        save_weights(path, {"w": torch.arange(12.0).reshape(3, 4)}, {"backbone": "conv4", "num_features": 64})
        return [first, path.read_bytes()]


SEEDS = seeds()


def attempt(content: bytes, number: int, folder: Path) -> None:
    if number == 0:
        (folder / "last.ckpt").write_bytes(content)
        checkpoint.load(folder / "last.ckpt")
        return
    path = folder / "backbone.safetensors"
    path.write_bytes(content)
    load_weights(path)
    if content != SEEDS[1]:
        load_backbone(path)


if __name__ == "__main__":
    fuzz("weights", SEEDS, attempt)
