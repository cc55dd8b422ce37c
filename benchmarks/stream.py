"""Benchmark of streaming: every image once per epoch, memory and disk over an epoch, speed relative to the memory map.

    python benchmarks/stream.py --work /tmp/stream      writes docs/stream.json and docs/stream.svg

Shards of small PNG files (a dataset's images, or noisy gradients) are written to the folder `--work` and served by a
web server on this machine, so the cache of blocks is used and can be smaller than the data. The number of each image is
written in its first pixel, so decoded images are counted. One epoch is read by one process and by two (without
training); one and two processes train an epoch, are killed in its middle and resumed; then steps of Conv-4 with K = 8
alternate between the stream and the memory map.
"""

import argparse
import io
import json
import multiprocessing
import os
import re
import signal
import statistics
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from relatum import config, data
from relatum.bench.step import our_step
from relatum.data.shards import write_index
from relatum.data.stream.store import LocalShards
from relatum.runs import provenance
from relatum.system.allocator import keep_freed_memory
from relatum.training.batches import BatchMaker
from relatum.training.resolve import resolve

SIDE, PER_SHARD, WINDOW = 32, 5_000, 4_096
DOCS = Path(__file__).parents[1] / "docs"


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


def pictures(dataset: str | None) -> Iterator[NDArray[np.uint8]]:
    """Images without end: those of a dataset in turn, or noisy gradients."""
    if dataset is not None:
        images = data.load(dataset).images
        while True:
            yield from images
    generator = np.random.default_rng(0)
    ramp = np.linspace(0, 120, SIDE)[None, :, None] + np.linspace(0, 120, SIDE)[:, None, None]
    while True:
        yield (ramp + generator.integers(0, 16, (SIDE, SIDE, 3))).astype(np.uint8)


def make_shards(folder: Path, images: int, dataset: str | None) -> None:
    """Shards of PNG files; the first pixel holds the number of the image."""
    folder.mkdir(parents=True)
    source, paths = pictures(dataset), []
    for first in range(0, images, PER_SHARD):
        paths.append(folder / f"{first // PER_SHARD:05d}.tar")
        with tarfile.open(paths[-1], "w") as tar:
            for number in range(first, min(first + PER_SHARD, images)):
                pixels = np.array(next(source))
                pixels[0, 0] = number % 256, number // 256 % 256, number // 65536
                out = io.BytesIO()
                Image.fromarray(pixels).save(out, "PNG", compress_level=1)
                member = tarfile.TarInfo(f"{number:08d}.png")
                member.size = out.tell()
                tar.addfile(member, io.BytesIO(out.getvalue()))
    write_index(LocalShards(paths), folder)


def resolved_for(name: str, storage: str, cache_gb: float) -> Any:
    flags = {"data.name": name, "data.storage": storage, "data.cache_gb": cache_gb, "run.device": "cpu"}
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
            samples.append((round(step / maker.steps_per_epoch, 3), round(memory(), 1), round(cached(), 1)))
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
    """Seconds per training step from the stream and from the map, in turn, so that both meet the same machine."""
    keep_freed_memory()
    sides = {
        storage: our_step(resolved_for(name, storage, cache_gb))
        for storage, name in (("stream", url), ("map", str(folder)))
    }
    seconds: dict[str, list[float]] = {"stream": [], "map": []}
    for block in range(blocks + 1):
        for storage, step in sides.items():
            began = time.perf_counter()
            for _ in range(steps):
                step()
            if block:  # the first one compiles
                seconds[storage].append((time.perf_counter() - began) / steps)
    ratios = [a / b for a, b in zip(seconds["stream"], seconds["map"], strict=True)]
    return {
        **{f"{name}_ms": round(1000 * statistics.median(values), 2) for name, values in seconds.items()},
        "ratio": round(statistics.median(ratios), 3),
        "ratios": [round(ratio, 3) for ratio in ratios],
    }


def killed_and_resumed(url: str, cache_gb: float, world: int, work: Path) -> dict[str, Any]:
    """Train an epoch twice, once undisturbed and once killed in its middle and resumed: are the results the same?"""
    command = [sys.executable, "-m", "relatum", "pretrain", url, "--views", "2", "--batch-size", "2000"]
    command += ["--epochs", "1", "--device", "cpu", "--devices", str(world), "--threads", "1", "--side", str(SIDE)]
    for setting in (
        f"data.cache_gb={cache_gb}",
        "log.every_steps=1",
        "checkpoint.every_steps=5",
        f"data.window={WINDOW}",
    ):
        command += ["--set", setting]
    whole, broken = (work / f"{name}-{world}" for name in ("whole", "killed"))
    subprocess.run([*command, "--out", str(whole), "--overwrite"], check=True)
    process = subprocess.Popen([*command, "--out", str(broken), "--overwrite"], start_new_session=True)
    metrics = broken / "metrics.jsonl"
    while not metrics.exists() or metrics.read_text().count("\n") < 43:
        assert process.poll() is None, "it ended before it was killed"
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    at = metrics.read_text().count("\n")
    subprocess.run([*command, "--out", str(broken), "--resume"], check=True)
    rows = [[json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()] for run in (whole, broken)]
    for row in (*rows[0], *rows[1]):
        row.pop("views_per_second")
    weights = [(run / "backbone.safetensors").read_bytes() for run in (whole, broken)]
    return {
        "processes": world,
        "steps": len(rows[0]),
        "killed_at_step": at,
        "same_weights": weights[0] == weights[1],
        "same_metrics": rows[0] == rows[1],
    }


def plot(results: list[dict[str, Any]], limit_mb: float, path: Path) -> None:
    import matplotlib
    from matplotlib.figure import Figure

    matplotlib.rcParams |= {"svg.hashsalt": "relatum", "svg.fonttype": "none"}
    canvas = Figure(figsize=(8, 3.6), layout="constrained")
    left, right = canvas.subplots(1, 2)
    for result in results:
        done, used, disk = zip(*result["memory_mb"], strict=True)
        name = f"{result['processes']} process(es)"
        left.plot([100 * d for d in done], used, label=name)
        right.plot([100 * d for d in done], disk, label=name)
    right.axhline(limit_mb, color="grey", linestyle=":", label="stated size of the cache")
    for axes, title in ((left, "memory of the first process, MB"), (right, "cache on disk, MB")):
        axes.set(xlabel="percent of an epoch", title=title, ylim=(0, 1.15 * axes.get_ylim()[1]))
        axes.legend(frameon=False, fontsize=8, loc="lower right")
    canvas.savefig(path, metadata={"Date": None})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=200_000)
    parser.add_argument("--data", help="dataset whose images are packed; noisy gradients by default")
    parser.add_argument("--cache-mb", type=float, default=64.0)
    parser.add_argument("--blocks", type=int, default=10, help="blocks of steps that are timed")
    parser.add_argument("--steps", type=int, default=20, help="steps per block")
    parser.add_argument("--part", choices=("shards", "epochs", "kill", "speed"), help="do only this part")
    parser.add_argument("--work", type=Path, required=True, help="folder for shards and caches")
    parser.add_argument("--out", type=Path, default=DOCS, help="folder of stream.json and stream.svg")
    options = parser.parse_args()
    folder, cache_gb = options.work / "shards", options.cache_mb / 1000
    os.environ["RELATUM_CACHE"] = str(options.work / "cache")
    began = time.perf_counter()
    if not folder.exists():
        make_shards(folder, options.images, options.data)
    size = sum(path.stat().st_size for path in folder.glob("*.tar")) / 1e6
    print(
        f"{options.images:,} images, {size:.0f} MB of shards, made in {time.perf_counter() - began:.0f} s", flush=True
    )
    if options.part == "shards":
        return
    context = multiprocessing.get_context("spawn")
    port = context.Queue()
    server = context.Process(target=serve, args=(str(folder), port), daemon=True)
    server.start()
    url = f"http://127.0.0.1:{port.get()}"
    path = options.out / "stream.json"
    document = json.loads(path.read_text()) if options.part and path.exists() else {}
    document |= {"images": options.images, "data": options.data, "shards_mb": round(size), "cache_mb": options.cache_mb}
    if options.part in (None, "epochs"):
        document["epochs"] = [epoch(url, cache_gb, world) for world in (1, 2)]
        for result in document["epochs"]:
            print({key: value for key, value in result.items() if key != "memory_mb"}, flush=True)
        plot(document["epochs"], options.cache_mb, options.out / "stream.svg")
    if options.part in (None, "kill"):
        document["kill"] = [killed_and_resumed(url, cache_gb, world, options.work) for world in (1, 2)]
        print(document["kill"], flush=True)
    if options.part in (None, "speed"):
        document["step"] = speed(url, folder, cache_gb, options.blocks, options.steps)
        print(document["step"], flush=True)
    server.terminate()
    document |= {"threads": torch.get_num_threads(), **provenance.record()}
    text = re.sub(r"\[\s+([\d.]+),\s+([\d.]+),\s+([\d.]+)\s+\]", r"[\1, \2, \3]", json.dumps(document, indent=1))
    path.write_text(text + "\n")
    for result in document.get("epochs", []):
        assert result["seen_once"] == result["images"], "an image was not seen exactly once"
    for result in document.get("kill", []):
        assert result["same_weights"], "a run that was killed and resumed has other weights"
        assert result["same_metrics"], "a run that was killed and resumed has other metrics"


if __name__ == "__main__":
    main()
