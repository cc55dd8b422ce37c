"""The top of the page: what was trained, on what, for how long, what to know about it, and the scores."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from relatum.report import scores
from relatum.report.markup import Html, el, name_of
from relatum.report.page import Page, note, section
from relatum.report.runfolder import Run
from relatum.report.words import BACKBONES, DATASETS, METHODS, count, duration, number, title


def overview(page: Page) -> Html:
    """The section, scores first."""
    groups = scores.groups(page)
    compared = [scores.comparison(page, key, found) for key, found in groups.items()]
    without = [run for run in page.runs if not any(run is r for found in groups.values() for r, _ in found)]
    words = [note(page, [run], scores.why_none(run)) for run in without]
    facts = _side_by_side(page) if page.several else _card(page, page.runs[0])
    return section("overview", None, compared, words, facts, label="Overview")


STATUS = {
    "finished": "finished",
    "interrupted": "interrupted",
    "running": "not finished",
    "failed": "failed",
}


def _card(page: Page, run: Run) -> Html:
    """One run: its facts, and what to know about it."""
    facts = [el("div", el("dt", k), el("dd", name_of(v))) for k, v in _facts(run) if v not in (None, "")]
    words = [note(page, [], text) for text in _words(page, run)]
    return el("article", el("p", _badge(run), class_="status"), el("dl", facts, class_="facts"), words, class_="card")


def _side_by_side(page: Page) -> Html:
    """Several runs: a column each, and rows in which they differ stand out."""
    columns = [dict(_facts(run)) for run in page.runs]
    head = [
        el(
            "th",
            el("i", class_="swatch", style=f"--c:var(--s{page.colour(run)})"),
            name_of(run.name),
            el("br"),
            _badge(run),
            scope="col",
        )
        for run in page.runs
    ]
    rows = []
    for fact in columns[0]:
        values = ["–" if column[fact] in (None, "") else str(column[fact]) for column in columns]
        if set(values) != {"–"}:
            cells = [el("td", name_of(value)) for value in values]
            rows.append(
                el("tr", el("th", fact, scope="row"), cells, class_="differs" if len(set(values)) > 1 else None)
            )
    table = el("table", el("thead", el("tr", el("td"), head)), el("tbody", rows), class_="beside")
    words = [note(page, [run], text) for run in page.runs for text in _words(page, run)]
    return el(
        "div",
        el("div", table, class_="scroll", tabindex="0", role="group", aria_label="Runs side by side"),
        words,
        class_="card",
    )


def _badge(run: Run) -> Html:
    status = str(run.info.get("status", "")) or "status unknown"
    return el("span", STATUS.get(status, status), class_="badge ok" if status == "finished" else "badge warn")


def _words(page: Page, run: Run) -> list[str]:
    return [*_state(run), *_version(page, run), *run.notes]


def _facts(run: Run) -> list[tuple[str, Any]]:
    get, info = run.setting, run.info
    epochs, steps, total = get("train.epochs"), info.get("steps"), info.get("total_steps")
    done = (
        f"{count(steps)} of {count(total)}"
        if number(total) and steps != total
        else count(steps)
        if number(steps)
        else None
    )
    images = info.get("images", get("data.images"))
    speed = run.metrics.get("views_per_second")
    median = float(np.nanmedian(speed)) if speed is not None and np.isfinite(speed).any() else None
    method = title(METHODS, get("method", "")) or None
    labels = get("data.labels", 0)
    return [
        ("Method", f"{method}, preset {get('preset')}" if method and get("preset") else method),
        ("Backbone", title(BACKBONES, get("backbone.name", ""))),
        ("Trained on", title(DATASETS, run.data_name)),
        ("Images", count(images) if number(images) else None),
        ("Labels seen", f"{100 * labels:g} %" if number(labels) and labels else None),
        ("Views of each (K)", get("views.number")),
        ("Mini-batch (M)", get("train.batch_size")),
        ("Epochs", epochs),
        ("Steps", done),
        ("Seed", get("seed")),
        ("Took", duration(info.get("seconds"))),
        ("Speed", f"{median:,.0f} views/s" if median else None),
        ("Started", str(info.get("started", "")).replace("T", " ").replace("Z", " UTC")),
        ("Machine", _machine(info)),
        ("relatum", _software(info)),
    ]


def _machine(info: Mapping[str, Any]) -> str | None:
    machine, threads = info.get("machine"), info.get("threads")
    if isinstance(machine, Mapping):
        machine = ", ".join(str(machine[k]) for k in ("gpu", "cpu") if machine.get(k))
    words = [str(machine)] if machine else []
    words += [f"{threads} thread{'s' if threads != 1 else ''}"] if number(threads) else []
    return ", ".join(words) or None


def _software(info: Mapping[str, Any]) -> str | None:
    version, commit = info.get("version"), info.get("commit")
    return f"{version} ({str(commit)[:8]})" if version and commit else str(version) if version else None


def _state(run: Run) -> list[str]:
    """What to know about a run that did not come to its end."""
    status, steps, total = run.info.get("status"), run.info.get("steps"), run.info.get("total_steps")
    where = f" at step {count(steps)}" + (f" of {count(total)}" if number(total) else "") if number(steps) else ""
    if status == "interrupted":
        return [
            f"Training was interrupted{where}. The command with `--resume` continues it; "
            "what is shown here is as far as it came."
        ]
    if status == "failed":
        return [f"Training failed{where}. What is shown here is as far as it came."]
    if status == "running":
        return [
            "Training had not finished when this page was made, or its process was killed; `--resume` continues it."
        ]
    return []


def _version(page: Page, run: Run) -> list[str]:
    version = run.info.get("version")
    if version and str(version) != page.version:
        return [
            f"This run was made by relatum {version} and this page by {page.version}: "
            "what one of them does not know of the other is not shown."
        ]
    return []
