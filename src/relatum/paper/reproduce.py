"""`relatum reproduce`: plan, run what is missing, render. The command line calls `reproduce` with its flags.

Tables are written to `OUT/tables/NAME.{md,csv,json}` and figures to `OUT/figures/NAME.{png,svg}`. Run folders are in
`OUT/runs`, the log of every command in `OUT/logs`, and the ledger entry of every finished run in `OUT/ledger`.
"""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from relatum.errors import InputError, on_command_line, unknown
from relatum.paper import claims, estimate, figures, published, ray_tasks, render, scheduler
from relatum.paper.cells import Plan, Planned, Request
from relatum.paper.grid import Evaluation, Pretraining, Scale
from relatum.paper.measured import DONE, Results, score
from relatum.paper.plan import plan
from relatum.system.durations import duration
from relatum.system.files import FULL, write_error, write_json, write_text
from relatum.system.outputs import mark_output
from relatum.system.stderr import say


def reproduce(
    tables: Sequence[str],
    *,
    datasets: Sequence[str] = (),
    backbones: Sequence[str] = (),
    methods: Sequence[str] = (),
    seeds: Sequence[int] = (),
    views: int | None = None,
    epochs: int | None = None,
    limit_train: int | None = None,
    out: str | Path = "reproduce",
    ledger: Sequence[str | Path] = ("results",),
    root: str | None = None,
    dry_run: bool = False,
    render_only: bool = False,
    executor: str = "local",
    jobs: int = 1,
    as_json: bool = False,
    command: Sequence[str] = (sys.executable, "-m", "relatum"),
) -> int:
    """Reproduce tables and figures of the paper; returns the exit code.

    The arguments are those of `relatum.reproduce`, and `command`: the program and arguments that start relatum. In the
    study of K, `views` is the largest K; fewer `epochs` than finetuning has by default also shorten finetuning.
    """
    if not tables:
        raise InputError(f"name a table or figure to reproduce: {', '.join(published.NAMES)}.")
    if dry_run and render_only:
        raise InputError("--dry-run only plans and --render only renders: give one of them.")
    _check_executor(executor, jobs)
    _check_folders(Path(out), [Path(folder) for folder in ledger])
    scale = Scale(views, epochs, limit_train)
    planned = plan(tables, Request(tuple(datasets), tuple(backbones), tuple(methods), tuple(seeds), scale))
    for name in planned.unused:
        say(f"note: no cell of {', '.join(tables)} uses '{name}'; it is ignored.")
    results = Results(out, ledger)
    if note := _ledger_note([Path(folder) for folder in ledger]):
        say(note)
    if dry_run:
        document = dry_document(planned, results)
        print(_to_json(document) if as_json else _dry_text(document))
        return 0
    failed: dict[str, str] = {}
    if not render_only:
        _announce(planned, results)
        failed = scheduler.execute(
            planned, results, command=command, root=root, executor=executor, jobs=jobs, log=say
        ).failed
    try:
        rendered = write(planned, results, Path(out))
    except OSError as error:
        if error.errno in FULL:
            raise write_error(Path(out), error) from None
        raise InputError(f"cannot write tables to {out}: {error.strerror or error}.") from None
    if as_json:
        print(_to_json(rendered[0] if len(rendered) == 1 else {"tables": rendered}))
    else:
        print("\n".join(render.to_markdown(r) for r in rendered))
        say(f"tables: {', '.join(str(Path(out) / 'tables' / name) + '.md' for name in tables)} (and .csv, .json)")
        if images := [path for r in rendered for path in r["figures"] if path.endswith(".png")]:
            say(f"figures: {', '.join(images)} (and .svg)")
    for name, reason in failed.items():
        say(f"failed: {name}: {reason}")
    # Claims without enough runs are no failure: that table has nothing to run itself.
    return 0 if not failed and all(r["table"] == "claims" or r["complete"] for r in rendered) else 1


def _to_json(document: dict[str, Any]) -> str:
    return json.dumps(document, indent=2, ensure_ascii=False)


def _check_executor(executor: str, jobs: int) -> None:
    if executor not in scheduler.EXECUTORS:
        raise unknown("executor", executor, scheduler.EXECUTORS)
    if executor == "ray":
        ray_tasks.import_ray()
    if jobs < 1 or (jobs > 1 and executor != "local"):
        raise InputError(f"--jobs {jobs} must be 1 or more, and 1 with --executor ray, which schedules by itself.")


def _check_folders(out: Path, ledgers: Sequence[Path]) -> None:
    for folder in (out, *out.parents):
        if folder.exists() and not folder.is_dir():
            raise InputError(f"--out {out} cannot be a folder: {folder} is a file.")
    for folder in ledgers:
        if not folder.is_dir() and str(folder) != "results":  # the default is optional
            raise InputError(f"--ledger {folder} is not a folder.")


def _ledger_note(ledgers: Sequence[Path]) -> str:
    """A note where no ledger entry can count as done: `results` is found only from relatum's source folder."""
    if not ledgers or any(folder.is_dir() and any(folder.rglob("*.json")) for folder in ledgers):
        return ""
    listed = ", ".join(map(str, ledgers))
    return (
        f"note: the ledger (records of finished runs) is empty: there is no entry in {listed}. Published entries are in"
        " the folder `results` of relatum's source repository; --ledger FOLDER names another place."
    )


# ------------------------------------------------------------------------------------------------------------- planning


def dry_document(planned: Plan, results: Results) -> dict[str, Any]:
    """The plan as data: one table's document, or for several a list of them and the union of their runs."""
    documents = [_dry_table(t, planned.request, results) for t in planned.tables]
    return documents[0] if len(documents) == 1 else {"tables": documents, **_work(planned, results)}


def _dry_table(planned: Planned, request: Request, results: Results) -> dict[str, Any]:
    if planned.name == "claims":
        cells = _claim_cells(results, request)
    else:
        cells = [
            {
                "row": c.row.title,
                "column": c.column.name,
                "paper": c.paper.mean,
                "paper_std": c.paper.std,
                "done": score(c, results).status == DONE,
                "kind": c.kind,
                "row_key": c.row.key,
                "column_key": c.column.key,
                "table": c.table,
                "evaluations": [e.id for e in (*c.evaluations, *c.minus)],
            }
            for c in planned.cells
        ]
    title = "; ".join(dict.fromkeys(s.title for s in planned.sheets)) or planned.table.title
    return {"table": planned.name, "title": title, **_work(planned, results), "cells": cells}


def _claim_cells(results: Results, request: Request) -> list[dict[str, Any]]:
    return [
        {
            "row": c["sentence"],
            "column": "verdict",
            "paper": c.get("figure"),
            "paper_std": None,
            "done": c["ours"]["verdict"] != claims.NOT_ENOUGH,
            "kind": "claim",
            "row_key": c["key"],
        }
        for c in claims.document(results, request)["claims"]
    ]


def _work(planned: Plan | Planned, results: Results) -> dict[str, Any]:
    """Runs and evaluations with what is done, and an estimate of the seconds left."""
    pictures = planned.pictures
    ready = {e: results.ready(e, picture=e in pictures) for e in planned.evaluations}
    unfinished = {e.run for e, done in ready.items() if not done}
    to_train = [
        run
        for run in planned.runs
        if run in unfinished
        and not results.trained(run)
        and all(entry.backbone is None for entry in results.entries_of(run))
    ]
    commands = [e for e in ready if e.protocol != "classifier"]  # a supervised run scores itself
    return {
        "pretrain": [_run(run, results) for run in planned.runs],
        "evaluate": [_evaluation(e, results, done=ready[e]) for e in commands],
        "seconds_estimate": round(estimate.total(to_train, [e for e in commands if not ready[e]], results), 1),
    }


def _announce(planned: Plan, results: Results) -> None:
    """Before anything starts: the amount of work, what of it is done, and the time left."""
    if scheduler.missing(planned, results):
        work = _work(planned, results)
        counts = [
            f"{len(work[key])} {name}, {sum(x['done'] for x in work[key])} done"
            for key, name in (("pretrain", "runs"), ("evaluate", "evaluations"))
        ]
        say(f"{'; '.join(counts)}; about {duration(work['seconds_estimate'])} left (an estimate)")


def _run(run: Pretraining, results: Results) -> dict[str, Any]:
    arguments = ["relatum", *run.arguments(), "--out", str(results.run_dir(run)), "--resume"]
    done = {"done": results.done(run), "command": " ".join(arguments)}
    return {"id": run.id, **dataclasses.asdict(run), "set": dict(run.set), **done}


def _evaluation(evaluation: Evaluation, results: Results, *, done: bool) -> dict[str, Any]:
    arguments = ["relatum", *evaluation.arguments(str(results.run_dir(evaluation.run)))]
    fields = {key: getattr(evaluation, key) for key in ("protocol", "dataset", "split", "tag", "epochs")}
    names = {"id": evaluation.id, "run": evaluation.run.id, "seed": evaluation.run.seed}
    return {**names, **fields, "done": done, "command": " ".join(arguments)}


def _dry_text(document: dict[str, Any]) -> str:
    documents = document.get("tables", [document])
    lines = []
    for d in documents:
        done = sum(c["done"] for c in d["cells"])
        lines.append(d["title"])
        if d["table"] == "claims":
            lines.append(f"  {len(d['cells'])} claims, {done} with a verdict; to check more, reproduce other tables.")
            continue
        lines.append(f"  pretrain: {_count(d['pretrain'])}")
        for run in d["pretrain"]:
            evaluations = [e for e in d["evaluate"] if e["run"] == run["id"]]
            counts = f" (evaluations: {_count(evaluations)})" if evaluations else ""
            lines.append(f"    {'done' if run['done'] else 'todo'}  {run['id']}{counts}")
        lines.append(f"  evaluate: {_count(d['evaluate'])}")
        lines.append(f"  cells: {len(d['cells'])}, {done} done")
        lines.append(f"  time left: about {duration(d['seconds_estimate'])}")
    if len(documents) > 1:
        runs, seconds = len(document["pretrain"]), document["seconds_estimate"]
        lines.append(f"total: {runs} runs (shared runs counted once); about {duration(seconds)} left")
    lines.append(f"{'--json' if on_command_line() else 'as_json=True'} shows the command of each run and evaluation.")
    return "\n".join(lines)


def _count(work: Sequence[dict[str, Any]]) -> str:
    return f"{len(work)}, {sum(x['done'] for x in work)} done"


# ------------------------------------------------------------------------------------------------------------ rendering


def write(planned: Plan, results: Results, out: Path) -> list[dict[str, Any]]:
    """Render every table and figure of a plan into `out`; returns their documents."""
    rendered = []
    mark_output(out / "figures")
    for item in planned.tables:
        document = (
            claims.document(results, planned.request) if item.name == "claims" else render.document(item, results)
        )
        document["figures"] = [str(p) for p in figures.draw(item, results, out / "figures")]
        base = out / "tables" / item.name
        write_json(base.with_suffix(".json"), document)
        write_text(base.with_suffix(".md"), render.to_markdown(document, base.parent))
        write_text(base.with_suffix(".csv"), render.to_csv(document))
        rendered.append(document)
    return rendered
