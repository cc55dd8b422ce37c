"""Stands in for the `relatum` command in tests of the grid: writes the files that training and evaluation would.

Accuracies are a pure function of the condition. Its behaviour is set by the environment: STUB_FAIL names a word that
makes commands with it fail, STUB_SLEEP is how long a pretraining takes (in steps of 20 ms, each one saved), STUB_TRACE
is a file that gets one line per command.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import time
import zlib
from pathlib import Path


def main() -> int:
    with Path(os.environ["STUB_TRACE"]).open("a") as trace:
        trace.write(" ".join(sys.argv[1:]) + "\n")
    if os.environ.get("STUB_FAIL", "nothing") in sys.argv:
        print("Epoch 1\nerror: something went wrong here\nDo it otherwise.", file=sys.stderr)
        return 1
    return pretrain() if sys.argv[1] == "pretrain" else evaluate()


def pretrain() -> int:
    parser = argparse.ArgumentParser()
    for flag in ("--method", "--backbone", "--out", "--preset"):
        parser.add_argument(flag, required=True)
    for flag in ("--views", "--batch-size", "--epochs", "--seed", "--limit-train"):
        parser.add_argument(flag, type=int)
    parser.add_argument("--labels", type=float)
    parser.add_argument("--val-fraction", type=float)
    parser.add_argument("--set", action="append", default=[])
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("data")
    args = parser.parse_args(sys.argv[2:])
    from relatum import config

    keys = {"views.number": args.views, "train.batch_size": args.batch_size, "train.epochs": args.epochs}
    keys |= {"method": args.method, "backbone.name": args.backbone, "data.name": args.data, "seed": args.seed}
    keys |= {"data.labels": args.labels, "data.val_fraction": args.val_fraction, "data.limit_train": args.limit_train}
    recipe = config.draft(sets=args.set, flags={**keys, "preset": args.preset}).recipe()
    run = Path(args.out)
    (run / "evaluations").mkdir(parents=True, exist_ok=True)
    (run / "recipe.toml").write_text(recipe.to_toml())
    if stopped_by := train(run):
        return 128 + stopped_by
    if args.method == "supervised":
        split = "val" if args.val_fraction else "test"
        result(run, "classifier", args.data, split, args)
    (run / "backbone.safetensors").write_bytes(b"weights")
    return 0


def train(run: Path) -> int:
    """Counts steps in a file, so that a resumed run goes on where it was; returns the signal that stopped it, or 0."""
    stopped: list[int] = []
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1):
        signal.signal(number, lambda number, _: stopped.append(number))
    metrics = run / "metrics.jsonl"
    done = len(metrics.read_text().splitlines()) if metrics.exists() else 0
    for step in range(done + 1, int(float(os.environ.get("STUB_SLEEP", "0")) / 0.02) + 2):
        with metrics.open("a") as file:
            file.write(json.dumps({"step": step, "epoch": 0, "loss": 1.0 / step}) + "\n")
        if stopped:
            return stopped[0]
        time.sleep(0.02 if "STUB_SLEEP" in os.environ else 0)
    return 0


def evaluate() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("protocol")
    parser.add_argument("run")
    for flag in ("--data", "--split", "--tag"):
        parser.add_argument(flag, default="")
    for flag in ("--epochs", "--seed"):
        parser.add_argument(flag, type=int)
    parser.add_argument("--set", action="append", default=[])
    args = parser.parse_args(sys.argv[2:])
    run = Path(args.run)
    assert (run / "backbone.safetensors").exists()
    result(run, args.protocol, args.data, args.split, args, args.tag)
    return 0


def result(run: Path, protocol: str, dataset: str, split: str, args: argparse.Namespace, tag: str = "") -> None:
    number = zlib.crc32(f"{run.name.rsplit('-', 2)[0]}{protocol}{dataset}".encode()) % 5000 / 100 + args.seed / 10
    details = {}
    if protocol == "retrieval":
        matrix = [[10.0 + 50.0 * (i == j) for j in range(10)] for i in range(10)]
        details = {"top10": number, "top100": number, "top1000": number, "matrices": {"top10": matrix}}
    document = {"protocol": protocol, "dataset": dataset, "split": split, "tag": tag, "details": details}
    document |= {"accuracy": None if protocol == "tsne" else number, "settings": settings(run, protocol, dataset, args)}
    (run / "evaluations").mkdir(exist_ok=True)
    name = "-".join(filter(None, (protocol, dataset, split, tag)))
    (run / "evaluations" / f"{name}.json").write_text(json.dumps(document))
    if protocol in ("retrieval", "tsne"):
        (run / "artifacts").mkdir(exist_ok=True)
        (run / "artifacts" / f"{name}.npz").write_bytes(b"no picture")


def settings(run: Path, protocol: str, dataset: str, args: argparse.Namespace) -> dict[str, object]:
    """What the real protocol would say of itself."""
    from relatum.paper import grid
    from relatum.runs.folder import read_recipe

    if protocol == "classifier":
        return {}
    said = {"seed": args.seed, "val_fraction": read_recipe(run).data.val_fraction}
    said |= {"epochs": args.epochs} if args.epochs else {}
    said |= {key: int(value) for key, value in (text.split("=") for text in args.set)}
    return {**grid.protocol_settings(protocol, dataset), **said}


if __name__ == "__main__":
    sys.exit(main())
