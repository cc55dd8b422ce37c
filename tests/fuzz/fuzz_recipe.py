"""Fuzzes recipes, as a file and as part of a run: `python tests/fuzz/fuzz_recipe.py --minutes 10`."""

from __future__ import annotations

import tomllib
from pathlib import Path

from harness import fuzz

from relatum import config
from relatum.runs.folder import RunFolder

SEEDS = [
    config.Recipe.from_values({**config.defaults(method, "paper", "cifar10", "conv4"), "data.name": "cifar10"})
    .to_toml()
    .encode()
    for method in ("relational", "simclr", "deepcluster")
]
SEEDS.append(
    b'method = "relational"\n[train]\nepochs = 3\nlr = 1e-3\n[data]\nname = "shapes"\nmean = [0.1, 0.2, 0.3]\n'
)


def attempt(content: bytes, number: int, folder: Path) -> None:
    run = RunFolder(folder)
    run.recipe.write_bytes(content)
    recipe = run.read_recipe()
    tomllib.loads(recipe.to_toml())
    config.Recipe.from_values(config.flatten(config.read_toml(run.recipe)))


if __name__ == "__main__":
    fuzz("recipe", SEEDS, attempt)
