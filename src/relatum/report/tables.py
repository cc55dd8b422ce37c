"""The numbers in full: every evaluation with its protocol, the recipe, and files that could not be read."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from relatum.report.markup import Child, Html, el, name_of
from relatum.report.page import Page, filled, section
from relatum.report.runfolder import Run, Table
from relatum.report.words import DATASETS, METHODS, PROTOCOLS, count, duration, number, title

MOST_SKIPPED = 500


def evaluations(page: Page) -> Html | None:
    """The section with one row per result file; a row's protocol unfolds."""
    rows, words = [], []
    for run in page.runs:
        if not run.evaluations:
            words.append((run, "No evaluations yet: `relatum evaluate linear RUN --data DATA` makes one."))
        rows += [_row(page, run, e) for e in sorted(run.evaluations, key=_rank)]
    if not rows:
        return filled(page, "evaluations", "All evaluations", words, None, None)
    titles = (["Run"] if page.several else []) + ["Protocol", "Data", "Score", "Images", "Took", "Protocol in full"]
    head = el(
        "tr", [el("th", t, scope="col", class_="num" if t in ("Score", "Images", "Took") else None) for t in titles]
    )
    table = el("table", el("thead", head), el("tbody", rows), class_="results")
    return filled(page, "evaluations", "All evaluations", words, el("div", table, class_="scroll"), None)


def _row(page: Page, run: Run, e: Table) -> Html:
    method = e["pretrain"].get("method")
    other = title(METHODS, method) if method and run.recipe.get("method") not in (None, method) else None
    apart = " · ".join(str(word) for word in (other, e.get("tag") if e.get("tag") != method else None) if word)
    protocol = [title(PROTOCOLS, e["protocol"]), el("small", el("br"), apart) if apart else None]
    n_train, n_test = e.get("n_train"), e.get("n_test")
    images = " + ".join(count(n) for n in (n_train, n_test) if number(n) and n) or "–"
    data = [name_of(title(DATASETS, e.get("dataset", "–"))), f", {e['split']}" if e.get("split") else None]
    cells = [el("td", name_of(run.name))] if page.several else []
    cells += [
        el("th", protocol, scope="row"),
        el("td", data),
        el("td", _scores(e), class_="num"),
        el("td", images, class_="num"),
        el("td", duration(e.get("seconds")) or "–", class_="num"),
        el("td", _protocol(e)),
    ]
    return el("tr", cells)


def _rank(e: Table) -> tuple[int, str]:
    order = list(PROTOCOLS)
    return (order.index(e["protocol"]) if e["protocol"] in order else len(order), e["file"])


def _scores(e: Table) -> Child:
    accuracy, details = e.get("accuracy"), e["details"]
    tops = []
    for depth in (10, 100, 1000):
        value = details.get(f"top{depth}")
        value = value.get("accuracy") if isinstance(value, Mapping) else value
        if number(value):
            tops.append(f"top {depth:,}: {value:.2f} %")
    if tops:
        return [el("div", text) for text in tops]
    return el("b", f"{accuracy:.2f} %") if number(accuracy) else "–"


def _protocol(e: Table) -> Html:
    """Settings of the protocol, what was pretrained, and where it was computed."""
    shown = {key: e[key] for key in ("settings", "pretrain") if e[key]}
    shown |= {key: e[key] for key in ("version", "commit", "machine", "threads") if e.get(key) not in (None, "", {})}
    lines = [el("div", el("dt", key), el("dd", name_of(value))) for key, value in _flat(shown)]
    return el(
        "details",
        el("summary", _brief(e)),
        el("dl", lines, class_="flat"),
        el("p", el("code", e["file"]), class_="small"),
    )


def _brief(e: Table) -> str:
    """The settings that one asks for first."""
    wanted = "epochs lr learning_rate batch_size k temperature metric queries_per_class gallery points iterations seed"
    words = [f"{key.replace('_', ' ')} {_value(e['settings'][key])}" for key in wanted.split() if key in e["settings"]]
    return ", ".join(words[:4]) or "settings"


def _flat(table: Mapping[str, Any], before: str = "") -> list[tuple[str, str]]:
    result = []
    for key, value in table.items():
        if isinstance(value, Mapping) and value:
            result += _flat(value, f"{before}{key}.")
        else:
            result.append((f"{before}{key}".removeprefix("settings."), _value(value)))
    return result


def _value(value: Any) -> str:
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "–"}[value]
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, list):
        text = ", ".join(_value(v) for v in value[:12])
        return text + (", …" if len(value) > 12 else "")
    return value if isinstance(value, str) else json.dumps(value)


def recipes(page: Page) -> Html | None:
    """The section with each run's recipe, folded, and how it was started."""
    blocks, words = [], []
    for run in page.runs:
        if run.recipe_text:
            blocks.append(_recipe(page, run))
        else:
            words.append((run, "No recipe: recipe.toml is missing or cannot be read."))
    lead = "Every setting, with every default and every automatic choice written out."
    return filled(page, "recipe", "Recipe", words, el("div", blocks) if blocks else None, lead)


def _recipe(page: Page, run: Run) -> Html:
    command, versions = run.info.get("command"), run.info.get("versions")
    started = el("p", "Started with ", el("code", str(command))) if command else None
    with_what = None
    if isinstance(versions, Mapping) and versions:
        listed = ", ".join(f"{name} {version}" for name, version in versions.items())
        with_what = el("p", f"With {listed}.", class_="small")
    summary = el("summary", "Recipe", [" of ", name_of(run.name)] if page.several else None)
    text = el("pre", el("code", run.recipe_text.strip()), tabindex="0")
    return el("details", summary, started, text, with_what, data_print=True)


def skipped(page: Page) -> Html | None:
    """Files that could not be read, where there are any."""
    blocks = []
    for run in page.runs:
        found = run.info.get("skipped")
        items = [s for s in found if isinstance(s, Mapping)] if isinstance(found, list) else []
        if items:
            blocks.append(_skipped_of(page, run, items))
    if not blocks:
        return None
    return section(
        "skipped",
        "Files left out",
        blocks,
        lead="These files of the training folder could not be read and were not learned from.",
    )


def _skipped_of(page: Page, run: Run, items: list[Mapping[str, Any]]) -> Html:
    rows = [
        el("tr", el("td", name_of(s.get("path", "?"))), el("td", str(s.get("reason", ""))))
        for s in items[:MOST_SKIPPED]
    ]
    head = el("tr", el("th", "File", scope="col"), el("th", "Why", scope="col"))
    more = (
        el("p", f"… and {count(len(items) - MOST_SKIPPED)} more, all in run.json.", class_="small")
        if len(items) > MOST_SKIPPED
        else None
    )
    table = el("div", el("table", el("thead", head), el("tbody", rows), class_="results"), class_="scroll")
    files = "1 file" if len(items) == 1 else f"{count(len(items))} files"
    return el(
        "details",
        el("summary", files, [" of ", name_of(run.name)] if page.several else None),
        table,
        more,
        open=len(items) <= 20,
    )
