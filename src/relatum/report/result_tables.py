"""Tables of all evaluations with their settings, the recipe, and files that could not be read."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from relatum.config.protocols import TITLES
from relatum.report.confusion import DEPTHS
from relatum.report.formatting import count, dataset_title, duration, method_title, protocol_title
from relatum.report.page import Page, Panel, Reason, Section
from relatum.runs import names
from relatum.runs.reading import RunRecord, is_number

MAX_SKIPPED = 500
# Settings that identify an evaluation at a glance: the first four that it has.
BRIEF = (
    "epochs", "lr", "learning_rate", "batch_size", "k", "temperature", "metric", "queries_per_class", "gallery",
    "points", "iterations", "seed",
)  # fmt: skip


def evaluations(page: Page) -> Section:
    """The section with one row per result file; the settings unfold."""
    rows = [_row(run, e) for run in page.runs for e in sorted(run.evaluations, key=_rank)]
    reasons = [
        (run, f"No evaluations yet. Run `{run.linear_command or 'relatum evaluate tsne RUN --data DATA'}`.")
        for run in page.runs
        if not run.evaluations
    ]
    return Section("evaluations", "Evaluations", "All evaluations", rows, "", reasons)


def _row(run: RunRecord, e: dict[str, Any]) -> Panel:
    method, tag = e["pretrain"].get("method"), e.get("tag")
    differs = method and run.recipe.get("method") not in (None, method)  # a baseline's result in this run's folder
    tops = [(depth, e["details"].get(f"top{depth}")) for depth in DEPTHS]
    scores = [f"top {depth:,}: {value:.2f} %" for depth, value in tops if is_number(value)]
    if not scores and is_number(e.get("accuracy")):
        scores = [f"{e['accuracy']:.2f} %"]
    shown = {key: e[key] for key in ("settings", "pretrain")}
    shown |= {key: e[key] for key in ("version", "commit", "machine", "threads") if e.get(key) not in (None, "", {})}
    brief = [f"{key.replace('_', ' ')} {_text(e['settings'][key])}" for key in BRIEF if key in e["settings"]]
    return {
        "run": run,
        "protocol": protocol_title(e["protocol"]),
        "remark": " · ".join(
            str(text) for text in (method_title(method) if differs else "", tag if tag != method else "") if text
        ),
        "dataset": dataset_title(e.get("dataset", "–")),
        "split": e.get("split"),
        "scores": scores or ["–"],
        "images": " + ".join(count(n) for n in (e.get("n_train"), e.get("n_test")) if is_number(n) and n) or "–",
        "duration": duration(e.get("seconds")) or "–",
        "brief": ", ".join(brief[:4]) or "settings",
        "settings": _flat(shown),
        "file": e["file"],
    }


def _rank(e: dict[str, Any]) -> tuple[int, str]:
    order = list(TITLES)
    return (order.index(e["protocol"]) if e["protocol"] in order else len(order), e["file"])


def _flat(table: Mapping[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    """Nested tables as dotted keys and texts."""
    result = []
    for key, value in table.items():
        if isinstance(value, Mapping):
            result += _flat(value, f"{prefix}{key}.")
        else:
            result.append((f"{prefix}{key}".removeprefix("settings."), _text(value)))
    return result


def _text(value: Any) -> str:
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "–"}[value]
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, list):
        return ", ".join(_text(v) for v in value[:12]) + (", …" if len(value) > 12 else "")
    return value if isinstance(value, str) else json.dumps(value)


def recipes(page: Page) -> Section:
    """The section with each run's recipe, folded, and the command that started it."""
    panels: list[Panel] = []
    reasons: list[Reason] = []
    for run in page.runs:
        if not run.recipe_text:
            reasons.append((run, f"No recipe: {names.RECIPE} is missing or cannot be read."))
            continue
        versions = run.info.get("versions")
        listed = [f"{name} {version}" for name, version in versions.items()] if isinstance(versions, Mapping) else []
        panels.append({"run": run, "command": run.info.get("command"), "versions": ", ".join(listed)})
    lead = "All settings, including defaults and automatic choices."
    return Section("recipe", "Recipe", "Recipe", panels, lead, reasons)


def skipped_files(page: Page) -> Section:
    """The section of files that could not be read; empty if there are none."""
    panels: list[Panel] = []
    for run in page.runs:
        skipped = run.info.get("skipped")
        files = [entry for entry in skipped if isinstance(entry, Mapping)] if isinstance(skipped, list) else []
        if files:
            rows = [(str(entry.get("path", "?")), str(entry.get("reason", ""))) for entry in files[:MAX_SKIPPED]]
            panels.append({"run": run, "files": rows, "number": len(files)})
    lead = "These files of the training folder could not be read and were not used for training."
    return Section("skipped", "Skipped files", "Skipped files", panels, lead, data={"record": names.RECORD})
