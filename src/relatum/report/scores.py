"""How good a run is: its headline score beside random weights, supervised training, chance and the paper's figure."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

from relatum import config, registry
from relatum.report.markup import Html, el, name_of
from relatum.report.page import Page
from relatum.report.runfolder import Run, Table
from relatum.report.words import BACKBONES, DATASETS, METHODS, PROTOCOLS, count, number, title

# The protocol of the headline: the paper's own first, then what says most about the representation.
PREFERENCE = ("linear", "classifier", "finetune", "knn", "retrieval")


@dataclass(frozen=True)
class Bar:
    """A line of the comparison: a run of this page, or something to compare it with."""

    label: str
    value: float
    kind: str  # run | reference | paper
    spread: float | None = None
    source: str = ""
    colour: int = 0


def headline(run: Run) -> Table | None:
    """The evaluation that stands for a run: of the data it was trained on if there is one, on test images, untagged."""
    own = [e for e in run.evaluations if number(e.get("accuracy")) and _is_own(run, e)]
    order = {name: i for i, name in enumerate(PREFERENCE)}

    def rank(e: Table) -> tuple[Any, ...]:
        kind = order.get(str(e["protocol"]), 99)
        return (e.get("dataset") != run.dataset, kind, e.get("split") != "test", bool(e.get("tag")), e["file"])

    return min(own, key=rank, default=None)


def _is_own(run: Run, evaluation: Table) -> bool:
    """Whether it scores this run's method: a folder may also keep a baseline's result."""
    method = run.recipe.get("method")
    return method is None or evaluation["pretrain"].get("method", method) == method


def groups(page: Page) -> dict[tuple[str, str, str], list[tuple[Run, Table]]]:
    """Headlines that can stand on one scale: same protocol (a run's own classifier counts as linear), data, split."""
    groups: dict[tuple[str, str, str], list[tuple[Run, Table]]] = {}
    for run in page.runs:
        best = headline(run)
        if best is not None:
            protocol = "linear" if best["protocol"] == "classifier" else str(best["protocol"])
            key = (protocol, str(best.get("dataset", "")), str(best.get("split", "")))
            groups.setdefault(key, []).append((run, best))
    return groups


def comparison(page: Page, key: tuple[str, str, str], found: list[tuple[Run, Table]]) -> Html:
    """The score in large figures where there is one run, and all scores as bars."""
    protocol, dataset, split = key
    what = f"{title(PROTOCOLS, protocol)} on {title(DATASETS, dataset)}, {split} images"
    bars = _bars(page, key, found)
    big = None
    if len(found) == 1 and len(page.runs) == 1:
        best = found[0][1]
        big = el("p", el("strong", f"{best['accuracy']:.2f}", el("span", " %", class_="unit")), class_="score")
    rows = [_bar(bar) for bar in sorted(bars, key=lambda bar: -bar.value)]
    heading = el("h3", f"{title(PROTOCOLS, protocol)} on ", name_of(title(DATASETS, dataset)), f", {split} images")
    listing = el("ol", rows, class_="bars", aria_label=f"Accuracy: {what}")
    missing = _missing(bars, found)
    text = el("div", heading, big, class_="score-text")
    return el(
        "div", text, el("div", listing, missing, class_="score-bars"), class_="headline" if big else "headline several"
    )


def _bar(bar: Bar) -> Html:
    value = f"{bar.value:.2f}" + (f" ± {bar.spread:.2f}" if bar.spread is not None else "")
    label = [el("bdi", bar.label), el("small", f" {bar.source}") if bar.source else None]
    fill = el("i", style=f"width:{min(100.0, max(0.0, bar.value)):.2f}%;--c:var(--s{bar.colour})")
    return el(
        "li", el("span", label, class_="bar-label"), el("span", fill, class_="track"), el("b", value), class_=bar.kind
    )


def _bars(page: Page, key: tuple[str, str, str], found: list[tuple[Run, Table]]) -> list[Bar]:
    several = len(page.runs) > 1
    bars = []
    for run, best in found:
        method = title(METHODS, run.setting("method", "this run"))
        own = best["protocol"] == "classifier" and key[0] != "classifier"
        named = run.name.lower() in (method.lower(), str(run.setting("method")).lower())
        source = " · ".join(filter(None, (method if several and not named else "", "own classifier" if own else "")))
        bars.append(
            Bar(
                run.name if several else "This run",
                float(best["accuracy"]),
                "run",
                source=source,
                colour=page.colour(run),
            )
        )
    backbones = list(dict.fromkeys(str(run.setting("backbone.name", "")) for run, _ in found))
    for backbone in backbones:
        suffix = f" {title(BACKBONES, backbone)}" if len(backbones) > 1 else ""
        for method in ("supervised", "random"):
            measured = _measured(page, key, method, backbone)
            if measured is not None:
                if not any(run.setting("method") == method and best is measured for run, best in found):
                    bars.append(
                        Bar(METHODS[method] + suffix, float(measured["accuracy"]), "reference", source="measured here")
                    )
                continue
            figure = page.paper_figure(_condition(key, found[0][0], method, backbone))
            if figure:
                bars.append(Bar(METHODS[method] + suffix, figure[0], "paper", figure[1], "in the paper"))
    for run, _ in found:
        method = str(run.setting("method", ""))
        condition = _condition(key, run, method, str(run.setting("backbone.name", "")))
        # A bound has its bar above; a run that saw labels is none of the conditions that are looked up here.
        apart = method in ("supervised", "random") or run.setting("data.labels", 0)
        figure = None if apart else page.paper_figure(condition)
        label = title(METHODS, method) + (f" {title(BACKBONES, condition['backbone'])}" if len(backbones) > 1 else "")
        if figure and not any(bar.label == label and bar.kind == "paper" for bar in bars):
            bars.append(Bar(label, figure[0], "paper", figure[1], _paper_words(run)))
    classes = _classes(found)
    if classes and key[0] != "retrieval":
        bars.append(Bar("Chance", 100.0 / classes, "reference", source=f"{count(classes)} classes"))
    return bars


def _condition(key: tuple[str, str, str], run: Run, method: str, backbone: str) -> dict[str, Any]:
    protocol, dataset, split = key
    source = run.dataset or dataset
    return {
        "protocol": protocol,
        "dataset": dataset,
        "split": split,
        "method": method,
        "backbone": backbone,
        "pretrain": source,
    }


def _paper_words(run: Run) -> str:
    """`in the paper`, with what it did differently from this run."""
    method, backbone = str(run.setting("method")), str(run.setting("backbone.name"))
    usual = config.defaults(method, "paper", run.dataset, backbone) if method in METHODS else {}
    epochs = usual.get("train.epochs", config.Train().epochs)
    differs = [f"{epochs} epochs"] if run.setting("train.epochs", epochs) != epochs else []
    if method == "relational" and run.setting("views.number") != usual["views.number"]:
        differs.append(f"K = {usual['views.number']}")
    differs += ["all images"] if run.setting("data.limit_train", 0) else []
    return "in the paper" + (f", {', '.join(differs)}" if differs else "")


def _measured(page: Page, key: tuple[str, str, str], method: str, backbone: str) -> Table | None:
    """A baseline's result among all evaluations of the page, same protocol, data and backbone."""
    protocols = (key[0], "classifier") if method == "supervised" else (key[0],)
    for protocol, run in itertools.product(protocols, page.runs):
        for e in run.evaluations:
            made = e["pretrain"].get("method", run.setting("method"))
            seen = e["pretrain"].get("backbone", run.setting("backbone.name", ""))
            same = (e["protocol"], e.get("dataset"), e.get("split")) == (protocol, *key[1:])
            if made == method and seen == backbone and same and number(e.get("accuracy")):
                return e
    return None


def _classes(found: list[tuple[Run, Table]]) -> int:
    for run, best in found:
        for value in (best["details"].get("classes"), best["settings"].get("classes"), run.info.get("classes")):
            size = len(value) if isinstance(value, list) else value if number(value) else 0
            if size and best.get("dataset") == run.dataset:
                return int(size)
        if str(best.get("dataset")) in registry.DATASETS:
            return registry.DATASETS[str(best["dataset"])].classes
    return 0


def _missing(bars: list[Bar], found: list[tuple[Run, Table]]) -> Html | None:
    have = {bar.label.split(" ")[0] for bar in bars} | {
        METHODS.get(str(r.setting("method")), "").split(" ")[0] for r, _ in found
    }
    wanted = (("Supervised", "supervised training"), ("Random", "random weights"))
    missing = [words for word, words in wanted if word not in have]
    if not missing:
        return None
    return el(
        "p", f"No result for {' or '.join(missing)} to compare with; add such a run to the report.", class_="note"
    )


def why_none(run: Run) -> str:
    """A clear word where a run has no score."""
    if run.evaluations and not any(number(e.get("accuracy")) for e in run.evaluations):
        return "No accuracy: no evaluation of this run has one. Look at the map and the nearest images instead."
    if run.unlabelled:
        return "No accuracy: these images have no labels. Look at the map and the nearest images instead."
    return "No accuracy yet: this run has not been evaluated. `relatum evaluate linear RUN --data DATA` gives one."
