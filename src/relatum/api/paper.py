"""The paper's tables and figures: `reproduce`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from relatum.api.runs import StrPath, as_list
from relatum.system.torch_state import usual_torch_state


@usual_torch_state
def reproduce(
    tables: Sequence[str] | str,
    *,
    datasets: Sequence[str] | str = (),
    backbones: Sequence[str] | str = (),
    methods: Sequence[str] | str = (),
    seeds: Sequence[int] | int = (),
    views: int | None = None,
    epochs: int | None = None,
    limit_train: int | None = None,
    out: StrPath = "reproduce",
    ledger: Sequence[StrPath] | StrPath = ("results",),
    root: StrPath | None = None,
    dry_run: bool = False,
    render_only: bool = False,
    executor: str = "local",
    jobs: int = 1,
    as_json: bool = False,
) -> int:
    """Reproduce tables and figures of the paper, print them, and return the exit code: 0, or 1 if a run failed.

    Args:
        tables: table names.
        datasets: restrict to these pretraining datasets.
        backbones: restrict to these backbones.
        methods: restrict to these methods.
        seeds: average over these seeds; 1, 2 and 3 by default.
        views: K of relational reasoning.
        epochs: number of pretraining epochs.
        limit_train: pretrain on at most this many images.
        out: output folder for runs, tables and figures.
        ledger: folders of ledger entries (records of finished runs) whose results are used.
        root: data root folder.
        dry_run: print the plan and run nothing.
        render_only: render the results that exist and run nothing.
        executor: `local`, or `ray`.
        jobs: number of runs in parallel.
        as_json: print one JSON document instead of text.
    """
    from relatum.paper import reproduce as command

    return command.reproduce(
        as_list(tables),
        datasets=as_list(datasets),
        backbones=as_list(backbones),
        methods=as_list(methods),
        seeds=as_list(seeds),
        views=views,
        epochs=epochs,
        limit_train=limit_train,
        out=Path(out),
        ledger=[Path(folder) for folder in as_list(ledger)],
        root=None if root is None else os.fspath(root),
        dry_run=dry_run,
        render_only=render_only,
        executor=executor,
        jobs=jobs,
        as_json=as_json,
    )
