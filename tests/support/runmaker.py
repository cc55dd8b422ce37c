"""Synthetic run folders with realistic content: what the engine and the evaluations would have left behind."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relatum import __version__
from relatum.runs import artifacts

CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
HOSTILE = (
    "<img src=x onerror=alert(1)>.png",
    "</script><script>document.title='pwned'</script>.png",
    "<!--<script>.jpg",
    "\"'><svg onload=alert(2)>.png",
    "line\u2028separator\u2029.png",
    "nul\x01bell\x07&amp;.png",
    "\u202egnp.exe",
    "surrogate-\udcff.png",
)

RECIPE = """version = "{version}"
method = "{method}"
preset = "paper"
seed = 1
init = ""

[data]
name = "{dataset}"
split = "train"
side = 32
limit_train = 0
images = 50000

[views]
policy = "relational"
number = {views}

[backbone]
name = "{backbone}"

[objective]
aggregation = "cat"
head = "relation"
gamma = 2.0

[train]
epochs = {epochs}
batch_size = 64
optimizer = "adam"
lr = 0.001
schedule = "constant"

[run]
device = "cpu"
threads = 2
"""


def blobs(n: int, side: int = 32, seed: int = 0) -> NDArray[np.uint8]:
    """Images of one soft disc each: different from one another, and small when compressed."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[:side, :side] / side
    centre, radius = rng.random((n, 2, 1, 1)), rng.uniform(0.1, 0.4, (n, 1, 1))
    disc = np.exp(-((x - centre[:, 0]) ** 2 + (y - centre[:, 1]) ** 2) / radius**2)[..., None]
    colours = rng.uniform(0, 255, (2, n, 1, 1, 3))
    return (colours[0] * disc + colours[1] * (1 - disc)).astype(np.uint8)


class RunMaker:
    """Writes a run folder piece by piece; `full` writes all of it."""

    def __init__(
        self,
        folder: Path,
        *,
        method: str = "relational",
        dataset: str = "cifar10",
        backbone: str = "conv4",
        seed: int = 0,
    ) -> None:
        self.folder, self.method, self.dataset, self.backbone = folder, method, dataset, backbone
        self.rng = np.random.default_rng(seed)
        self.seed = seed
        folder.mkdir(parents=True, exist_ok=True)

    def full(
        self, images: NDArray[np.uint8], labels: NDArray[np.int64] | None, *, names: Any = None, classes: Any = CLASSES
    ) -> Path:
        self.recipe().info(classes=list(classes) if labels is not None else []).metrics()
        self.views(images).pairs(images)
        self.tsne(images, labels, names=names, classes=classes).retrieval(images, labels, names=names, classes=classes)
        if labels is not None:
            self.evaluation(
                "linear",
                accuracy=61.03 + self.seed,
                settings={
                    "epochs": 100,
                    "lr": 0.001,
                    "batch_size": 128,
                    "seed": 1,
                    "batch_norm": "eval",
                    "reported": "last epoch",
                },
            )
            self.evaluation("knn", accuracy=55.4, settings={"k": 20, "temperature": 0.07, "metric": "cosine"})
            self.evaluation("linear", dataset="cifar100", accuracy=31.7, settings={"epochs": 100, "lr": 0.001})
            self.matrices(len(classes), classes)
        return self.folder

    def recipe(self, *, epochs: int = 200, views: int = 32, version: str = __version__) -> RunMaker:
        text = RECIPE.format(
            version=version,
            method=self.method,
            dataset=self.dataset,
            backbone=self.backbone,
            epochs=epochs,
            views=views,
        )
        (self.folder / "recipe.toml").write_text(text, "utf-8")
        return self

    def info(self, **changes: Any) -> RunMaker:
        info = {
            "status": "finished",
            "started": "2026-11-15T19:56:00Z",
            "seconds": 8103.5,
            "images": 50000,
            "steps": 156400,
            "total_steps": 156400,
            "classes": list(CLASSES),
            "version": __version__,
            "commit": "0123456789abcdef",
            "threads": 2,
            "machine": {"cpu": "Some CPU @ 2.50GHz", "cores": 2},
            "versions": {"python": "3.11.7", "torch": "2.13.0"},
            "command": f"relatum pretrain {self.dataset} --out runs/{self.folder.name}",
            "skipped": [],
        }
        (self.folder / "run.json").write_text(json.dumps(info | changes), "utf-8")
        return self

    def metrics(self, steps: int = 156400, logged: int = 2000, extra: str = "") -> RunMaker:
        lines = []
        for step in np.unique(np.linspace(1, steps, logged).astype(int)):
            part, noise = step / steps, self.rng.normal(0, 1, 4)
            loss = 0.05 + 0.12 * np.exp(-6 * part) + 0.004 * noise[0] + 0.003 * self.seed
            row = {
                "step": int(step),
                "epoch": int(part * 200) + 1,
                "loss": loss,
                "views_per_second": 23000 + 900 * noise[1] - 2000 * self.seed,
                "lr": 0.001,
            }
            if self.method == "relational":
                row |= {
                    "accuracy": 0.9 - 0.25 * np.exp(-5 * part),
                    "positive_accuracy": min(1, 0.93 - 0.3 * np.exp(-5 * part) + 0.01 * noise[2]),
                    "negative_accuracy": min(1, 0.87 - 0.2 * np.exp(-5 * part) + 0.01 * noise[3]),
                }
            lines.append(json.dumps(row))
        (self.folder / "metrics.jsonl").write_text("\n".join(lines) + "\n" + extra, "utf-8")
        return self

    def views(self, images: NDArray[np.uint8], names: Any = None, k: int = 32) -> RunMaker:
        shift = self.rng.integers(-60, 60, (6, k, 1, 1, 3))
        view_images = np.clip(images[:6, None].astype(int) + shift, 0, 255).astype(np.uint8)
        artifacts.save_views(self.folder, view_images, images[:6], names or [CLASSES[i] for i in range(6)])
        return self

    def pairs(self, images: NDArray[np.uint8]) -> RunMaker:
        p = min(len(images) // 2, 500)
        targets = np.arange(p) % 2
        scores = np.clip(np.where(targets == 1, 1 - self.rng.beta(1, 5, p), self.rng.beta(1, 5, p)), 0, 1)
        left = images[:p]
        right = np.where(targets[:, None, None, None] == 1, images[:p, :, ::-1], images[p : 2 * p])
        artifacts.save_pairs(self.folder, left, right, scores, targets)
        return self

    def tsne(
        self,
        images: NDArray[np.uint8],
        labels: NDArray[np.int64] | None,
        *,
        names: Any = None,
        classes: Any = CLASSES,
        xy: Any = None,
        neighbours: Any = None,
    ) -> RunMaker:
        n = len(images)
        group = labels if labels is not None else self.rng.integers(0, 10, n)
        angle = 2 * np.pi * group / max(1, group.max() + 1)
        where = np.stack([np.cos(angle), np.sin(angle)], 1) * 40 + self.rng.normal(0, 12, (n, 2)) if xy is None else xy
        near = self.rng.integers(0, n, (n, 8)) if neighbours is None else neighbours
        supers = None if labels is None else np.isin(labels, (0, 1, 8, 9)).astype(np.int64)
        artifacts.save_tsne(
            self.folder,
            self.dataset,
            "test",
            xy=where,
            thumbs=images,
            neighbours=near,
            labels=labels,
            names=names,
            classes=classes if labels is not None else (),
            super_labels=supers,
            super_names=("animals", "vehicles") if labels is not None else (),
            folders=None if names is None or labels is not None else [Path(name).parent.name for name in names],
            dates=None if labels is not None else [f"202{i % 3}" for i in range(n)],
        )
        return self

    def retrieval(
        self,
        images: NDArray[np.uint8],
        labels: NDArray[np.int64] | None,
        *,
        names: Any = None,
        classes: Any = CLASSES,
        near: Any = None,
    ) -> RunMaker:
        query = self.rng.permutation(len(images))[:25]
        nearest = self.rng.integers(0, len(images), (len(query), 10)) if near is None else near[query]
        artifacts.save_retrieval(
            self.folder,
            self.dataset,
            "test",
            query_index=query,
            neighbour_index=nearest,
            distances=np.sort(self.rng.random(nearest.shape)),
            images=images,
            labels=labels,
            names=names,
            classes=classes if labels is not None else (),
        )
        return self

    def matrices(self, n: int, classes: Any) -> RunMaker:
        matrices = {}
        for depth, hit in ((10, 0.55), (100, 0.42), (1000, 0.3)):
            rest = self.rng.dirichlet(np.full(n, 0.6), n) * (1 - hit)
            matrices[f"top{depth}"] = ((rest + hit * np.eye(n)) * 1000 * depth).round().tolist()
        details = {"top10": 55.0, "top100": 42.0, "top1000": 30.0, "matrices": matrices, "classes": list(classes)}
        return self.evaluation(
            "retrieval", accuracy=55.0, details=details, settings={"queries": 5000, "metric": "euclidean"}
        )

    def evaluation(
        self, protocol: str, *, dataset: str | None = None, split: str = "test", tag: str = "", **fields: Any
    ) -> RunMaker:
        dataset = dataset or self.dataset
        pretrain = {
            "method": self.method,
            "backbone": self.backbone,
            "preset": "paper",
            "dataset": self.dataset,
            "epochs": 200,
            "views": 32,
            "seed": 1,
        }
        result = {
            "protocol": protocol,
            "dataset": dataset,
            "split": split,
            "tag": tag,
            "accuracy": None,
            "pretrain": pretrain,
            "settings": {},
            "details": {},
            "n_train": 50000,
            "n_test": 10000,
            "version": __version__,
            "commit": None,
            "machine": {"cpu": "Some CPU"},
            "threads": 2,
            "seconds": 61.5,
        }
        folder = self.folder / "evaluations"
        folder.mkdir(exist_ok=True)
        stem = "-".join(filter(None, (protocol, dataset, split, tag))).replace("/", "_")
        (folder / f"{stem}.json").write_text(json.dumps(result | fields), "utf-8")
        return self
