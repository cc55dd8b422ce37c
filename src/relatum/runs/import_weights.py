"""`import_weights`: a run folder from weights that were trained elsewhere; `relatum.runs.export` is the way out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch

from relatum import backbones, config, registry
from relatum.config.methods import METHODS, SimCLROptions
from relatum.errors import InputError
from relatum.runs import checkpoint, names
from relatum.runs.folder import RunFolder
from relatum.runs.weights import (
    load_state,
    read_backbone,
    save_run_weights,
    weights_metadata,
)
from relatum.system.progress import Display
from relatum.version import __version__


def import_weights(
    file: str | Path,
    backbone: str,
    out: str | Path,
    *,
    data: str = "cifar10",
    method: str | None = None,
    aggregation: str | None = None,
) -> Path:
    """Create a run folder from weights that others trained; the arguments are those of `relatum.import_weights`."""
    folder = RunFolder(out)
    _refuse_run(folder)
    state, _ = read_backbone(file)
    module = backbones.build(backbone)
    load_state(module, state, file)
    content = {} if Path(file).suffix == names.WEIGHTS_ENDING else checkpoint.load(Path(file))
    relation = _relation_head(content.get("relation", {}), file)
    method = method or find_method(content)
    registry.find(METHODS, "method", method)
    size = backbones.feature_size(module)
    head = {"objective.aggregation": find_aggregation(relation, size, aggregation)} if relation else {}
    if method == "relational" and aggregation is None and head.get("objective.aggregation") == "mean":
        Display().warn(f"{file} does not say whether its head takes the mean, sum or max: mean (set --aggregation).")
    recipe = config.draft(
        flags={
            **(head if method == "relational" else {}),
            "data.name": data,
            "backbone.name": backbone,
            "method": method,
            "preset": "official",
            "init": Path(file).name,
            "train.epochs": 0,
        }
    ).recipe({"version": __version__, "run.device": "cpu", "run.compile": "off"})
    metadata = weights_metadata(recipe, size)
    with folder.lock():
        _refuse_run(folder)  # it may have been written while the weights were read
        try:
            save_run_weights(folder.path, module.state_dict(), relation, metadata)
            folder.update_record(status="imported", source=Path(file).name, version=__version__)
            folder.write_recipe(recipe)  # last: only a folder with a recipe is a run
        except BaseException:
            for path in (folder.recipe, folder.record, folder.backbone, folder.relation):  # nothing else is ours
                path.unlink(missing_ok=True)
            raise
    return folder.path


def _refuse_run(folder: RunFolder) -> None:
    """Refuse a folder with anything of a run, which an import would overwrite, or remove if it failed."""
    written = (folder.recipe, folder.record, folder.backbone, folder.relation)
    if any(path.exists() for path in written) or folder.has_checkpoints():
        raise InputError(f"{folder.path} already contains a run; choose another --out.")


def _relation_head(head: Any, file: str | Path) -> dict[str, torch.Tensor]:
    """The tensors of a relation head, which must be finite numbers."""
    if not isinstance(head, Mapping) or not all(
        isinstance(name, str) and isinstance(value, torch.Tensor) for name, value in head.items()
    ):
        raise InputError(f"the relation head in {file} contains more than tensors.")
    for name, value in head.items():
        if value.is_floating_point() and not bool(torch.isfinite(value).all()):
            raise InputError(f"{file} cannot be used: relation.{name} contains NaN or infinite values.")
    return dict(head)


def find_method(content: Mapping[str, Any]) -> str:
    """The method that trained an authors' checkpoint, inferred from the heads that it contains besides the backbone.

    A relation head: relational. Discriminators of a prior or of local features: Deep InfoMax. A classifier that is an
    MLP: DeepCluster. Another MLP that ends in 64 outputs: SimCLR. A linear classifier of four outputs: RotationNet.
    Anything else: supervised.
    """
    if content.get("relation"):
        return "relational"
    if not isinstance(content.get("backbone"), Mapping):  # a plain state dict
        return "supervised"
    tensors = dict(_tensors(_heads(content)))
    if any(word in name.lower() for name in tensors for word in ("prior", "local", "discriminator")):
        return "deepinfomax"
    matrices = [value for value in tensors.values() if value.ndim == 2]
    outputs = [int(value.shape[0]) for value in matrices]
    if len(matrices) >= 2 and isinstance(content.get("classifier"), Mapping):
        return "deepcluster"
    if len(matrices) >= 2 and outputs[-1] == SimCLROptions.projection:
        return "simclr"
    return "rotation" if outputs == [4] else "supervised"


def _heads(content: Mapping[str, Any]) -> dict[str, Any]:
    """The entries of a checkpoint besides backbone and optimisers, of which the authors' supervised model has three."""
    return {name: value for name, value in content.items() if name != "backbone" and not name.startswith("optimizer")}


def _tensors(tree: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, torch.Tensor]]:
    for name, value in tree.items():
        if isinstance(value, torch.Tensor):
            yield f"{prefix}{name}", value
        elif isinstance(value, Mapping):
            yield from _tensors(value, f"{prefix}{name}.")


def find_aggregation(relation: Mapping[str, torch.Tensor], num_features: int, aggregation: str | None) -> str:
    """The aggregation of a relation head, checked against the width of its first layer.

    Sum, mean and max have the same shapes, and a checkpoint does not name the one it used: `mean` by default.
    """
    first = relation.get("linear1.weight")
    width = first.shape[1] if first is not None and first.ndim == 2 else 0
    if width not in (num_features, 2 * num_features):
        fits = f"{num_features} or {2 * num_features}"
        raise InputError(f"the relation head takes {width} numbers; {fits} would fit this backbone.")
    fitting = ("cat",) if width == 2 * num_features else ("mean", "sum", "max")
    if aggregation is not None and aggregation not in fitting:
        expected = " or ".join(fitting)
        raise InputError(f"--aggregation {aggregation} does not fit: a head of {width} inputs is {expected}.")
    return aggregation or fitting[0]
