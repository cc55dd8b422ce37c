"""Comparison of a run's main score with random weights, supervised training, chance and the paper's value."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

from relatum import config
from relatum.config.methods import METHODS
from relatum.data import sets
from relatum.report.formatting import backbone_title, count, dataset_title, method_title, protocol_title
from relatum.report.page import Page, Panel
from relatum.runs.reading import RunRecord, is_number

# Which protocol gives the main score: the paper's first, then the others by how much they say.
PREFERENCE = ("linear", "classifier", "finetune", "knn", "retrieval")
BASELINES = {"supervised": "supervised training", "random": "random weights"}

Result = dict[str, Any]
Key = tuple[str, str, str]  # protocol, dataset, split
Entries = list[tuple[RunRecord, Result]]


@dataclass(frozen=True)
class Bar:
    """A bar of the comparison: a run of this page, or something to compare it with."""

    label: str
    value: float
    kind: str  # run | reference | paper
    source: str = ""
    std: float | None = None
    colour: int = 0

    @property
    def width(self) -> str:
        """Its length in percent."""
        return f"{min(100.0, max(0.0, self.value)):.2f}"

    @property
    def value_text(self) -> str:
        """`61.03 ± 0.23`."""
        return f"{self.value:.2f}" + (f" ± {self.std:.2f}" if self.std is not None else "")


def main_result(run: RunRecord) -> Result | None:
    """The evaluation that stands for a run: preferably on its training dataset, on test images, without a tag."""
    method = run.recipe.get("method")  # a folder may also hold the result of a baseline

    def rank(e: Result) -> tuple[Any, ...]:
        protocol = PREFERENCE.index(e["protocol"]) if e["protocol"] in PREFERENCE else len(PREFERENCE)
        return (e.get("dataset") != run.dataset, protocol, e.get("split") != "test", bool(e.get("tag")), e["file"])

    scored = [e for e in run.evaluations if is_number(e.get("accuracy"))]
    return min((e for e in scored if method in (None, e["pretrain"].get("method", method))), key=rank, default=None)


def groups(page: Page) -> dict[Key, Entries]:
    """Main results that share a scale: same protocol (a supervised classifier counts as linear), dataset and split."""
    groups: dict[Key, Entries] = {}
    for run in page.runs:
        best = main_result(run)
        if best is not None:
            protocol = "linear" if best["protocol"] == "classifier" else str(best["protocol"])
            groups.setdefault((protocol, str(best.get("dataset", "")), str(best.get("split", ""))), []).append(
                (run, best)
            )
    return groups


def comparison(page: Page, key: Key, entries: Entries) -> Panel:
    """The data of one comparison: the score of a single run, and all scores as bars."""
    protocol, dataset, split = key
    baselines = {method: _baseline_bars(page, key, entries, method) for method in BASELINES}
    bars = [*_run_bars(page, entries), *itertools.chain(*baselines.values()), *_paper_bars(page, key, entries)]
    classes = _classes(entries)
    if classes and protocol != "retrieval":
        bars.append(Bar("Chance", 100.0 / classes, "reference", f"{count(classes)} classes"))
    shown = {run.method for run, _ in entries} | {method for method, bars in baselines.items() if bars}
    return {
        "protocol": protocol_title(protocol),
        "dataset": dataset_title(dataset),
        "split": split,
        "score": None if page.several else f"{entries[0][1]['accuracy']:.2f}",
        "bars": sorted(bars, key=lambda bar: -bar.value),
        "missing": [name for method, name in BASELINES.items() if method not in shown],
    }


def _run_bars(page: Page, entries: Entries) -> list[Bar]:
    bars = []
    for run, best in entries:
        method = method_title(run.method)
        named = not page.several or run.name.lower() in (method.lower(), run.method.lower())
        source = ["" if named else method, "supervised classifier" if best["protocol"] == "classifier" else ""]
        label = run.name if page.several else "This run"
        bars.append(
            Bar(label, float(best["accuracy"]), "run", " · ".join(filter(None, source)), None, page.colour(run))
        )
    return bars


def _baseline_bars(page: Page, key: Key, entries: Entries, method: str) -> list[Bar]:
    """A baseline with each backbone: measured on this page, or else the paper's value."""
    bars = []
    for backbone, suffix in _backbones(entries).items():
        label, measured = method_title(method) + suffix, _measured(page, key, entries, method, backbone)
        if measured is None:
            value = page.paper(_condition(key, entries[0][0], method, backbone))
            bars += [Bar(label, value[0], "paper", "in the paper", value[1])] if value else []
        elif not any(best is measured for _, best in entries):
            bars.append(Bar(label, float(measured["accuracy"]), "reference", "measured here"))
    return bars


def _paper_bars(page: Page, key: Key, entries: Entries) -> list[Bar]:
    """The paper's values for the runs; no run that was shown a part of the labels is looked up."""
    bars: dict[str, Bar] = {}
    suffixes = _backbones(entries)
    for run, _ in entries:
        if run.setting("data.labels", 0):
            continue
        value = page.paper(_condition(key, run, run.method, run.backbone))
        label = method_title(run.method) + suffixes[run.backbone]
        if value:
            bars.setdefault(label, Bar(label, value[0], "paper", _paper_source(run), value[1]))
    return list(bars.values())


def _backbones(entries: Entries) -> dict[str, str]:
    """The backbones of the runs, each with what to add to a label: its title if there are several."""
    names = dict.fromkeys(run.backbone for run, _ in entries)
    return {name: f" {backbone_title(name)}" if len(names) > 1 else "" for name in names}


def _condition(key: Key, run: RunRecord, method: str, backbone: str) -> dict[str, Any]:
    condition = dict(zip(("protocol", "dataset", "split"), key, strict=True))
    return {**condition, "method": method, "backbone": backbone, "pretrain": run.dataset or condition["dataset"]}


def _paper_source(run: RunRecord) -> str:
    """`in the paper`, with what the paper did differently from this run."""
    if run.method not in METHODS:
        return "in the paper"
    paper = config.defaults(run.method, "paper", run.dataset, run.backbone)
    epochs, views = paper.get("train.epochs", config.Train().epochs), paper["views.number"]
    differences = [f"{epochs} epochs"] if run.setting("train.epochs", epochs) != epochs else []
    if run.method == "relational" and run.setting("views.number") != views:
        differences.append(f"K = {views}")
    differences += ["all images"] if run.setting("data.limit_train", 0) else []
    return ", ".join(["in the paper", *differences])


def _measured(page: Page, key: Key, entries: Entries, method: str, backbone: str) -> Result | None:
    """A baseline's result among all evaluations of the page: same protocol and backbone, and the same images.

    Supervised training on other images is a transfer, not an upper bound; random weights have seen no image.
    """
    protocols = (key[0], "classifier") if method == "supervised" else (key[0],)
    for protocol, run in itertools.product(protocols, page.runs):
        for e in run.evaluations:
            pretrained = (e["pretrain"].get("method", run.method), e["pretrain"].get("backbone", run.backbone))
            evaluated = (e["protocol"], e.get("dataset"), e.get("split"))
            if (
                pretrained != (method, backbone)
                or evaluated != (protocol, *key[1:])
                or not is_number(e.get("accuracy"))
            ):
                continue
            dataset = str(e["pretrain"].get("dataset", run.dataset))
            if method == "random" or any(sets.same_images(dataset, other.dataset) for other, _ in entries):
                return e
    return None


def _classes(entries: Entries) -> int:
    """The number of classes of the data that was evaluated on, or 0 if unknown."""
    for run, best in entries:
        for value in (best["details"].get("classes"), best["settings"].get("classes"), run.info.get("classes")):
            size = len(value) if isinstance(value, list) else value if is_number(value) else 0
            if size and best.get("dataset") == run.dataset:
                return int(size)
        if str(best.get("dataset")) in sets.names():
            return sets.get(str(best["dataset"])).classes
    return 0


def why_none(run: RunRecord) -> str:
    """The reason why a run has no score."""
    if run.evaluations and not any(is_number(e.get("accuracy")) for e in run.evaluations):
        return f"No accuracy: no evaluation of this run has one.{_instead(run)}"
    if not run.linear_command:
        return f"No accuracy: these images have no labels.{_instead(run)}"
    return f"No accuracy yet: this run has not been evaluated. Run `{run.linear_command}`."


def _instead(run: RunRecord) -> str:
    """A reference to the sections that the page shows for a run without a score."""
    kinds = (("tsne", "the map"), ("retrieval", "the nearest images"))
    shown = [name for kind, name in kinds if run.folder.artifacts(kind)]
    return f" See {' and '.join(shown)} instead." if shown else ""
