"""`relatum reproduce`: plan, run what is missing, render. The command line calls `reproduce` with its flags.

Tables go to `OUT/tables/NAME.{md,csv,json}` and figures to `OUT/figures/NAME.{png,svg}`; run folders are in
`OUT/runs`, what became of every command in `OUT/logs`, and the ledger entry of every finished run in `OUT/ledger`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from relatum.errors import InputError
from relatum.paper import claims, estimate, executors, figures, published, render, scheduler
from relatum.paper.grid import Evaluation, Pretraining, Scale
from relatum.paper.measured import DONE, Results, score
from relatum.paper.plan import Plan, Planned, Request, plan
from relatum.system.files import write_json, write_text

_KINDS = {"pretrain": "runs", "evaluate": "evaluations"}


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
    probe: bool = True,
    as_json: bool = False,
    command: Sequence[str] = (sys.executable, "-m", "relatum"),
) -> int:
    """Reproduce tables and figures of the paper; gives the exit code.

    Args:
        tables: names of `relatum list tables`.
        datasets: keep cells pretrained on these; see `plan` for tables with a single dataset.
        backbones: keep cells with these.
        methods: keep rows of these.
        seeds: average over these; 1, 2 and 3 by default.
        views: K of relational reasoning; in the study of K, the largest K.
        epochs: of pretraining and, if fewer than its own, of finetuning.
        limit_train: number of images to pretrain on.
        out: folder of runs, tables and figures; results in it are used again.
        ledger: folders of ledger entries whose results count as done.
        root: data root handed to the commands.
        dry_run: only plan.
        render_only: only render what is there.
        executor: `local` makes runs in processes of this machine; `ray` as tasks of a ray cluster.
        jobs: runs side by side on this machine, each with its share of the cores.
        probe: measure the cost of a view for the estimate; a rough model otherwise.
        as_json: print one JSON document instead of text.
        command: the words that start relatum.
    """
    if not tables:
        raise InputError(f"name a table or figure to reproduce: {', '.join(published.NAMES)}.")
    if dry_run and render_only:
        raise InputError("--dry-run only plans and --render only renders: give one of them.")
    executors.check(executor)
    if jobs < 1 or (jobs > 1 and executor != "local"):
        raise InputError(f"--jobs {jobs}: give the number of runs side by side, 1 or more; ray has its own.")
    for folder in (Path(out), *Path(out).parents):
        if folder.exists() and not folder.is_dir():
            raise InputError(f"--out {out} cannot be a folder: {folder} is a file.")
    for folder in map(Path, ledger):
        if not folder.is_dir() and str(folder) != "results":  # the default need not be there
            raise InputError(f"--ledger {folder} is not a folder.")
    scale = Scale(views, epochs, limit_train)
    asked = plan(tables, Request(tuple(datasets), tuple(backbones), tuple(methods), tuple(seeds), scale))
    for name in asked.unused:
        _say(f"note: no cell of {', '.join(tables)} has '{name}'; it is left out.")
    results = Results(out, ledger)
    cost = estimate.Measured() if probe else estimate.rough
    if dry_run:
        document = dry_document(asked, results, cost)
        print(json.dumps(document, indent=2, ensure_ascii=False) if as_json else _dry_words(asked, document))
        return 0
    failed: dict[str, str] = {}
    if not render_only:
        _announce(asked, results, cost)
        failed = scheduler.execute(
            asked, results, command=command, root=root, executor=executor, jobs=jobs, say=_say
        ).failed
    try:
        rendered = write(asked, results, Path(out))
    except OSError as error:
        raise InputError(f"cannot write tables to {out}: {error.strerror}.") from None
    if as_json:
        print(json.dumps(rendered[0] if len(rendered) == 1 else {"tables": rendered}, indent=2, ensure_ascii=False))
    else:
        print("\n".join(render.to_markdown(r) for r in rendered))
        _say(f"tables: {', '.join(str(Path(out) / 'tables' / name) + '.md' for name in tables)} (and .csv, .json)")
        if drawn := [path for r in rendered for path in r["figures"] if path.endswith(".png")]:
            _say(f"pictures: {', '.join(drawn)} (and .svg)")
    for what, why in failed.items():
        _say(f"failed: {what}: {why}")
    return 0 if not failed and all(_ended_well(r) for r in rendered) else 1


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _ended_well(rendered: dict[str, Any]) -> bool:
    """Claims that lack runs are no failure: the table says so, and has nothing to run itself."""
    return rendered["table"] == "claims" or bool(rendered["complete"])


# ------------------------------------------------------------------------------------------------------------- planning


def dry_document(asked: Plan, results: Results, cost: estimate.Cost) -> dict[str, Any]:
    """The plan as data: one table's document, or for several a list of them and the union of their runs."""
    documents = [_dry_table(t, asked.request, results, cost) for t in asked.tables]
    if len(documents) == 1:
        return documents[0]
    return {"tables": documents, **_work(asked, results, cost)}


def _dry_table(planned: Planned, request: Request, results: Results, cost: estimate.Cost) -> dict[str, Any]:
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
    work = _work(planned, results, cost)
    seconds = work.pop("seconds_estimate")
    return {"table": planned.name, "title": title, **work, "cells": cells, "seconds_estimate": seconds}


def _claim_cells(results: Results, request: Request) -> list[dict[str, Any]]:
    rows = claims.document(results, request)["claims"]
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
        for c in rows
    ]


def _work(asked: Plan | Planned, results: Results, cost: estimate.Cost) -> dict[str, Any]:
    """Runs and evaluations with what is done, and the seconds of what is left."""
    runs, evaluations, pictures = asked.runs, asked.evaluations, asked.pictures
    have = {e: results.ready(e, picture=e in pictures) for e in evaluations}
    needed = {e.run for e, there in have.items() if not there}
    left = [r for r in runs if r in needed and not results.trained(r) and not _weights_kept(r, results)]
    probes = [e for e in evaluations if e.protocol != "classifier"]  # a supervised run scores itself
    seconds = estimate.total(left, [e for e in probes if not have[e]], cost)
    return {
        "pretrain": [_run(r, results) for r in runs],
        "evaluate": [_evaluation(e, results, done=have[e]) for e in probes],
        "seconds_estimate": round(seconds, 1),
    }


def _announce(asked: Plan, results: Results, cost: estimate.Cost) -> None:
    """Before anything starts: how much there is, how much of it is done, and about how long the rest will take."""
    if not scheduler.missing(asked, results):
        return
    work = _work(asked, results, cost)
    counts = [f"{len(work[k])} {name}, {sum(x['done'] for x in work[k])} done" for k, name in _KINDS.items()]
    _say(f"{'; '.join(counts)}; about {estimate.words(work['seconds_estimate'])} left on this machine (an estimate)")


def _weights_kept(run: Pretraining, results: Results) -> bool:
    return any(entry.backbone is not None for entry in results.entries_of(run))


def _run(run: Pretraining, results: Results) -> dict[str, Any]:
    words = " ".join(["relatum", *run.arguments(), "--out", str(results.run_dir(run)), "--resume"])
    return {
        "id": run.id,
        "method": run.method,
        "data": run.data,
        "backbone": run.backbone,
        "preset": run.preset,
        "views": run.views,
        "epochs": run.epochs,
        "batch_size": run.batch_size,
        "seed": run.seed,
        "labels": run.labels,
        "val_fraction": run.val_fraction,
        "limit_train": run.limit_train,
        "set": dict(run.set),
        "done": results.done(run),
        "command": words,
    }


def _evaluation(evaluation: Evaluation, results: Results, *, done: bool) -> dict[str, Any]:
    words = " ".join(["relatum", *evaluation.arguments(str(results.run_dir(evaluation.run)))])
    return {
        "id": evaluation.id,
        "run": evaluation.run.id,
        "protocol": evaluation.protocol,
        "dataset": evaluation.dataset,
        "split": evaluation.split,
        "tag": evaluation.tag,
        "epochs": evaluation.epochs,
        "seed": evaluation.run.seed,
        "done": done,
        "command": words,
    }


def _dry_words(asked: Plan, document: dict[str, Any]) -> str:
    documents = document.get("tables", [document])
    lines = []
    for d in documents:
        done = sum(c["done"] for c in d["cells"])
        lines.append(d["title"])
        if d["table"] == "claims":
            lines.append(
                f"  {len(d['cells'])} claims, {done} of which can be judged; it makes no runs: reproduce the tables."
            )
            continue
        for key in ("pretrain", "evaluate"):
            lines.append(f"  {key}: {len(d[key])}, of which done {sum(x['done'] for x in d[key])}")
        lines.append(f"  cells: {len(d['cells'])}, of which done {done}")
        lines.append(f"  left: about {estimate.words(d['seconds_estimate'])} on this machine")
    if len(documents) > 1:
        runs, seconds = len(document["pretrain"]), document["seconds_estimate"]
        lines.append(f"in all: {runs} runs, shared ones once; about {estimate.words(seconds)} left on this machine")
    return "\n".join(lines)


# ------------------------------------------------------------------------------------------------------------ rendering


def write(asked: Plan, results: Results, out: Path) -> list[dict[str, Any]]:
    """Render every table and figure of a plan into `out`; gives their documents."""
    rendered = []
    for planned in asked.tables:
        if planned.name == "claims":
            document = claims.document(results, asked.request)
        else:
            document = render.document(planned, results)
        document["figures"] = [str(p) for p in figures.draw(planned, results, out / "figures")]
        base = out / "tables" / planned.name
        write_json(base.with_suffix(".json"), document)
        write_text(base.with_suffix(".md"), render.to_markdown(document, base.parent))
        write_text(base.with_suffix(".csv"), render.to_csv(document))
        rendered.append(document)
    return rendered
