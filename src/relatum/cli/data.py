"""Commands for datasets: `data get`, `data info` and `data shard`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

from relatum.cli.options import Data, Json, Root, echo, print_json


def get(
    name: Annotated[str, Argument(metavar="NAME", help="dataset name (see `relatum list datasets`)")], root: Root = None
) -> None:
    """Download a dataset; resumes a partial download and verifies the checksum."""
    from relatum.data import data_root
    from relatum.data.download import get

    echo(get(name, data_root(root)))


def info(data: Data, root: Root = None, json: Json = False) -> None:
    """Show the splits, image counts and classes of a dataset or a folder."""
    from relatum.data import info

    facts = info(data, root=root)
    if json:
        print_json(facts)
    else:
        echo(_table(facts))


def shard(
    folder: Annotated[Path, Argument(metavar="FOLDER", help="folder of images")],
    out: Annotated[Path, Option(help="new folder for the shards")],
    size: Annotated[int, Option(metavar="MB", min=1, help="size of a shard in megabytes")] = 256,
    shuffle: Annotated[
        bool,
        Option("--shuffle", help="pack in random order; recommended for streaming, which shuffles only nearby images"),
    ] = False,
) -> None:
    """Pack a folder of images into tar files with an index, which every command accepts as DATA."""
    from relatum.data.folder import shard

    echo("\n".join(map(str, shard(folder, out, size * 2**20, 0 if shuffle else None))))


def _table(facts: dict[str, Any]) -> str:
    lines = []
    for key, value in facts.items():
        if key == "splits":
            lines += [f"{name:12} {part['images']:,} images" for name, part in value.items()]
            for part in value.values():
                lines += [f"skipped      {item['path']}: {item['reason']}" for item in part["skipped"]]
        elif key == "skipped":
            lines.append(f"unreadable   {value}")
        elif value not in (None, "", [], ()):
            lines.append(f"{key:12} {', '.join(map(str, value)) if isinstance(value, list | tuple) else value}")
    return "\n".join(lines)
