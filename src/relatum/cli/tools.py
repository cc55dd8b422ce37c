"""Commands about relatum itself: `list` and `bench`."""

from __future__ import annotations

from typing import Annotated

from typer import Argument, Option

from relatum.cli.options import Json, Root, print_json


def list_names(
    what: Annotated[str, Argument(metavar="methods|backbones|datasets|tables", help="what to list")], json: Json = False
) -> None:
    """List methods, backbones, datasets, or the paper's tables."""
    from relatum.cli.listing import rows

    table = rows(what)
    if json:
        print_json(table)
        return
    width = max(len(row["name"]) for row in table)
    for row in table:
        print(f"{row['name']:{width}}  {row['summary']}")


def bench(
    what: Annotated[
        str,
        Argument(
            metavar="views|head|step",
            help="what to measure; head is the relation head with its loss, step a training step",
        ),
    ],
    method: Annotated[str, Option(help="training method, for step")] = "relational",
    backbone: Annotated[str, Option(help="backbone name, for step")] = "conv4",
    views: Annotated[int | None, Option(help="K, number of views per image (default: the method's)")] = None,
    batch_size: Annotated[int | None, Option(help="M, images per step (default: the method's)")] = None,
    side: Annotated[int | None, Option(metavar="PX", help="side of the images in pixels")] = None,
    repeats: Annotated[int | None, Option(help="number of rounds; the implementations are timed in turn")] = None,
    json: Json = False,
    root: Root = None,
) -> None:
    """Compare the speed of relatum with a straightforward PyTorch implementation on this machine."""
    from relatum.bench import run

    figures = run(
        what,
        method=method,
        backbone=backbone,
        views=views,
        batch_size=batch_size,
        side=side,
        repeats=repeats,
        root=root,
    )
    if json:
        print_json(figures)
        return
    for name, value in figures.items():
        print(f"{name:20} {value}")
