"""The cost of checksums: each kind of file is read or written with and without its hash, alternately in one run.

`python benchmarks/hashing.py` prints a table; values are medians of alternating repetitions.
"""

from __future__ import annotations

import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch

from relatum import backbones
from relatum.data import seal
from relatum.data.imageset import ImageSet
from relatum.features import cached, extract
from relatum.runs import checkpoint, digest, weights

FACTS = {"backbone": "resnet34", "num_features": 512, "side": 32, "mean": [0.5] * 3, "std": [0.25] * 3}


def pair(with_hash: Callable[[], Any], without: Callable[[], Any], repetitions: int = 7) -> tuple[float, float]:
    """Median seconds of both, measured in turns."""
    times: tuple[list[float], list[float]] = ([], [])
    with_hash(), without()
    for _ in range(repetitions):
        for function, seconds in zip((with_hash, without), times, strict=True):
            began = time.perf_counter()
            function()
            seconds.append(time.perf_counter() - began)
    return statistics.median(times[0]), statistics.median(times[1])


def unhashed(function: Callable[[], Any], *names: str) -> Callable[[], Any]:
    """The function with these hashes replaced by a constant."""

    def run() -> Any:
        patches = [mock.patch(name, return_value="x") for name in names]
        for patch in patches:
            patch.start()
        try:
            return function()
        finally:
            for patch in patches:
                patch.stop()

    return run


def main() -> None:
    """Measure and print."""
    with tempfile.TemporaryDirectory() as place:
        rows = measure(Path(place))
    print("| what | MB | with | without | ratio | ms per MB |")
    print("| --- | --- | --- | --- | --- | --- |")
    for name, megabytes, (hashed, bare) in rows:
        cost = 1000 * (hashed - bare)
        print(
            f"| {name} | {megabytes:.1f} | {1000 * hashed:.1f} ms | {1000 * bare:.1f} ms | {hashed / bare:.2f} "
            f"| {cost / megabytes:.2f} |"
        )


def measure(place: Path) -> list[tuple[str, float, tuple[float, float]]]:
    """The rows of the table: name, megabytes, seconds with and without."""
    rows: list[tuple[str, float, tuple[float, float]]] = []
    network = backbones.build("resnet34", seed=1)
    state = network.state_dict()
    moments = {
        i: {"exp_avg": torch.zeros_like(p), "exp_avg_sq": torch.zeros_like(p)}
        for i, p in enumerate(network.parameters())
    }
    whole = {"objective": state, "optimizer": {"state": moments}, "step": 1, "recipe": "", "info": FACTS}
    file = place / "last.ckpt"
    save = lambda: checkpoint.save(file, whole)  # noqa: E731
    rows.append(("checkpoint, save", 0.0, pair(save, unhashed(save, "relatum.runs.checkpoint.digest"))))
    size = file.stat().st_size / 1e6
    rows[-1] = (rows[-1][0], size, rows[-1][2])
    save()
    load = lambda: checkpoint.load(file)  # noqa: E731
    rows.append(("checkpoint, load", size, pair(load, _unchecked(file))))
    path = place / "backbone.safetensors"
    weights.save_weights(path, state, FACTS)
    read = lambda: weights.load_weights(path)  # noqa: E731
    without_digest = place / "plain.safetensors"
    from safetensors.torch import save_file

    save_file(state, without_digest, {"relatum": json.dumps(FACTS)})
    plain = lambda: weights.load_weights(without_digest)  # noqa: E731
    rows.append(("weights, load", path.stat().st_size / 1e6, pair(read, plain)))
    entry = place / "entry"
    entry.mkdir()
    images = np.random.default_rng(0).integers(0, 255, (50_000, 32, 32, 3), np.uint8)
    np.save(entry / "images.npy", images)
    seal.write_seal(entry)

    def opened(check: bool) -> Callable[[], Any]:
        def run() -> Any:
            seal._checked.clear()
            if check:
                seal.check_seal(entry)
            return int(np.load(entry / "images.npy", mmap_mode="r").max())  # training reads every pixel

        return run

    rows.append(("image cache, open and read", images.nbytes / 1e6, pair(opened(True), opened(False))))
    few = ImageSet("x", "train", images[:2000], None, (), (0.5,) * 3, (0.25,) * 3, 4)
    conv = backbones.build("conv4", seed=1).eval()
    target = place / "features"
    kept = lambda: cached(conv, few, target)  # noqa: E731
    kept()
    blank = unhashed(kept, "relatum.features.extract.state_hash", "relatum.features.extract.pixel_hash")
    blank()
    rows.append(("cached features, read (2,000 images, key included)", few.images.nbytes / 1e6, pair(kept, blank)))
    compute = lambda: extract(conv, few)  # noqa: E731
    rows.append(("cached features, read instead of computed", few.images.nbytes / 1e6, pair(kept, compute)))
    return rows


def _unchecked(file: Path) -> Callable[[], Any]:
    """`checkpoint.load` with a digest that is known beforehand."""
    known = torch.load(file, weights_only=True)[digest.KEY]

    def run() -> Any:
        with mock.patch("relatum.runs.checkpoint.digest", return_value=known):
            return checkpoint.load(file)

    return run


if __name__ == "__main__":
    main()
