"""Commands about a collection of images: `duplicates`, `outliers`, `cluster`, `select`. Image files are only read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from relatum.cli.options import Backbone, Data, Device, Json, Root, Run, echo, file_name, print_json
from relatum.system.stderr import say
from relatum.system.text import counted, printable

if TYPE_CHECKING:
    from relatum.collection.rows import Row

Out = Annotated[
    Path | None, Option(metavar="FILE.csv", help="write the result to a .csv, .json or .txt file (one name per line)")
]
Split = Annotated[str, Option(help="split of a dataset")]


def duplicates(
    run: Run,
    data: Data,
    out: Out = None,
    threshold: Annotated[
        float | None,
        Option(
            metavar="X",
            min=0,
            help="largest difference between copies in any part; smaller is stricter (default: 0.18)",
        ),
    ] = None,
    backbone: Backbone = None,
    split: Split = "train",
    device: Device = "auto",
    json: Json = False,
    root: Root = None,
) -> None:
    """Find near-duplicates: exact copies, and copies that were re-encoded, resized or slightly changed."""
    from relatum import api

    groups = api.duplicates(
        run, data, out=out, threshold=threshold, backbone=backbone, split=split, device=device, root=root
    )
    copies = sum(len(group.files) - 1 for group in groups)
    further = f" with {copies:,} further {'copy' if copies == 1 else 'copies'}" if groups else ""
    summary = f"{counted(len(groups), 'group')} of near-duplicates{further}"
    if _finish(groups, out, json, summary):
        return
    print(summary)
    for number, group in enumerate(groups, 1):
        print(f"\n{number}. {'same bytes' if group.exact else f'difference {group.difference:.2f}'}")
        for file in group.files:
            print(f"   {file_name(file)}")


def outliers(
    run: Run,
    data: Data,
    out: Out = None,
    top: Annotated[int, Option(metavar="N", min=1, help="number of images to return")] = 20,
    backbone: Backbone = None,
    split: Split = "train",
    device: Device = "auto",
    json: Json = False,
    root: Root = None,
) -> None:
    """Find the images that differ most from all others."""
    from relatum import api

    rows = api.outliers(run, data, out=out, top=top, backbone=backbone, split=split, device=device, root=root)
    if _finish(rows, out, json, f"{counted(len(rows), 'image')}, the most unusual first"):
        return
    for row in rows:
        same = f"  (and {counted(len(row.same), 'file')} with the same thumbnail)" if row.same else ""
        print(f"{row.rank:4d}  {row.score:7.2f}  {file_name(row.file)}{same}")


def cluster(
    run: Run,
    data: Data,
    out: Out = None,
    number: Annotated[int | None, Option(help="number of clusters (default: chosen by the silhouette score)")] = None,
    method: Annotated[str, Option(help="kmeans, or hdbscan (leaves out images outside dense groups)")] = "kmeans",
    seed: Annotated[int, Option(help="random seed")] = 1,
    backbone: Backbone = None,
    split: Split = "train",
    device: Device = "auto",
    json: Json = False,
    root: Root = None,
) -> None:
    """Group similar images, and name the most typical image of each group."""
    from relatum import api

    albums = api.cluster(
        run,
        data,
        out=out,
        number=number,
        method=method,
        seed=seed,
        backbone=backbone,
        split=split,
        device=device,
        root=root,
    )
    if _finish(albums, out, json, counted(len(albums), "cluster")):
        return
    for position, album in enumerate(albums, 1):
        print(f"{position:4d}  {counted(len(album.files), 'image'):>13}  {file_name(album.title)}")
    if out is None:
        say("--out FILE.csv lists all files of each cluster")


def select(
    run: Run,
    data: Data,
    number: Annotated[int, Option(metavar="N", min=1, help="number of images to select")],
    out: Out = None,
    backbone: Backbone = None,
    split: Split = "train",
    device: Device = "auto",
    json: Json = False,
    root: Root = None,
) -> None:
    """Select a diverse subset that covers the images, for example for labelling."""
    from relatum import api

    rows = api.select(run, data, number=number, out=out, backbone=backbone, split=split, device=device, root=root)
    if not _finish(rows, out, json, counted(len(rows), "image")):
        for row in rows:
            print(file_name(row.file))


def explore(
    folder: Annotated[Path, Argument(metavar="FOLDER", help="folder of images")],
    minutes: Annotated[float | None, Option(help="time budget for training (default: 5)")] = None,
    out: Annotated[Path | None, Option(metavar="DIR", help="run folder (default: runs/NAME)")] = None,
    seed: Annotated[int, Option(help="random seed")] = 1,
    device: Device = "auto",
) -> None:
    """Train on a folder of photos, and write one page: a map, albums, near-duplicates, outliers and search."""
    from relatum import api

    echo(api.explore(folder, minutes=minutes, out=out, seed=seed, device=device))


def _finish(rows: Sequence[Row], out: Path | None, json: bool, summary: str) -> bool:
    """Print the JSON document, or a summary with the output file; False if the result is still to be printed."""
    if out is not None:
        say(printable(f"{summary}: {out}"))
    if json:
        print_json([asdict(row) for row in rows])
    return json or out is not None
