"""The names of a run folder are a contract, and each is written once in the source."""

from __future__ import annotations

from pathlib import Path

import pytest

from relatum.runs import names
from relatum.runs.folder import RunFolder


def test_paths_of_a_run_folder() -> None:
    folder = RunFolder("RUN")
    stem = names.evaluation_stem("linear", "cifar10", "test")
    paths = [folder.recipe, folder.metrics, folder.record, folder.backbone, folder.relation, folder.report, folder.last]
    paths += [folder.milestone(25), folder.milestone(100), folder.features]
    paths += [folder.result(stem), folder.artifact(stem), folder.artifact(stem, ".png"), folder.finetuned(stem)]
    assert [path.as_posix() for path in paths] == [
        "RUN/recipe.toml",
        "RUN/metrics.jsonl",
        "RUN/run.json",
        "RUN/backbone.safetensors",
        "RUN/relation.safetensors",
        "RUN/report.html",
        "RUN/checkpoints/last.ckpt",
        "RUN/checkpoints/milestone-025.ckpt",
        "RUN/checkpoints/milestone-100.ckpt",
        "RUN/features",
        "RUN/evaluations/linear-cifar10-test.json",
        "RUN/artifacts/linear-cifar10-test.npz",
        "RUN/artifacts/linear-cifar10-test.png",
        "RUN/finetuned/linear-cifar10-test.safetensors",
    ]


@pytest.mark.parametrize(
    ("parts", "stem"),
    [
        (("linear", "cifar100-20", "test", ""), "linear-cifar100-20-test"),
        (("finetune", "stl10", "test", "e20"), "finetune-stl10-test-e20"),
        (("tsne", "/home/me/my photos/", "train", "two words"), "tsne-my-photos-train-two-words"),
    ],
)
def test_stem_of_an_evaluation(parts: tuple[str, str, str, str], stem: str) -> None:
    assert names.evaluation_stem(*parts) == stem


def test_artifacts_of_a_protocol_come_without_its_matrices(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    for stem in ("views", "retrieval-b-test", "retrieval-a-test", "retrieval-a-test" + names.MATRICES):
        path = folder.artifact(stem)
        path.parent.mkdir(exist_ok=True)
        path.touch()
    assert [path.name for path in folder.artifacts("retrieval")] == ["retrieval-a-test.npz", "retrieval-b-test.npz"]
    assert [path.name for path in folder.artifacts("views")] == ["views.npz"]
