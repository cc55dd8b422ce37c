"""The name of every file and folder in a run folder, each written once. No torch here.

Other modules take paths from `relatum.runs.folder.RunFolder`; a message that mentions a file takes its name from here.
"""

from __future__ import annotations

from pathlib import Path

from relatum.system.files import TEMPORARY_ENDING, file_safe

# Those that tell a run folder from data are in a lower layer; `X as X` makes them names of this module too.
from relatum.system.outputs import ARTIFACTS as ARTIFACTS
from relatum.system.outputs import BACKBONE as BACKBONE
from relatum.system.outputs import CHECKPOINTS as CHECKPOINTS
from relatum.system.outputs import EVALUATIONS as EVALUATIONS
from relatum.system.outputs import FEATURES as FEATURES
from relatum.system.outputs import FINETUNED as FINETUNED
from relatum.system.outputs import INDEX as INDEX
from relatum.system.outputs import METRICS as METRICS
from relatum.system.outputs import RECIPE as RECIPE
from relatum.system.outputs import RECORD as RECORD
from relatum.system.outputs import RUN_FOLDERS
from relatum.system.outputs import TENSORBOARD as TENSORBOARD

RELATION = "relation.safetensors"
HUB_WEIGHTS = "model.safetensors"  # in a folder for the Hugging Face Hub
REPORT = "report.html"
HELD_OUT = "heldout.json"
EXPLORE = "explore.html"
FILES = (RECIPE, METRICS, RECORD, BACKBONE, RELATION, REPORT, EXPLORE, HELD_OUT)
FOLDERS = RUN_FOLDERS

LAST_CHECKPOINT = "last.ckpt"
PREVIOUS_CHECKPOINT = "previous.ckpt"
MILESTONES = "milestone-*.ckpt"

WEIGHTS_ENDING = ".safetensors"
ARTIFACT_ENDING = ".npz"
RESULT_ENDING = ".json"
VIEWS, PAIRS = "views", "pairs"  # stems of the artifacts that training writes
MATRICES = "-matrices"  # appended to an evaluation's stem: class matrices too large for its result file


def milestone(percent: int) -> str:
    """The checkpoint kept after `percent` of the training."""
    return MILESTONES.replace("*", f"{percent:03d}")


def evaluation_stem(protocol: str, dataset: str, split: str, tag: str = "") -> str:
    """PROTOCOL-DATASET-SPLIT[-TAG], which names all files of one evaluation."""
    parts = (protocol, file_safe(dataset), split, file_safe(tag) if tag else "")
    return "-".join(part for part in parts if part)


_WRITTEN = {  # folder: the endings of what relatum writes there
    CHECKPOINTS: (".ckpt",),
    ARTIFACTS: (ARTIFACT_ENDING, ".png", ".svg"),
    EVALUATIONS: (RESULT_ENDING,),
    FEATURES: (".npy",),
    INDEX: (".npz",),
    FINETUNED: (WEIGHTS_ENDING,),
}


def is_written(folder: str, path: Path) -> bool:
    """Whether a path in this sub-folder of a run may be a file of the run, by its name; others are the user's."""
    if path.is_dir() and not path.is_symlink():
        return False
    if path.name.startswith(".") and path.name.endswith(TEMPORARY_ENDING):
        return True
    if folder == TENSORBOARD:
        return path.name.startswith("events.out.tfevents")
    if path.suffix in (".png", ".svg"):  # a drawing of an artifact; without one, a picture is not ours
        return folder == ARTIFACTS and path.with_suffix(ARTIFACT_ENDING).exists()
    return path.suffix in _WRITTEN[folder]
