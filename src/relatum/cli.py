"""The command line: a thin table of commands. Everything heavy is imported inside a command, so `--help` is instant.

Exit codes: 0 done, 1 failed, 2 bad usage or bad input, 130/143 interrupted after a clean save. With `--json`, standard
output holds exactly one JSON document; everything else goes to standard error.
"""

from __future__ import annotations

import io
import json as jsonlib
import os
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from relatum.errors import Interrupted, RelatumError, unknown

app = typer.Typer(
    name="relatum",
    help="Learn to see from unlabelled images by relational reasoning. `relatum demo` shows it in three minutes.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
data_app = typer.Typer(help="Get, look at or pack datasets.", no_args_is_help=True)
app.add_typer(data_app, name="data")

DataArgument = Annotated[
    str, typer.Argument(metavar="DATA", help="a dataset's name (`relatum list datasets`) or a folder of images")
]
RunArgument = Annotated[Path, typer.Argument(metavar="RUN", help="a run folder")]
Root = Annotated[Path | None, typer.Option(help="where datasets lie; else $RELATUM_DATA, else the user's cache folder")]
Json = Annotated[bool, typer.Option("--json", help="print one JSON document")]
Set = Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="set a key; may be repeated")]


@app.callback(invoke_without_command=True)
def _top(
    version: Annotated[bool, typer.Option("--version", help="print the version")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="show a traceback where something fails")] = False,
) -> None:
    if version:
        from relatum.version import __version__

        print(f"relatum {__version__}")
        raise typer.Exit


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="where the results go")] = Path("demo"),
    overwrite: Annotated[bool, typer.Option(help="replace an earlier demo")] = False,
    epochs: Annotated[int | None, typer.Option(help="epochs of each training", hidden=True)] = None,
) -> None:
    """The main job on embedded images, in three minutes: pretrain, evaluate, compare, report."""
    from relatum.demo import run_demo

    run_demo(out, overwrite=overwrite, epochs=epochs)


@app.command("list")
def list_(
    what: Annotated[str, typer.Argument(help="methods, backbones, datasets or tables")],
    json: Json = False,
) -> None:
    """List methods, backbones, datasets, or the paper's tables."""
    from relatum.listing import rows

    found = rows(what)
    if json:
        print(jsonlib.dumps(found, indent=2))
        return
    width = max(len(row["name"]) for row in found)
    for row in found:
        print(f"{row['name']:{width}}  {row['summary']}")


@data_app.command("get")
def data_get(name: Annotated[str, typer.Argument(help="a dataset's name")], root: Root = None) -> None:
    """Download a dataset from its own address, with resume and checksum."""
    from relatum.data import data_root
    from relatum.data.download import get

    print(get(name, data_root(root)))


@data_app.command("info")
def data_info(data: DataArgument, root: Root = None, json: Json = False) -> None:
    """What a dataset or a folder holds."""
    from relatum.data import info

    found = info(data, root=root)
    print(jsonlib.dumps(found, indent=2, default=str) if json else _lines(found))


@data_app.command("shard")
def data_shard(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="a folder of images")],
    out: Annotated[Path, typer.Option(help="a new folder for the shards")],
    size: Annotated[int, typer.Option(metavar="MB", min=1, help="megabytes of a shard")] = 256,
) -> None:
    """Pack a folder of images into tar files, which can take the folder's place wherever DATA is asked for."""
    from relatum.data.folder import shard

    written = shard(folder, out, size * 2**20)
    print("\n".join(map(str, written)))


@app.command()
def pretrain(
    data: Annotated[str | None, typer.Argument(metavar="DATA", help="a dataset's name or a folder of images")] = None,
    out: Annotated[Path | None, typer.Option(metavar="RUN", help="the run folder [default: runs/NAME]")] = None,
    method: Annotated[
        str | None, typer.Option(help="how it learns (`relatum list methods`) [default: relational]")
    ] = None,
    backbone: Annotated[str | None, typer.Option(help="a name, or module:function [default: conv4]")] = None,
    views: Annotated[
        int | None, typer.Option(help="K, views per image [default: the paper's, 32; 8 for a folder on a CPU]")
    ] = None,
    batch_size: Annotated[int | None, typer.Option(help="M, images per step [default: 64; 128 for the rivals]")] = None,
    epochs: Annotated[int | None, typer.Option(help="passes over the data [default: the paper's, 200]")] = None,
    seed: Annotated[int | None, typer.Option(help="names every random draw [default: 1]")] = None,
    preset: Annotated[str | None, typer.Option(help="paper or official (the authors' code) [default: paper]")] = None,
    recipe: Annotated[Path | None, typer.Option(help="a TOML file to start from")] = None,
    set: Set = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="continue exactly where it stopped; needs only --out")
    ] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="replace a run that is there")] = False,
    init: Annotated[str | None, typer.Option(help="start from these weights: a run or a file")] = None,
    device: Annotated[str | None, typer.Option(help="auto, cpu, cuda or mps")] = None,
    devices: Annotated[int | None, typer.Option(help="number of devices")] = None,
    threads: Annotated[int | None, typer.Option(help="CPU threads")] = None,
    precision: Annotated[str | None, typer.Option(help="32, bf16-mixed or 16-mixed")] = None,
    compile: Annotated[str | None, typer.Option(help="auto, on or off")] = None,
    labels: Annotated[float | None, typer.Option(help="fraction of labels that training may see")] = None,
    val_fraction: Annotated[float | None, typer.Option(help="part of the training set to hold out")] = None,
    limit_train: Annotated[int | None, typer.Option(help="use only so many images")] = None,
    side: Annotated[int | None, typer.Option(metavar="PX", help="side of a view")] = None,
    strict: Annotated[bool | None, typer.Option("--strict", help="an unreadable file is an error")] = None,
    knn_every: Annotated[int | None, typer.Option(help="kNN accuracy every so many epochs")] = None,
    root: Root = None,
) -> None:
    """Learn a backbone from images."""
    arguments = {name: value for name, value in locals().items() if name not in ("data", "set")}
    from relatum import api

    print(api.pretrain(data, set=set or (), **arguments).path)


@app.command()
def evaluate(
    protocol: Annotated[str, typer.Argument(help="linear, knn, finetune, retrieval or tsne")],
    run: Annotated[Path, typer.Argument(metavar="RUN", help="a run folder, or an entry of the ledger with weights")],
    data: Annotated[str, typer.Option(help="a dataset's name or a folder of images")],
    split: Annotated[str, typer.Option(help="test, or val for the held-out part")] = "test",
    epochs: Annotated[int | None, typer.Option(help="of the probe")] = None,
    seed: Annotated[int | None, typer.Option(help="of the probe [default: 1]")] = None,
    tag: Annotated[str, typer.Option(help="part of the result file's name")] = "",
    set: Set = None,
    json: Json = False,
    root: Root = None,
) -> None:
    """Score a run; the result is written to RUN/evaluations."""
    from relatum import api

    settings = dict(_pair(text) for text in set or ())
    result = api.evaluate(
        protocol, run, data=data, split=split, epochs=epochs, seed=seed, tag=tag, settings=settings, root=root
    )
    if json:
        print(jsonlib.dumps(result.document(), indent=2))
        return
    score = "" if result.accuracy is None else f"{'top-10 ' * (protocol == 'retrieval')}{result.accuracy:.2f} %, "
    print(f"{protocol} on {result.dataset} ({result.split}): {score}{result.path}")


@app.command()
def embed(
    run: RunArgument,
    data: DataArgument,
    out: Annotated[Path, typer.Option(metavar="FILE.npz|FILE.parquet", help="where the representations go")],
    split: Annotated[str, typer.Option(help="the split of a dataset")] = "train",
    root: Root = None,
) -> None:
    """Write the representations of all images of DATA."""
    from relatum import api

    z = api.embed(run, data, out=out, split=split, root=root)
    print(f"{len(z):,} representations of {z.shape[1]} numbers: {out}")


@app.command()
def search(
    run: RunArgument,
    gallery: Annotated[str, typer.Argument(metavar="GALLERY", help="a folder of images, or a dataset's name")],
    queries: Annotated[list[Path], typer.Argument(metavar="QUERY…", help="image files")],
    top: Annotated[int, typer.Option(help="how many to find", min=1)] = 10,
    out: Annotated[Path | None, typer.Option(help="draw a contact sheet (PNG)")] = None,
    json: Json = False,
    root: Root = None,
) -> None:
    """Find the images nearest to each query."""
    from relatum import api

    hits = api.search(run, gallery, queries, top=top, out=out, root=root)
    if out is not None:
        print(f"contact sheet: {out}", file=sys.stderr)
    if json:
        print(jsonlib.dumps([asdict(hit) for hit in hits], indent=2))
        return
    for hit in hits:
        print(f"{hit.query}  {hit.rank:3d}  {hit.distance:.4f}  {hit.file}")


def _pair(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals:
        from relatum.errors import InputError

        raise InputError(f"--set {text!r} has no '='; write --set key=value.")
    return key.strip(), value.strip()


def _lines(document: dict[str, Any]) -> str:
    lines = []
    for key, value in document.items():
        if key == "splits":
            lines += [f"{name:12} {part['images']:,} images" for name, part in value.items()]
            for part in value.values():
                lines += [f"skipped      {item['path']}: {item['reason']}" for item in part["skipped"]]
        elif key == "skipped":
            lines.append(f"unreadable   {value}")
        elif value not in (None, "", [], ()):
            lines.append(f"{key:12} {', '.join(map(str, value)) if isinstance(value, list | tuple) else value}")
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> None:
    """Run a command; errors become one or two lines on standard error."""
    import relatum.cli_more  # noqa: F401 (registers its commands)

    # Before torch is imported: OpenMP's idle threads spin for long and take a core from our kernels' threads. With
    # short spinning a step of K = 4 takes 18 ms instead of 25 (docs/performance.md). What the user has set stays.
    os.environ.setdefault("GOMP_SPINCOUNT", "1000")

    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # file names may hold bytes that are no text
    given = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in given
    given = [word for word in given if word != "--debug"]
    try:
        code = app(args=given, prog_name="relatum", standalone_mode=False)
    except Interrupted as error:  # not a failure: everything is saved
        print(error, file=sys.stderr)
        code = error.exit_code
    except RelatumError as error:
        if debug:
            raise
        code = _say(f"{error}", error.exit_code)
    except KeyboardInterrupt:
        code = _say("interrupted.", 130)
    except BrokenPipeError:  # the reader of our output went away, as in `relatum list | head -1`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 0
    except Exception as error:
        code = _other(error, given, debug)
    sys.exit(code if isinstance(code, int) else 0)


def _other(error: Exception, given: list[str], debug: bool) -> int:
    """Usage errors of the CLI library, and anything unexpected."""
    if hasattr(error, "format_message") and hasattr(error, "exit_code"):
        message = error.format_message()
        if not message:  # a bare `relatum`: its help has been shown
            return 0
        if "No such command" in message:
            known = [command.name or str(command.callback.__name__) for command in app.registered_commands]  # type: ignore[union-attr]
            word = next((w for w in given if not w.startswith("-")), "")
            message = str(unknown("command", word, [*known, "data"]))
        return _say(message, int(error.exit_code) or 2)
    if isinstance(error, typer.Abort):
        return _say("interrupted.", 130)
    if debug:
        raise error
    text = (str(error).strip().splitlines() or [""])[0]
    return _say(f"unexpected {type(error).__name__}: {text} (--debug shows where)", 1)


def _say(message: str, code: int) -> int:
    colour = sys.stderr.isatty() and not os.environ.get("NO_COLOR")
    word = "\x1b[1;31merror:\x1b[0m" if colour else "error:"
    print(f"{word} {message}", file=sys.stderr)
    return code
