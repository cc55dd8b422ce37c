"""`python results/add.py RUN ...`: adds finished run folders that belong to no table of the paper to the ledger.

Evaluates them first (linear evaluation on CIFAR-10's test set and on CIFAR-100, retrieval) where that is not done yet.
Needs the datasets (`RELATUM_DATA`). `relatum reproduce` adds the runs of the paper's tables itself.
"""

from __future__ import annotations

import sys
from pathlib import Path

import relatum
from relatum.runs import ledger
from relatum.runs.folder import RunFolder, read_recipe

HERE = Path(__file__).parent
EVALUATIONS = (("linear", "cifar10"), ("linear", "cifar100"), ("retrieval", "cifar10"))


def add(run: Path) -> Path:
    """Evaluate a run and write its entry and weights."""
    recipe = read_recipe(run)
    split = "val" if recipe.data.val_fraction else "test"
    flags = f"--preset {recipe.preset} --method {recipe.method} --seed {recipe.seed} --threads {recipe.run.threads}"
    flags += f" --val-fraction {recipe.data.val_fraction}" if split == "val" else ""
    commands = [f"relatum pretrain {recipe.data.name} {flags} --out runs/{run.name}"]
    done = {path.name for path in RunFolder(run).results()}
    for protocol, dataset in EVALUATIONS:
        if split == "val" and (protocol, dataset) != EVALUATIONS[0]:
            continue
        if f"{protocol}-{dataset}-{split}.json" not in done:
            relatum.evaluate(protocol, run, data=dataset, split=split, progress=False)
        commands.append(f"relatum evaluate {protocol} runs/{run.name} --data {dataset} --split {split}")
    path = ledger.write(HERE, ledger.collect(run, commands))
    ledger.keep_weights(run, path)
    return path


if __name__ == "__main__":
    for name in sys.argv[1:]:
        print(add(Path(name)))
