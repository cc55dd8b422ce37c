from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from relatum.data.imageset import ImageSet
from relatum.errors import InputError
from relatum.evaluation import evaluate, tsne
from relatum.runs import artifacts

World = dict[tuple[str, str], ImageSet]
FEW = {"iterations": 300}


def groups(n: int = 90) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(0)
    labels = np.arange(n) % 3
    return (random.normal(size=(n, 8)) + 12 * np.eye(8)[labels]).astype(np.float32), labels


@pytest.mark.parametrize("backend", ["sklearn", "opentsne"])
def test_groups_stay_apart_and_the_seed_decides(backend: str) -> None:
    if backend == "opentsne":
        pytest.importorskip("openTSNE")
    z, labels = groups()
    one, divergence, perplexity = tsne.embed_points(z, iterations=500, seed=1, backend=backend)
    again, _, _ = tsne.embed_points(z, iterations=500, seed=1, backend=backend)
    other, _, _ = tsne.embed_points(z, iterations=500, seed=2, backend=backend)
    assert one.shape == (90, 2)
    assert one.dtype == np.float32
    assert one.tobytes() == again.tobytes() != other.tobytes()
    assert perplexity == pytest.approx(89 / 3)
    assert np.isfinite(divergence)
    from relatum.features.knn import knn_vote
    from relatum.features.neighbours import nearest

    _, near = nearest(one, one, 5, exclude=np.arange(90))
    assert (knn_vote(labels[near]) == labels).mean() > 0.95


def test_progress_is_read_off_the_verbose_lines(capsys: pytest.CaptureFixture[str]) -> None:
    done: list[int] = []
    watcher = tsne._Watcher(done.append)
    watcher.write("[t-SNE] Iteration 50: error = 3.1, gradient norm = 0.2 (50 iterations in 0.1s)")
    watcher.write("[t-SNE] Iteration 100: error = 3.0")
    watcher.write("[t-SNE] Computed conditional probabilities")
    assert done == [50, 50]
    tsne.embed_points(groups(30)[0], iterations=300)
    assert capsys.readouterr().out == ""


def test_paper_settings() -> None:
    selected = tsne.TSNESettings()
    assert (selected.points, selected.iterations, selected.perplexity, selected.learning_rate) == (
        10_000,
        1000,
        30,
        200,
    )


def test_missing_backend_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "openTSNE", None)
    with pytest.raises(InputError, match=r"pip install openTSNE"):
        tsne.embed_points(groups()[0], backend="opentsne")


def test_protocol(run: Path) -> None:
    result = evaluate("tsne", run, data="toy", settings=FEW)
    assert result.accuracy is None
    assert result.n_test == 80
    assert result.details["perplexity"] == pytest.approx(79 / 3)
    assert result.details["knn_in_map"] > 40
    assert 0 < result.details["neighbours_kept"] <= 100
    kept = artifacts.load(run / "artifacts" / "tsne-toy-test.npz")
    assert kept["xy"].shape == (80, 2)
    assert kept["neighbours"].shape == (80, 8)
    assert kept["thumbs"].shape == (80, 16, 16, 3)
    assert not (kept["neighbours"] == np.arange(80)[:, None]).any()
    assert result.details["pictures"] == ["artifacts/tsne-toy-test.png", "artifacts/tsne-toy-test.svg"]
    with Image.open(run / "artifacts" / "tsne-toy-test.png") as picture:
        assert min(picture.size) > 600


def test_vehicles_and_animals(run: Path, world: World) -> None:
    images = world["toy", "test"]
    world["toy", "test"] = replace(images, classes=("airplane", "cat", "ship", "dog"))
    result = evaluate("tsne", run, data="toy", settings={**FEW, "points": 40})
    kept = artifacts.load(run / "artifacts" / "tsne-toy-test.npz")
    assert kept["super_names"].tolist() == ["vehicles", "animals"]
    np.testing.assert_array_equal(kept["super"], kept["labels"] % 2)
    assert len(kept["xy"]) == result.n_test == 40
    assert "artifacts/tsne-toy-test.super.svg" in result.details["pictures"]


def test_cifar100_has_its_coarse_classes(world: World, make_run: Callable[..., Path]) -> None:
    fine = replace(world["toy", "test"], name="cifar100")
    coarse = np.arange(80) % 2
    world["cifar100", "test"] = fine
    world["cifar100-20", "test"] = replace(fine, name="cifar100-20", labels=coarse, classes=("x", "y"))
    run = make_run(**{"data.name": "cifar100"})
    evaluate("tsne", run, data="cifar100", settings=FEW)
    kept = artifacts.load(run / "artifacts" / "tsne-cifar100-test.npz")
    np.testing.assert_array_equal(kept["super"], coarse)
    assert kept["super_names"].tolist() == ["x", "y"]


def test_unlabelled_folder(run: Path) -> None:
    result = evaluate("tsne", run, data="bare", settings=FEW)
    assert result.split == "train"
    assert "knn_in_map" not in result.details
    assert (artifacts.load(run / "artifacts" / "tsne-bare-train.npz")["labels"] == -1).all()


def test_a_folder_without_labels_is_coloured_by_folder_and_date(
    make_run: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RELATUM_CACHE", str(tmp_path / "cache"))
    place = tmp_path / "photos"
    for i in range(12):
        exif = Image.Exif()
        exif[0x0132] = f"20{10 + i % 3}:05:03 12:00:00"
        file = place / ("sea/north" if i < 5 else "hills") / f"{i:02d}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        colours = np.random.default_rng(i).integers(0, 256, (16, 16, 3)).astype(np.uint8)
        Image.fromarray(colours).save(file, exif=exif)
    run = make_run()
    result = evaluate("tsne", run, data=str(place), settings=FEW)
    kept = artifacts.load(run / "artifacts" / "tsne-photos-train.npz")
    assert kept["folders"].tolist() == ["hills"] * 7 + ["sea"] * 5
    assert set(kept["dates"].tolist()) == {"2010-05-03", "2011-05-03", "2012-05-03"}
    names = {Path(picture).name for picture in result.details["pictures"]}
    assert names == {f"tsne-photos-train{by}.{kind}" for by in ("", ".date") for kind in ("png", "svg")}
    assert "by folder" in (run / "artifacts" / "tsne-photos-train.svg").read_text()  # no picture of dots in one colour


def test_too_few_images(run: Path, world: World, make_images: Callable[..., ImageSet]) -> None:
    world["few", "test"] = make_images(4, name="few", split="test")
    with pytest.raises(InputError, match="at least 5"):
        evaluate("tsne", run, data="few")
