"""`Result`: one evaluation, with its protocol in full. No torch here.

A number means little without its protocol: online or offline probe, frozen batch-norm or not, last or best epoch. A
result records all of it beside the number.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from relatum.config import Recipe
from relatum.config.settings import table
from relatum.errors import InputError
from relatum.runs import names, provenance
from relatum.runs.folder import RunFolder
from relatum.system.files import file_safe, is_intact, with_checksum, write_json
from relatum.system.untrusted import read_json_bounded

_UNFINISHED = "unfinished"
STEP = "step"  # in the metadata of weights that come from a checkpoint of an unfinished run


@dataclass
class Result:
    """The content of a result file.

    Attributes:
        protocol: `linear`, `knn`, `finetune`, `retrieval`, `tsne` or `classifier` (that of a supervised run).
        dataset, split: the images it was tested on.
        accuracy: percent, or None where none applies.
        pretrain: how the backbone was pretrained: method, backbone, preset, dataset, epochs, views, seed, ...
        settings: the protocol in full: epochs, seed, learning rate, augmentation, batch-norm mode, reported epoch, ...
        n_train, n_test: images that the probe learned from and was tested on.
        version, commit, machine, threads: where it was computed.
        seconds: wall time, features included.
        details: other measurements of the protocol.
        tag: distinguishes results of the same protocol, dataset and split.
    """

    protocol: str
    dataset: str
    split: str
    accuracy: float | None
    pretrain: dict[str, Any]
    settings: dict[str, Any]
    n_train: int
    n_test: int
    version: str
    commit: str | None
    machine: dict[str, Any]
    threads: int
    seconds: float
    details: dict[str, Any] = field(default_factory=dict)
    tag: str = ""
    path: Path | None = field(default=None, init=False, compare=False)  # where it was saved; not in the file

    @property
    def stem(self) -> str:
        """PROTOCOL-DATASET-SPLIT[-TAG], the result file's name without its ending."""
        return names.evaluation_stem(self.protocol, self.dataset, self.split, self.tag)

    def document(self) -> dict[str, Any]:
        """The JSON document."""
        return {key: value for key, value in dataclasses.asdict(self).items() if key != "path"}

    def sentence(self) -> str:
        """A one-line summary."""
        what = f"{self.protocol} on {self.dataset} ({self.split})"
        learned = f"learned from {self.n_train:,} images, " if self.n_train else ""
        if self.accuracy is None:
            return f"{what}: {self.n_test:,} images, {self.seconds:.1f} s"
        kind = "top-10 accuracy" if self.protocol == "retrieval" else "accuracy"
        return f"{what}: {kind} {self.accuracy:.2f} % ({learned}tested on {self.n_test:,}, {self.seconds:.1f} s)"

    def save(self, run: str | Path) -> Path:
        """Write RUN/evaluations/PROTOCOL-DATASET-SPLIT[-TAG].json atomically."""
        path = RunFolder(run).result(self.stem)
        write_json(path, with_checksum(self.document()))
        self.path = path
        return path

    @classmethod
    def load(cls, path: str | Path) -> Result:
        """Read a result file; keys of later versions are ignored."""
        try:
            document = read_json_bounded(Path(path))
            if not is_intact(document):
                raise ValueError("its content was changed after it was written: evaluate again")
            known = {f.name for f in dataclasses.fields(cls) if f.init}
            return cls(**{key: value for key, value in document.items() if key in known})
        except FileNotFoundError:
            raise InputError(f"no result at {path}.") from None
        except (OSError, ValueError, AttributeError, TypeError) as error:
            raise InputError(f"{path} is not a readable result file: {error}") from None


def make_result(
    run: str | Path,
    recipe: Recipe,
    *,
    protocol: str,
    dataset: str,
    split: str,
    accuracy: float | None,
    settings: dict[str, Any],
    n_train: int,
    n_test: int,
    seconds: float,
    details: dict[str, Any],
    tag: str = "",
    step: int | None = None,
) -> Result:
    """A result, completed with how the run was pretrained and where the result is computed.

    `step` is that of the checkpoint that was evaluated, for a run that was not finished when its weights were read.
    """
    where, folder = provenance.record(), RunFolder(run)
    pretrain = pretrain_record(recipe, {} if folder.record_damaged() else folder.read_record())
    if step is not None:  # the record may say by now that the run is finished
        pretrain |= {"status": _UNFINISHED, "steps": step}
    return Result(
        protocol=protocol,
        dataset=file_safe(dataset),
        split=split,
        accuracy=None if accuracy is None else round(accuracy, 4),
        pretrain=pretrain,
        settings={**settings, "preset": settings.get("preset", recipe.preset)},
        n_train=n_train,
        n_test=n_test,
        version=where["version"],
        commit=where["commit"],
        machine=where["machine"],
        threads=where["threads"],
        seconds=round(seconds, 3),
        details=details,
        tag=tag,
    )


def is_preliminary(document: Mapping[str, Any]) -> bool:
    """Whether the content of a result file is of a checkpoint of a run that was not finished."""
    pretrain = document.get("pretrain")
    return isinstance(pretrain, Mapping) and pretrain.get("status") == _UNFINISHED


def pretrain_record(recipe: Recipe, status: Mapping[str, Any]) -> dict[str, Any]:
    """How a backbone was pretrained, from its run's recipe and record.

    Args:
        recipe: the run's complete recipe.
        status: RUN/run.json, or an empty mapping.
    """
    record = {
        "method": recipe.method,
        "backbone": recipe.backbone.name,
        "preset": recipe.preset,
        "dataset": file_safe(recipe.data.name),
        "epochs": recipe.train.epochs,
        "views": recipe.views.number,
        "seed": recipe.seed,
        "batch_size": recipe.train.batch_size,
        "side": recipe.data.side,
        "labels": recipe.data.labels,
        "limit_train": recipe.data.limit_train,
        "val_fraction": recipe.data.val_fraction,
        "init": recipe.init,
        "objective": table(recipe.objective),
        "policy": recipe.views.policy,
        "precision": recipe.run.precision,
        **{key: value for key, value in table(recipe.train).items() if key not in ("epochs", "batch_size")},
    }
    for key in ("status", "steps", "images", "version", "commit"):
        if key in status:
            record[key] = status[key]
    return record
