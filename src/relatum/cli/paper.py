"""The command that reproduces the paper's tables and figures."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from relatum.cli.options import Json, Root, split_commas
from relatum.errors import InputError


def reproduce(
    tables: Annotated[list[str], Argument(metavar="TABLE", help="one or more table names (see `relatum list tables`)")],
    datasets: Annotated[
        list[str] | None,
        Option(metavar="NAMES", help="only these pretraining datasets, separated by commas (default: all)"),
    ] = None,
    backbones: Annotated[
        list[str] | None, Option(metavar="NAMES", help="only these backbones, separated by commas (default: all)")
    ] = None,
    methods: Annotated[
        list[str] | None, Option(metavar="NAMES", help="only these methods, separated by commas (default: all)")
    ] = None,
    seeds: Annotated[
        list[str] | None, Option(metavar="NUMBERS", help="average over these random seeds (default: 1,2,3)")
    ] = None,
    views: Annotated[int | None, Option(help="K, number of views per image of relational reasoning")] = None,
    epochs: Annotated[int | None, Option(help="number of pretraining epochs")] = None,
    limit_train: Annotated[int | None, Option(help="pretrain on at most this many images")] = None,
    out: Annotated[Path, Option(help="output folder for runs, tables and figures")] = Path("reproduce"),
    dry_run: Annotated[bool, Option("--dry-run", help="print the plan and run nothing")] = False,
    render: Annotated[bool, Option("--render", help="render the existing results and run nothing")] = False,
    ledger: Annotated[
        list[Path] | None,
        Option(
            metavar="DIR",
            help="folders of ledger entries (records of finished runs) (default: results); can be repeated",
        ),
    ] = None,
    jobs: Annotated[int, Option(help="number of runs in parallel; they share the CPU cores")] = 1,
    executor: Annotated[str, Option(help="local, or ray (needs the extra `ray`)")] = "local",
    json: Json = False,
    root: Root = None,
) -> None:
    """Reproduce tables and figures of the paper: run what is missing, then show our values beside the paper's."""
    from relatum import api

    try:
        seed_numbers = [int(text) for text in split_commas("seeds", seeds)]
    except ValueError:
        raise InputError(f"--seeds takes whole numbers, not {' '.join(seeds or ())}.") from None
    code = api.reproduce(
        tables,
        datasets=split_commas("datasets", datasets),
        backbones=split_commas("backbones", backbones),
        methods=split_commas("methods", methods),
        seeds=seed_numbers,
        views=views,
        epochs=epochs,
        limit_train=limit_train,
        out=out,
        ledger=ledger or ["results"],
        root=root,
        dry_run=dry_run,
        render_only=render,
        executor=executor,
        jobs=jobs,
        as_json=json,
    )
    if code:
        raise typer.Exit(code)
