"""The rest of the table of commands: reports, the paper's tables, benchmarks, weights in and out."""

from __future__ import annotations

import json as jsonlib
from pathlib import Path
from typing import Annotated

import typer

from relatum.cli import Json, Root, app

Words = Annotated[list[str] | None, typer.Option(help="keep only these; may be repeated, or separated by commas")]


@app.command()
def report(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN…", help="run folders")],
    out: Annotated[Path | None, typer.Option(help="the page [default: RUN/report.html]")] = None,
) -> None:
    """Make one self-contained page of one run, or of several side by side."""
    from relatum import api

    print(api.report(runs, out=out))


@app.command()
def reproduce(
    tables: Annotated[list[str], typer.Argument(metavar="TABLE…", help="names of `relatum list tables`")],
    datasets: Words = None,
    backbones: Words = None,
    methods: Words = None,
    seeds: Words = None,
    views: Annotated[int | None, typer.Option(help="K of relational reasoning")] = None,
    epochs: Annotated[int | None, typer.Option(help="of pretraining")] = None,
    limit_train: Annotated[int | None, typer.Option(help="pretrain on so many images")] = None,
    out: Annotated[Path, typer.Option(help="folder of runs, tables and figures")] = Path("reproduce"),
    dry_run: Annotated[bool, typer.Option("--dry-run", help="only plan")] = False,
    render: Annotated[bool, typer.Option("--render", help="only render what is there")] = False,
    ledger: Annotated[
        list[Path] | None, typer.Option(help="folders of ledger entries that count [default: results]")
    ] = None,
    jobs: Annotated[int, typer.Option(help="runs side by side, each with its share of the cores")] = 1,
    executor: Annotated[str, typer.Option(help="local, or ray (extra `ray`)")] = "local",
    json: Json = False,
    root: Root = None,
) -> None:
    """Reproduce tables and figures of the paper: plan, run what is missing, render beside the paper's values."""
    from relatum.errors import InputError
    from relatum.paper.reproduce import reproduce as run

    try:
        numbers = [int(word) for word in _split("seeds", seeds)]
    except ValueError:
        raise InputError(f"--seeds takes whole numbers, not {' '.join(seeds or ())}.") from None
    code = run(
        tables,
        datasets=_split("datasets", datasets),
        backbones=_split("backbones", backbones),
        methods=_split("methods", methods),
        seeds=numbers,
        views=views,
        epochs=epochs,
        limit_train=limit_train,
        out=out,
        ledger=ledger or ["results"],
        root=None if root is None else str(root),
        dry_run=dry_run,
        render_only=render,
        executor=executor,
        jobs=jobs,
        as_json=json,
    )
    if code:
        raise typer.Exit(code)


@app.command()
def bench(
    what: Annotated[str, typer.Argument(help="views, head or step")],
    method: Annotated[str, typer.Option(help="of the step")] = "relational",
    backbone: Annotated[str, typer.Option(help="of the step")] = "conv4",
    views: Annotated[int | None, typer.Option(help="K [default: the method's]")] = None,
    batch_size: Annotated[int | None, typer.Option(help="M [default: the method's]")] = None,
    side: Annotated[int | None, typer.Option(metavar="PX", help="side of the images")] = None,
    repeats: Annotated[int | None, typer.Option(help="rounds in which the sides take turns")] = None,
    json: Json = False,
    root: Root = None,
) -> None:
    """Measure ours against the usual way, side by side in one run."""
    from relatum.bench import run

    found = run(
        what,
        method=method,
        backbone=backbone,
        views=views,
        batch_size=batch_size,
        side=side,
        repeats=repeats,
        root=root,
    )
    print(jsonlib.dumps(found, indent=2) if json else "\n".join(f"{key:20} {value}" for key, value in found.items()))


@app.command()
def export(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="a run folder or a weights file")],
    format: Annotated[str, typer.Option(help="safetensors, torch or onnx")],
    out: Annotated[Path, typer.Option(metavar="FILE", help="the file to write")],
) -> None:
    """Write a run's backbone for other tools."""
    from relatum.runs.exchange import export as write

    print(write(run, format, out))


@app.command("import")
def import_(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="the authors' .tar, a state dict, or safetensors")],
    backbone: Annotated[str, typer.Option(help="the architecture")],
    out: Annotated[Path, typer.Option(metavar="RUN", help="the run folder to make")],
    data: Annotated[str, typer.Option(help="what it was trained on")] = "cifar10",
    method: Annotated[str | None, typer.Option(help="how it was trained")] = None,
) -> None:
    """Make a run folder from weights that others trained."""
    from relatum.runs.exchange import import_weights

    print(import_weights(file, backbone, out, data=data, method=method))


def _split(flag: str, words: list[str] | None) -> list[str]:
    from relatum.errors import InputError

    found = [part for word in words or () for part in word.split(",") if part]
    if words and not found:
        raise InputError(f"--{flag} is empty: name at least one, or leave it out for all.")
    return found
