"""The first section of the page: scores, method, data and training time of each run, and notes about it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from relatum.report import comparison
from relatum.report.formatting import backbone_title, count, dataset_title, duration, method_title
from relatum.report.page import Page, Panel, Section, merged
from relatum.runs.reading import RunRecord, is_number

STATUS = {"running": "not finished", "": "status unknown"}


def overview(page: Page) -> Section:
    """The section: scores first, then the facts about each run."""
    groups = comparison.groups(page)
    scored = [run for entries in groups.values() for run, _ in entries]
    panels = [_panel(page, run) for run in page.runs]
    rows = {name: [panel["facts"][name] or "–" for panel in panels] for name in panels[0]["facts"]}
    data = {
        "comparisons": [comparison.comparison(page, key, entries) for key, entries in groups.items()],
        "without_score": merged([(run, comparison.why_none(run)) for run in page.runs if run not in scored]),
        "rows": {name: values for name, values in rows.items() if set(values) != {"–"}},
    }
    return Section("overview", "Overview", None, panels, data=data)


def subtitle(page: Page) -> str:
    """One line on a single run: method, backbone, data, views, epochs."""
    run = page.runs[0]
    if not run.method or not run.backbone:
        return ""
    views, epochs = run.setting("views.number"), run.setting("train.epochs")
    text = f"{method_title(run.method)} with {backbone_title(run.backbone)}"
    text += f" on {dataset_title(run.data_name)}" if run.data_name else ""
    text += f", {views} views of each image" if views and views != 1 else ""
    return text + (f", {epochs} epoch{'s' * (epochs != 1)}" if epochs else "")


def _panel(page: Page, run: RunRecord) -> Panel:
    status = str(run.info.get("status", ""))
    facts = {name: "" if value is None else str(value) for name, value in _facts(run).items()}
    notes = {text: [run] for text in (*_state(run), *_version(page, run), *run.notes)}
    return {
        "run": run,
        "status": STATUS.get(status, status),
        "ok": status == "finished",
        "facts": facts,
        "notes": notes,
    }


def _facts(run: RunRecord) -> dict[str, Any]:
    get, info = run.setting, run.info
    images, labels = info.get("images", get("data.images")), get("data.labels", 0)
    speed = run.metrics.get("views_per_second")
    median = float(np.nanmedian(speed)) if speed is not None and np.isfinite(speed).any() else None
    preset = f", preset {get('preset')}" if get("preset") else ""
    return {
        "Method": method_title(run.method) + preset if run.method else None,
        "Backbone": backbone_title(run.backbone),
        "Training data": dataset_title(run.data_name),
        "Images": count(images) if is_number(images) else None,
        "Labels used": f"{100 * labels:g} %" if is_number(labels) and labels else None,
        "Views per image (K)": get("views.number"),
        "Mini-batch size (M)": get("train.batch_size"),
        "Epochs": get("train.epochs"),
        "Steps": _steps(run),
        "Seed": get("seed"),
        "Duration": duration(info.get("seconds")),
        "Speed": f"{median:,.0f} views/s" if median else None,
        "Started": str(info.get("started", "")).replace("T", " ").replace("Z", " UTC"),
        "Machine": _machine(info),
        "relatum": _software(info),
    }


def _steps(run: RunRecord) -> str | None:
    """`1,200 of 5,000`, or one number for a complete run."""
    steps, total = run.info.get("steps"), run.info.get("total_steps")
    if not is_number(steps):
        return None
    return f"{count(steps)} of {count(total)}" if is_number(total) and steps != total else count(steps)


def _machine(info: Mapping[str, Any]) -> str:
    machine, threads = info.get("machine"), info.get("threads")
    if isinstance(machine, Mapping):
        machine = ", ".join(str(machine[k]) for k in ("gpu", "cpu") if machine.get(k))
    parts = [str(machine)] if machine else []
    parts += [f"{threads} thread{'s' if threads != 1 else ''}"] if is_number(threads) else []
    return ", ".join(parts)


def _software(info: Mapping[str, Any]) -> str | None:
    version, commit = info.get("version"), info.get("commit")
    return f"{version} ({str(commit)[:8]})" if version and commit else version


def _state(run: RunRecord) -> list[str]:
    """A note about a run that is incomplete."""
    steps = _steps(run)
    where = f" at step {steps}" if steps else ""
    texts = {
        "interrupted": f"Training was interrupted{where}. Repeat the command with `--resume` to continue. "
        "This page shows the results so far.",
        "failed": f"Training failed{where}. This page shows the results so far.",
        "running": "Training had not finished when this page was written, or its process was killed; "
        "`--resume` continues it.",
    }
    status = str(run.info.get("status"))
    return [texts[status]] if status in texts else []


def _version(page: Page, run: RunRecord) -> list[str]:
    version = run.info.get("version")
    if not version or str(version) == page.version:
        return []
    return [f"This run was written by relatum {version}, this page by {page.version}: some fields may be missing."]
