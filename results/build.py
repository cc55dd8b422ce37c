"""`make results`: writes results/README.md from the ledger's entries and from results/notes.md.

Tables are those of `relatum reproduce TABLE --render`; every section gives the command that prints it.
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from relatum.config.modern_methods import MODERN_METHODS
from relatum.paper import claims, render
from relatum.paper.cells import Request
from relatum.paper.grid import Scale
from relatum.paper.measured import Results
from relatum.paper.plan import plan
from relatum.runs import ledger, speeds

HERE = Path(__file__).parent
_CONV4: dict[str, Any] = {"datasets": ("cifar10",), "backbones": ("conv4",)}
_BOTH: dict[str, Any] = {"datasets": ("cifar10", "cifar100"), "backbones": ("conv4",)}
_RUN = ("random", "supervised", "deepcluster", "rotation", "deepinfomax", "simclr", "relational")
# A table and the filters of its command; methods without a result are left out.
SECTIONS: tuple[tuple[str, Request], ...] = (
    ("augmentations", Request(**_CONV4, methods=("relational",))),
    ("linear-evaluation", Request(**_BOTH, methods=_RUN)),
    ("domain-transfer", Request(**_BOTH, methods=_RUN)),
    ("linear-evaluation", Request(**_BOTH, methods=("relational",), scale=Scale(views=4))),
    ("domain-transfer", Request(**_BOTH, methods=("relational",), scale=Scale(views=4))),
    ("linear-evaluation", Request(**_CONV4, methods=_RUN, seeds=(1,), scale=Scale(views=4, epochs=2))),
    ("backbones-linear", Request(datasets=("cifar10",), methods=("random",))),
    ("modern", Request(methods=("supervised", "random", "relational", "simclr", *MODERN_METHODS))),
)


def command(name: str, request: Request) -> str:
    """The command line that prints a table."""
    flags = [f"relatum reproduce {name} --render --ledger results"]
    flags += [
        f"--{key} {','.join(values)}"
        for key in ("datasets", "backbones", "methods")
        if (values := getattr(request, key))
    ]
    flags += [f"--seeds {','.join(map(str, request.seeds))}"] if request.seeds else []
    flags += [f"--views {request.scale.views}"] if request.scale.views else []
    flags += [f"--epochs {request.scale.epochs}"] if request.scale.epochs else []
    return " ".join(flags)


def with_results(name: str, request: Request, results: Results) -> Request:
    """The request without methods that have no result yet, so that no row of a table is empty."""
    methods = []
    for method in request.methods:
        cells = plan([name], Request(**{**vars(request), "methods": (method,)})).tables[0].cells
        if any(results.result(e) is not None for c in cells for e in c.evaluations):
            methods.append(method)
    return Request(**{**vars(request), "methods": tuple(methods)})


def sections(results: Results) -> Iterable[str]:
    """Every table with its command."""
    for name, full_request in SECTIONS:
        request = with_results(name, full_request, results)
        if request.methods:
            rendered = render.document(plan([name], request).tables[0], results)
            text = render.to_markdown({**rendered, "notes": []}, HERE).replace("### ", "## ", 1)
            picture = f"\n![{rendered['title']}]({name}.svg)\n" if (HERE / f"{name}.svg").exists() else ""
            yield f"{text}{picture}\n```\n{command(name, request)}\n```\n"


def fast_runs(entries: Iterable[ledger.Entry]) -> str:
    """A table of the runs with the preset `fast`: one row for each method, number of views and number of epochs."""
    groups: dict[tuple[str, int, int, bool], list[ledger.Entry]] = {}
    for entry in entries:
        recipe = entry.document["recipe"]
        if recipe.get("preset") == "fast":
            held_out = bool(recipe["data"].get("val_fraction"))
            key = entry.document["method"], recipe["views"]["number"], recipe["train"]["epochs"], held_out
            groups.setdefault(key, []).append(entry)
    if not groups:
        return ""
    lines = [
        "## The preset `fast`\n",
        "| Method | linear CIFAR-10 | 10→100 | retrieval top-10 | views seen | minutes on two idle cores | Runs |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for (method, views, epochs, held_out), members in sorted(groups.items()):
        recipe = members[0].document["recipe"]
        images, seconds = recipe["data"]["images"], speeds.training_seconds(HERE, recipe)
        minutes = f"{seconds / 60:.0f}" if seconds else ""
        documents = [entry.document for entry in members]
        cells = (
            f"{method}, K = {views}, {epochs} epochs" + " (validation split)" * held_out,
            *(
                _mean([_figure(document, *which) for document in documents])
                for which in (("linear", "cifar10"), ("linear", "cifar100"), ("retrieval", "cifar10"))
            ),
            f"{epochs * images * views / 1e6:.0f} million",
            minutes,
            ", ".join(f"[seed {entry.document['seed']}]({entry.path.name})" for entry in members),
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _mean(figures: Sequence[str]) -> str:
    values = [float(figure.split()[0]) for figure in figures if figure]
    if not values:
        return ""
    spread = f" ± {statistics.stdev(values):.2f}" if len(values) > 1 else ""
    return f"{statistics.mean(values):.2f}{spread} (n = {len(values)})"


def runs(entries: Iterable[ledger.Entry]) -> str:
    """A table with one row per run: its training time and all its results. The data is CIFAR-10 if not named."""
    lines = [
        "| Run | epochs | seed | minutes | linear CIFAR-10 | linear CIFAR-100 | retrieval top-10 | weights |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for entry in entries:
        document = entry.document
        recipe: Mapping[str, Any] = document["recipe"]
        if entry.backbone is None and document["method"] != "random":
            continue
        compares = document["method"] in ("relational", "simclr", *MODERN_METHODS)
        views = f", K = {recipe['views']['number']}" if compares else ""
        small = recipe["views"].get("small_number", 0)
        views += f" and {small} small" if small else ""
        epochs = recipe["train"]["epochs"] if document["method"] != "random" else "-"
        minutes = f"{document['seconds'] / 60:.1f}" if document["method"] != "random" else "-"
        name = recipe["data"]["name"]
        trained_on = f", on {name}" if name != "cifar10" and document["method"] != "random" else ""
        weights = (
            f"[{entry.backbone.stat().st_size // 1000} kB]({entry.backbone.name})" if entry.backbone else "by seed"
        )
        cells = (
            f"[{document['method']}{views}, {recipe['backbone']['name']}{trained_on}]({entry.path.name})",
            *(epochs, document["seed"], minutes),
            _figure(document, "linear", "cifar10", "classifier"),
            _figure(document, "linear", "cifar100"),
            _figure(document, "retrieval", "cifar10"),
            weights,
        )
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(lines) + "\n"


def _figure(document: Mapping[str, Any], protocol: str, dataset: str, other: str = "") -> str:
    by_protocol = {r["protocol"]: r for r in document["evaluations"] if r["dataset"] == dataset and not r.get("tag")}
    result = by_protocol.get(other) or by_protocol.get(protocol)
    if result is None or result["accuracy"] is None:
        return ""
    note = (
        " (validation)" if result["split"] == "val" else " (its own classifier)" if result["protocol"] == other else ""
    )
    return f"{result['accuracy']:.2f}{note}"


def page() -> str:
    """The whole of results/README.md."""
    results = Results(HERE / "nowhere", [HERE])
    notes = (HERE / "notes.md").read_text("utf-8")
    judged = claims.document(results, Request())
    judged["claims"] = [c for c in judged["claims"] if c["ours"]["verdict"] != claims.NOT_ENOUGH]
    parts = [notes.strip() + "\n", fast_runs(results.entries), *sections(results)]
    parts = [part for part in [*parts, "## All runs\n", runs(results.entries)] if part]
    if judged["claims"]:
        parts += [render.to_markdown(judged).replace("### ", "## ", 1)]
    parts += [f"- {render.STD_NOTE}\n- {render.RANK_NOTE}\n"]
    return "\n".join(parts).replace(str(HERE) + os.sep, "")


if __name__ == "__main__":
    (HERE / "README.md").write_text(page(), "utf-8")
