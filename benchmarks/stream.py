"""Streaming measured: every image once per epoch, memory and disk over an epoch, speed against the memory map.

    python benchmarks/stream.py --images 200000 --out /tmp/stream      writes stream.json and memory.png there

Shards of small PNG files are made in the folder and served by a web server on this machine, so the cache of blocks is
used and can be smaller than the data. The number of each image is written in its first pixel: what is counted is what
was decoded. One epoch is walked by one process and by two (without training); then steps of Conv-4 with K = 8 alternate
between the stream and the memory map.
"""

import argparse
import io
import json
import multiprocessing
import os
import statistics
import tarfile
import time
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from relatum import config
from relatum.data.shards import write_index
from relatum.data.stream.store import LocalShards
from relatum.runs import provenance
from relatum.training import optim
from relatum.training.batches import BatchMaker
from relatum.training.build import make_objective
from relatum.training.resolve import resolve

SIDE, PER_SHARD, WINDOW = 32, 5_000, 4_096


class Handler(SimpleHTTPRequestHandler):
    """A web server that answers ranges, as storage services do."""

    def do_GET(self) -> None:
        """Answer with a part of a file, or with a file."""
        path, wanted = Path(self.translate_path(self.path)), self.headers.get("Range")
        if wanted is None or not path.is_file():
            super().do_GET()
            return
        first, last = (int(number) for number in wanted.removeprefix("bytes=").split("-"))
        with path.open("rb") as file:
            part = os.pread(file.fileno(), last + 1 - first, first)
        self.send_response(206)
        self.send_header("Content-Length", str(len(part)))
        self.send_header("Content-Range", f"bytes {first}-{first + len(part) - 1}/{path.stat().st_size}")
        self.end_headers()
        self.wfile.write(part)

    def log_message(self, *args: object) -> None:
        """Print nothing."""


def serve(folder: str, port: Any) -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=folder)) as server:
        port.put(server.server_address[1])
        server.serve_forever()


def make_shards(folder: Path, images: int) -> None:
    """Shards of noisy gradients; the first pixel holds the number of the image."""
    folder.mkdir(parents=True)
    generator = np.random.default_rng(0)
    ramp = np.linspace(0, 120, SIDE)[None, :, None] + np.linspace(0, 120, SIDE)[:, None, None]
    paths = []
    for first in range(0, images, PER_SHARD):
        paths.append(folder / f"{first // PER_SHARD:05d}.tar")
        with tarfile.open(paths[-1], "w") as tar:
            for number in range(first, min(first + PER_SHARD, images)):
                pixels = (ramp + generator.integers(0, 16, (SIDE, SIDE, 3))).astype(np.uint8)
                pixels[0, 0] = number % 256, number // 256 % 256, number // 65536
                out = io.BytesIO()
                Image.fromarray(pixels).save(out, "PNG", compress_level=1)
                member = tarfile.TarInfo(f"{number:08d}.png")
                member.size = out.tell()
                tar.addfile(member, io.BytesIO(out.getvalue()))
    write_index(LocalShards(paths), folder)


def resolved_for(data: str, storage: str, cache_gb: float) -> Any:
    flags = {"data.name": data, "data.storage": storage, "data.cache_gb": cache_gb, "run.device": "cpu"}
    flags |= {
        "data.window": WINDOW,
        "views.number": 8,
        "train.batch_size": 64,
        "train.epochs": 1,
        "data.side": SIDE,
        "backbone.name": "conv4",
    }
    return resolve(config.draft(flags={**flags, "run.threads": torch.get_num_threads()}))


def memory() -> float:
    """MB of this process's own memory, without mapped files."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon"):
            return int(line.split()[1]) / 1000
    return float("nan")


def cached() -> float:
    """MB of cached blocks on disk, of all processes."""
    total = 0
    for path in Path(os.environ["RELATUM_CACHE"]).glob("blocks/*/*.block"):
        try:
            total += path.stat().st_size
        except FileNotFoundError:
            continue
    return total / 1e6


def walk(url: str, cache_gb: float, rank: int, world: int, answers: Any) -> None:
    """Decode the share of a process of one epoch; count the images by their first pixel."""
    torch.set_num_threads(1)
    resolved = resolved_for(url, "stream", cache_gb / world)
    maker = BatchMaker(resolved.images, resolved.recipe, rank=rank, world=world)
    counts, samples = np.zeros(len(resolved.images), np.int64), []
    began = time.perf_counter()
    for step in range(maker.steps_per_epoch):
        pixels = maker._pixels.get(step)
        first = pixels.rows[pixels.slots, 0, 0].astype(np.int64)
        np.add.at(counts, first[:, 0] + 256 * first[:, 1] + 65536 * first[:, 2], 1)
        if step % max(1, maker.steps_per_epoch // 100) == 0:
            samples.append((step / maker.steps_per_epoch, memory(), cached()))
    answers.put((rank, counts, samples, time.perf_counter() - began))


def epoch(url: str, cache_gb: float, world: int) -> dict[str, Any]:
    context = multiprocessing.get_context("spawn")
    answers = context.Queue()
    processes = [context.Process(target=walk, args=(url, cache_gb, rank, world, answers)) for rank in range(world)]
    for process in processes:
        process.start()
    results = sorted((answers.get() for _ in processes), key=lambda result: result[0])
    for process in processes:
        process.join()
    counts = np.sum([result[1] for result in results], axis=0)
    samples = results[0][2]
    return {
        "processes": world,
        "images": len(counts),
        "seen_once": int((counts == 1).sum()),
        "seconds": round(max(result[3] for result in results), 1),
        "memory_mb": samples,
        "memory_growth_mb": round(samples[-1][1] - samples[len(samples) // 10][1], 1),
        "largest_cache_mb": round(max(s[2] for s in samples), 1),
    }


def speed(url: str, folder: Path, cache_gb: float, blocks: int, steps: int) -> dict[str, Any]:
    """Seconds per step from the stream and from the map, in turn, so that both meet the same machine."""
    sides: dict[str, Any] = {}
    for storage, data in (("stream", url), ("map", str(folder))):
        resolved = resolved_for(data, storage, cache_gb)
        objective = make_objective(resolved).train()
        train = resolved.recipe.train
        optimizer = optim.make_optimizer(train, optim.parameter_groups(train, objective, objective.backbone))
        sides[storage] = BatchMaker(resolved.images, resolved.recipe), objective, optimizer
    seconds: dict[str, list[float]] = {"stream": [], "map": []}
    for block in range(blocks + 1):
        for storage, (maker, objective, optimizer) in sides.items():
            began = time.perf_counter()
            for step in range(block * steps, (block + 1) * steps):
                loss, _ = objective(maker.make(step))
                loss.backward()
                optimizer.step()
                optimizer.zero_grad(set_to_none=True)
            if block:  # the first one compiles
                seconds[storage].append((time.perf_counter() - began) / steps)
    ratios = [a / b for a, b in zip(seconds["stream"], seconds["map"], strict=True)]
    return {
        **{f"{name}_ms": round(1000 * statistics.median(values), 2) for name, values in seconds.items()},
        "ratio": round(statistics.median(ratios), 3),
        "ratios": [round(ratio, 3) for ratio in ratios],
    }


def plot(results: list[dict[str, Any]], limit_mb: float, path: Path) -> None:
    from matplotlib.figure import Figure

    canvas = Figure(figsize=(8, 3.6), layout="constrained")
    left, right = canvas.subplots(1, 2)
    for result in results:
        done, used, disk = zip(*result["memory_mb"], strict=True)
        name = f"{result['processes']} process(es)"
        left.plot([100 * d for d in done], used, label=name)
        right.plot([100 * d for d in done], disk, label=name)
    right.axhline(limit_mb, color="grey", linestyle=":", label="stated size of the cache")
    for axes, title in ((left, "memory of the first process, MB"), (right, "cache on disk, MB")):
        axes.set(xlabel="percent of an epoch", title=title, ylim=(0, None))
        axes.legend(frameon=False, fontsize=8)
    canvas.savefig(path, dpi=130)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=200_000)
    parser.add_argument("--cache-mb", type=float, default=64.0)
    parser.add_argument("--blocks", type=int, default=10, help="blocks of steps that are timed")
    parser.add_argument("--steps", type=int, default=20, help="steps per block")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    folder, cache_gb = options.out / "shards", options.cache_mb / 1000
    os.environ["RELATUM_CACHE"] = str(options.out / "cache")
    began = time.perf_counter()
    if not folder.exists():
        make_shards(folder, options.images)
    size = sum(path.stat().st_size for path in folder.glob("*.tar")) / 1e6
    print(
        f"{options.images:,} images, {size:.0f} MB of shards, made in {time.perf_counter() - began:.0f} s", flush=True
    )
    context = multiprocessing.get_context("spawn")
    port = context.Queue()
    server = context.Process(target=serve, args=(str(folder), port), daemon=True)
    server.start()
    url = f"http://127.0.0.1:{port.get()}"
    results = []
    for world in (1, 2):
        results.append(epoch(url, cache_gb, world))
        print({key: value for key, value in results[-1].items() if key != "memory_mb"}, flush=True)
    plot(results, options.cache_mb, options.out / "memory.png")
    timed = speed(url, folder, cache_gb, options.blocks, options.steps)
    print(timed, flush=True)
    server.terminate()
    document = {"images": options.images, "shards_mb": round(size), "cache_mb": options.cache_mb, "epochs": results}
    document |= {"step": timed, "threads": torch.get_num_threads(), **provenance.record()}
    (options.out / "stream.json").write_text(json.dumps(document, indent=1))
    assert all(result["seen_once"] == result["images"] for result in results), "an image was not seen exactly once"


if __name__ == "__main__":
    main()
