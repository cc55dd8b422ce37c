"""`recipes/`: the paper's conditions as TOML files, one per family of runs, generated from the grid.

The runs of a family differ in one setting at a time that a flag can change: seed, dataset, backbone, K in the study of
K, fraction of labels, aggregation or head. The file has all settings of one run, and its first lines list the flags for
the others. Settings that depend on the dataset (split, side, mean, std, padding) are left out, so that naming another
dataset uses its values. `python -m relatum.paper.recipes FOLDER` writes them; a test compares the folder with the grid.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from relatum import config
from relatum.config.conditions import CONDITIONS
from relatum.paper import published
from relatum.paper.cells import Request
from relatum.paper.grid import SEEDS, Pretraining
from relatum.paper.plan import plan
from relatum.system.files import write_text

_SECTIONS = ("data", "views", "backbone", "objective", "train")
_LEFT_OUT = ("split", "side", "mean", "std", "pad", "strict", "images", "fingerprint")
_STREAMING = ("storage", "window", "lanes", "cache_gb")  # no condition of the paper: its datasets fit in memory
# Datasets for which the paper uses another K or number of epochs.
_SCHEDULED = {row.dataset for row in CONDITIONS if not row.preset}


def families() -> Iterator[tuple[str, list[Pretraining], list[str]]]:
    """Every family's name, its runs (the first stands in the file) and the tables that it serves; seed 1 for all."""
    runs: dict[str, list[Pretraining]] = {}
    tables: dict[str, list[str]] = {}
    planned = {name: plan([name], Request(seeds=SEEDS[:1])).runs for name in published.TABLES if name != "claims"}
    backbones = {(run.data, run.backbone) for name in planned for run in planned[name]}
    for name in planned:
        for run in planned[name]:
            key = family(run, [backbone for data, backbone in backbones if data == run.data])
            runs.setdefault(key, []).append(run)
            tables.setdefault(key, []).append(name)
    for name in sorted(runs):
        # In the file stands the plainest member: no override, the fewest labels, the largest K, the first names.
        members = sorted(set(runs[name]), key=lambda r: (len(r.set), r.labels, -r.views, r.data, r.backbone))
        yield name, members, list(dict.fromkeys(tables[name]))


def family(run: Pretraining, backbones: Iterable[str]) -> str:
    """The family of a run: its method, and what sets its schedule, split or labels apart.

    Args:
        run: one of the paper's.
        backbones: those that the paper trains on the run's dataset.
    """
    parts = [run.method]
    parts += [run.data] * (run.data in _SCHEDULED)
    recipes = [config.defaults(run.method, "paper", run.data, backbone) for backbone in backbones]
    parts += [run.backbone] * any(recipe != recipes[0] for recipe in recipes)
    if run.val_fraction:
        parts.append("augmentations" if run.epochs == 100 else "aggregation")
    parts += ["semi-supervised"] * bool(run.labels)
    return "-".join(parts)


def _flags(members: Sequence[Pretraining]) -> Iterator[str]:
    """The flags that give the other members of a family, with their values."""
    values: dict[str, list[Any]] = {
        "DATA": sorted({r.data for r in members}),
        "--backbone": sorted({r.backbone for r in members}),
        "--views": sorted({r.views for r in members}),
        "--labels": sorted({r.labels for r in members}),
    }
    for key in sorted({key for r in members for key, _ in r.set if not all(key in dict(m.set) for m in members)}):
        values[f"--set {key}="] = sorted({v for r in members for k, v in r.set if k == key})
    values["--seed"] = list(SEEDS)
    for flag, choices in values.items():
        if len(choices) > 1 or flag.startswith("--set"):
            values_text = " | ".join(f"{c:g}" if isinstance(c, float) else str(c) for c in choices)
            yield f"{flag}{'' if flag.endswith('=') else ' '}{values_text}"


def to_toml(name: str, members: Sequence[Pretraining], tables: Sequence[str]) -> str:
    """A recipe file: the tables it serves, how to run it and its family, and every key that decides the weights."""
    head = [f"# Tables: {', '.join(tables)}.", f"# relatum pretrain --recipe recipes/{name}.toml --out runs/{name}"]
    head += [
        "# For the other runs of these tables, choose a value on each line:",
        *(f"#   {flag}" for flag in _flags(members)),
    ]
    return _document(members[0].recipe(), head)


def _document(recipe: config.Recipe, head: Sequence[str]) -> str:
    """Lines of comment, and every key that decides the weights."""
    import tomli_w

    tables = recipe.tables()
    document: dict[str, Any] = {key: tables[key] for key in ("method", "preset", "seed")}
    for section in _SECTIONS:
        keys = {k: v for k, v in tables[section].items() if section != "data" or k not in (*_LEFT_OUT, *_STREAMING)}
        document |= {section: keys} if keys else {}
    return "\n".join(head) + "\n\n" + tomli_w.dumps(document)


HOURS = {"hour": "relational", "hour-simclr": "simclr"}  # recipe files of the preset `fast`, and their methods


def hour(name: str) -> str:
    """A recipe file of the preset `fast` on CIFAR-10."""
    method = HOURS[name]
    head = [
        f"# The preset fast of the method {method} in full: less than an hour on two CPU cores.",
        f"# relatum pretrain --recipe recipes/{name}.toml --out runs/{name}",
    ]
    return _document(config.Draft({"preset": "fast", "method": method, "data.name": "cifar10"}).recipe(), head)


def write(folder: str | Path) -> list[Path]:
    """Write all recipes into a folder and return their paths."""
    texts = {name: hour(name) for name in HOURS}
    texts |= {name: to_toml(name, members, tables) for name, members, tables in families()}
    paths = [Path(folder) / f"{name}.toml" for name in texts]
    for path, text in zip(paths, texts.values(), strict=True):
        write_text(path, text)
    return paths


if __name__ == "__main__":
    for path in write(sys.argv[1] if len(sys.argv) > 1 else "recipes"):
        print(path)
