"""Commands that use a trained backbone: `evaluate`, `embed`, `search` and `report`."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from relatum.cli.options import Backbone, Device, Json, Root, Run, echo, file_name, key_value, print_json
from relatum.system.stderr import say
from relatum.system.text import counted, printable


def evaluate(
    protocol: Annotated[str, Argument(metavar="linear|knn|finetune|retrieval|tsne", help="the evaluation protocol")],
    run: Annotated[
        Path, Argument(metavar="RUN", help="run folder, or a ledger entry with weights (results/NAME.json)")
    ],
    data: Annotated[str, Option(help="dataset name or folder of images")],
    split: Annotated[str, Option(help="test, or val for the images held out by --val-fraction")] = "test",
    epochs: Annotated[int | None, Option(help="number of training epochs of the linear probe or of finetuning")] = None,
    seed: Annotated[int | None, Option(help="random seed of the evaluation (default: 1)")] = None,
    tag: Annotated[str, Option(help="suffix of the result file's name")] = "",
    set: Annotated[
        list[str] | None,
        Option("--set", metavar="KEY=VALUE", help="change a setting of the protocol, for example k=5; can be repeated"),
    ] = None,
    backbone: Backbone = None,
    device: Device = "auto",
    json: Json = False,
    root: Root = None,
) -> None:
    """Evaluate a run and write the result to RUN/evaluations."""
    from relatum import api

    result = api.evaluate(
        protocol,
        run,
        data=data,
        split=split,
        epochs=epochs,
        seed=seed,
        tag=tag,
        settings=dict(key_value(text) for text in set or ()),
        backbone=backbone,
        device=device,
        root=root,
    )
    if json:
        print_json(result.document())
        return
    score = "" if result.accuracy is None else f"{'top-10 ' * (protocol == 'retrieval')}{result.accuracy:.2f} %, "
    echo(f"{protocol} on {result.dataset} ({result.split}): {score}{result.path}")


def embed(
    run: Run,
    data: Annotated[
        list[str], Argument(metavar="DATA", help="dataset name, folder of images, or one or more image files")
    ],
    out: Annotated[
        Path,
        Option(
            metavar="FILE",
            help="output file: .npz, .parquet, .csv or .tsv (for the TensorBoard projector)",
        ),
    ],
    split: Annotated[str, Option(help="split of a dataset")] = "train",
    backbone: Backbone = None,
    device: Device = "auto",
    root: Root = None,
) -> None:
    """Compute the representations of all images of DATA and write them to a file."""
    from relatum import api

    z = api.embed(
        run, data[0] if len(data) == 1 else data, out=out, architecture=backbone, split=split, device=device, root=root
    )
    echo(f"{counted(len(z), 'representation')} of {counted(z.shape[1], 'number')}: {out}")


def search(
    run: Run,
    gallery: Annotated[str, Argument(metavar="GALLERY", help="folder of images or dataset name")],
    queries: Annotated[list[Path], Argument(metavar="QUERY", help="one or more image files")],
    top: Annotated[int, Option(metavar="N", min=1, help="number of images to return per query")] = 10,
    out: Annotated[Path | None, Option(help="write a contact sheet to this PNG file")] = None,
    backbone: Backbone = None,
    device: Device = "auto",
    json: Json = False,
    root: Root = None,
) -> None:
    """Find the images of GALLERY that are nearest to each query image."""
    from relatum import api

    hits = api.search(run, gallery, queries, top=top, out=out, backbone=backbone, device=device, root=root)
    if out is not None:
        say(printable(f"contact sheet: {out}"))
    if json:
        print_json([asdict(hit) for hit in hits])
        return
    for hit in hits:
        note = "  (the query itself)" if hit.is_query else ""
        note += f"  (same bytes: {', '.join(map(file_name, hit.copies))})" if hit.copies else ""
        print(f"{file_name(hit.query)}  {hit.rank:3d}  {hit.distance:.4f}  {file_name(hit.file)}{note}")


def report(
    runs: Annotated[list[Path], Argument(metavar="RUN", help="one or more run folders")],
    out: Annotated[Path | None, Option(help="output file (default: RUN/report.html)")] = None,
) -> None:
    """Write one self-contained HTML report of one run, or of several side by side."""
    from relatum import api

    echo(api.report(runs, out=out))
