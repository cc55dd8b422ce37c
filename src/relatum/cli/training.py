"""Commands that train: `pretrain` and `demo`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from relatum.cli.options import Root, echo
from relatum.system.launcher import is_first_process


def pretrain(
    data: Annotated[
        str | None, Argument(metavar="DATA", help="dataset name, folder of images or shards, or URL of shards")
    ] = None,
    out: Annotated[Path | None, Option(metavar="RUN", help="run folder (default: runs/NAME)")] = None,
    method: Annotated[
        str | None, Option(help="training method (see `relatum list methods`) (default: relational)")
    ] = None,
    backbone: Annotated[
        str | None,
        Option(
            help="backbone name (see `relatum list backbones`), timm:NAME, torchvision:NAME (append /small for small"
            " images) or module:function (default: conv4; a ResNet for a folder on a GPU)"
        ),
    ] = None,
    views: Annotated[
        int | None,
        Option(help="K, number of views per image (default: the paper's, 32; for a folder 8, on a GPU 16)"),
    ] = None,
    batch_size: Annotated[
        int | None, Option(help="M, images per step (default: 64 for relational, 128 for other methods)")
    ] = None,
    epochs: Annotated[
        int | None,
        Option(help="number of training epochs; for a folder, chosen by its size (default: the paper's, 200)"),
    ] = None,
    minutes: Annotated[
        float | None,
        Option(help="time budget for training: measures a few steps and chooses --epochs and, for relational, --views"),
    ] = None,
    seed: Annotated[int | None, Option(help="random seed (default: 1)")] = None,
    preset: Annotated[
        str | None,
        Option(
            help="paper, official (the settings of the authors' code) or fast (a good result in less than an hour on"
            " two CPU cores) (default: paper; fast for a folder)"
        ),
    ] = None,
    recipe: Annotated[
        Path | None,
        Option(help="recipe file (TOML) to start from, or the name of one that comes with relatum, such as hour"),
    ] = None,
    set: Annotated[
        list[str] | None,
        Option("--set", metavar="KEY=VALUE", help="set any recipe key, for example train.lr=0.01; can be repeated"),
    ] = None,
    resume: Annotated[
        bool, Option("--resume", help="continue an interrupted run from its last checkpoint; needs only --out")
    ] = False,
    overwrite: Annotated[bool, Option("--overwrite", help="replace an existing run")] = False,
    init: Annotated[str | None, Option(help="start from the weights of this run or file")] = None,
    device: Annotated[str | None, Option(help="auto, cpu, cuda or mps (default: auto)")] = None,
    devices: Annotated[
        int | None,
        Option(help="number of devices for data-parallel training (default: 1, or what torchrun or srun started)"),
    ] = None,
    threads: Annotated[
        int | None, Option(help="number of CPU threads of each process (default: all cores, divided by --devices)")
    ] = None,
    precision: Annotated[str | None, Option(help="32, bf16-mixed or 16-mixed (default: 32)")] = None,
    compile: Annotated[
        str | None, Option(help="compile the backbone with torch.compile: auto, on or off (default: auto)")
    ] = None,
    labels: Annotated[
        float | None, Option(help="fraction of the labels that training may use (default: 0; supervised: all)")
    ] = None,
    val_fraction: Annotated[
        float | None, Option(help="fraction of the training set to hold out for validation (default: 0)")
    ] = None,
    limit_train: Annotated[int | None, Option(help="train on at most this many images (default: all)")] = None,
    side: Annotated[int | None, Option(metavar="PX", help="side of a view in pixels (default: the dataset's)")] = None,
    stream: Annotated[
        bool | None,
        Option("--stream", help="decode images from tar shards as they are needed, without a decoded copy on disk"),
    ] = None,
    strict: Annotated[bool | None, Option("--strict", help="fail on an unreadable image file")] = None,
    knn_every: Annotated[
        int | None, Option(help="measure kNN accuracy every this many epochs (default: never)")
    ] = None,
    root: Root = None,
) -> None:
    """Pretrain a backbone on images without labels. For a folder, prints the defaults that it picks."""
    arguments = dict(locals())  # `api.pretrain` has the same names
    from relatum import api

    run = api.pretrain(**{**arguments, "set": set or ()})
    if is_first_process():
        echo(run.path)


def demo(
    out: Annotated[Path, Option(help="output folder")] = Path("demo"),
    overwrite: Annotated[bool, Option("--overwrite", help="replace an earlier demo")] = False,
    epochs: Annotated[int | None, Option(help="number of epochs of each run", hidden=True)] = None,
) -> None:
    """Train and compare backbones on built-in images and write a report; takes about three minutes."""
    from relatum.demo import run_demo

    run_demo(out, overwrite=overwrite, epochs=epochs)
