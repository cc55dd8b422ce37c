"""How the cost of a step grows with K, M, image side and backbone, and where its time goes.

    python benchmarks/growth.py      writes docs/performance.json and its picture

Every point is a median over single steps of our training step (`benchmarks/step.py` compares it with others).
"""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from relatum import relation
from relatum.bench.step import prepare_step
from relatum.runs import provenance
from relatum.system.allocator import keep_freed_memory
from relatum.training import optim
from relatum.training.build import compile_backbone, make_batches, make_objective
from relatum.training.engine import make_fabric
from relatum.training.optim import one_thread

DOCS = Path(__file__).parents[1] / "docs"
STAGES = ("views", "backbone forward", "head forward", "head backward", "backbone backward", "update")
DEFAULT = {"backbone": "conv4", "views": 8, "batch_size": 64, "side": 32}
SWEEPS: dict[str, list[Any]] = {
    "views": [2, 4, 8, 16, 32, 64],
    "batch_size": [16, 32, 64, 128, 256],
    "side": [32, 64, 96, 128],
    "backbone": ["conv4", "resnet8", "resnet32"],
}


def stages(views: int, batch_size: int, side: int, backbone: str, steps: int = 12) -> dict[str, float]:
    """Median seconds of each part of a step."""
    prepared = prepare_step("relational", backbone, views, batch_size, side, "auto", None)
    objective, fabric = make_objective(prepared), make_fabric(prepared.recipe)
    maker = make_batches(prepared, objective, fabric)
    if prepared.recipe.run.compile == "on":
        example = torch.zeros(views * batch_size, 3, side, side).contiguous(memory_format=torch.channels_last)
        compile_backbone(objective, example, fabric)
    objective.train()
    optimizer = optim.make_optimizer(prepared.recipe.train, objective.parameters())
    taken: dict[str, list[float]] = {name: [] for name in STAGES}

    def timed(name: str, work: Callable[[], Any]) -> Any:
        began = time.perf_counter()
        result = work()
        taken[name].append(time.perf_counter() - began)
        return result

    def update() -> None:
        with one_thread():
            optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    full = len(prepared.images) // batch_size
    for step in range(steps):
        batch = timed("views", lambda s=step: maker.make(s % full))
        z = timed("backbone forward", lambda b=batch: objective.encode(b))
        leaf = z.detach().requires_grad_()
        pairs = relation.roll_pairs(views, batch_size)
        scored = timed("head forward", lambda p=pairs, x=leaf: relation.pair_loss(objective.relation, x, p))
        timed("head backward", lambda f=scored: f.loss.backward())
        timed("backbone backward", lambda z=z, x=leaf: z.backward(x.grad))
        timed("update", update)
    return {name: float(np.median(values[3:])) for name, values in taken.items()}


def draw(document: dict[str, Any]) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    colours = ("#0072B2", "#56B4E9", "#D55E00", "#E69F00", "#009E73", "#999999")
    titles = {
        "views": "K, views per image",
        "batch_size": "M, images per step",
        "side": "side in pixels",
        "backbone": "",
    }
    figure, axes = plt.subplots(1, 4, figsize=(13, 3.4), layout="constrained")
    for ax, (name, points) in zip(axes, document["sweeps"].items(), strict=True):
        labels = [str(point["value"]) for point in points]
        floor = np.zeros(len(points))
        totals = np.array([sum(point["seconds"].values()) for point in points])
        scale = 100 / totals if name == "backbone" else np.full(len(points), 1e3)  # backbones differ too much to stack
        for stage, colour in zip(STAGES, colours, strict=True):
            heights = scale * np.array([point["seconds"][stage] for point in points])
            ax.bar(labels, heights, bottom=floor, color=colour, label=stage, width=0.75)
            floor += heights
        ax.set_xlabel(titles[name])
        ax.spines[["top", "right"]].set_visible(False)
        if name == "backbone":
            ax.set_ylabel("percent of the step")
            for number, total in enumerate(totals):
                ax.text(number, 101, f"{1e3 * total:,.0f} ms", ha="center", va="bottom", fontsize=8)
    axes[0].set_ylabel("milliseconds per step")
    axes[0].legend(frameon=False, fontsize=8)
    figure.savefig(DOCS / "performance.svg")


def main() -> None:
    keep_freed_memory()
    sweeps = {
        name: [{"value": value, "seconds": stages(**{**DEFAULT, name: value})} for value in values]
        for name, values in SWEEPS.items()
    }
    where = provenance.record()
    document = {"what": "growth", "otherwise": DEFAULT, "sweeps": sweeps, **where}
    (DOCS / "performance.json").write_text(json.dumps(document, indent=1) + "\n", "utf-8")
    draw(document)


if __name__ == "__main__":
    main()
