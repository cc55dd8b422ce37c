"""`Embedder` in scikit-learn's manner: fit, transform, clone, pipelines, saving without pickle, and its own checks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import check_estimator
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import nn

import relatum
from relatum.errors import InputError
from relatum.runs.folder import RunFolder

SETTINGS: dict[str, Any] = {"views": 2, "epochs": 1, "batch_size": 16, "seed": 1}


@pytest.fixture(scope="module")
def paths(pictures: Path) -> list[Path]:
    return sorted(pictures.rglob("*.png"))


@pytest.fixture(scope="module")
def fitted(paths: list[Path]) -> relatum.Embedder:
    return relatum.Embedder(side=32, **SETTINGS).fit(paths)


def test_paths_arrays_and_pillow_images_give_the_same(fitted: relatum.Embedder, paths: list[Path]) -> None:
    z = fitted.transform(paths)
    assert z.shape == (36, 64)
    assert z.dtype == np.float32
    pixels = np.stack([np.asarray(Image.open(path)) for path in paths])
    np.testing.assert_allclose(fitted.transform(pixels), z, atol=1e-6)
    np.testing.assert_allclose(fitted.transform([Image.open(path) for path in paths]), z, atol=1e-6)
    by_arrays = clone(fitted).fit_transform(pixels)
    np.testing.assert_allclose(by_arrays, z, atol=1e-6)  # the same images and seed train the same backbone


def test_a_pipeline_from_paths_to_classes(paths: list[Path]) -> None:
    labels = [path.parent.name for path in paths]
    model = make_pipeline(relatum.Embedder(side=32, **SETTINGS), LogisticRegression(max_iter=200))
    assert model.fit(paths, labels).score(paths, labels) > 0.5
    assert list(model[:-1].get_feature_names_out()[:2]) == ["embedder0", "embedder1"]


def test_threads_are_those_of_training(paths: list[Path], tmp_path: Path) -> None:
    relatum.Embedder(side=32, threads=1, out=tmp_path / "run", **SETTINGS).fit(paths)
    assert RunFolder(tmp_path / "run").read_recipe().run.threads == 1


def test_it_is_saved_without_pickle(fitted: relatum.Embedder, paths: list[Path], tmp_path: Path) -> None:
    folder = fitted.save(tmp_path / "saved")
    assert {path.suffix for path in folder.iterdir()} == {".safetensors", ".json"}
    loaded = relatum.Embedder.load(folder)
    assert loaded.get_params() == fitted.get_params()
    np.testing.assert_array_equal(loaded.transform(paths[:4]), fitted.transform(paths[:4]))
    with pytest.raises(InputError, match="contains no embedder"):
        relatum.Embedder.load(tmp_path)


def test_numbers_of_a_grid_search_and_modules_are_saved_too(paths: list[Path], tmp_path: Path) -> None:
    network = nn.Sequential(nn.Conv2d(3, 4, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    numbers = {key: np.int64(value) for key, value in SETTINGS.items()}
    embedder = relatum.Embedder(side=32, backbone=network, **numbers).fit(paths)
    folder = embedder.save(tmp_path / "saved")
    with pytest.raises(InputError, match="custom backbone of class Sequential"):
        relatum.Embedder.load(folder)
    loaded = relatum.Embedder.load(folder, backbone=network)
    assert loaded.get_params() == embedder.get_params()
    np.testing.assert_array_equal(loaded.transform(paths[:4]), embedder.transform(paths[:4]))


def test_tensors_are_trained_on_at_the_side_of_arrays() -> None:
    arrays = np.random.default_rng(0).integers(0, 256, (16, 24, 24, 3), np.uint8)
    tensors = [torch.from_numpy(array).permute(2, 0, 1) for array in arrays]
    sides = {relatum.Embedder(**SETTINGS).fit(X).backbone_.info["side"] for X in (arrays, list(arrays), tensors)}
    assert sides == {24}


def test_an_unfitted_embedder_says_so(paths: list[Path]) -> None:
    with pytest.raises(NotFittedError):
        relatum.Embedder().transform(paths)


def test_a_matrix_is_not_taken_for_one_image(fitted: relatum.Embedder) -> None:
    rows = np.zeros((36, 32 * 32 * 3), np.uint8)
    for use in (fitted.transform, clone(fitted).fit):
        with pytest.raises(InputError, match="Embedder takes images: an array"):
            use(rows)


class RowsAsImages(relatum.Embedder):
    """An embedder of matrices: scikit-learn's checks have rows of numbers, which become grey images of 8 × 8.

    Without it scikit-learn runs one check only (cloning), since an embedder says that it does not take matrices.
    """

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = True
        return tags

    def fit(self, X: Any, y: Any = None) -> RowsAsImages:
        super().fit(as_images(validate_data(self, X, ensure_min_samples=2)))
        return self

    def transform(self, X: Any) -> Any:
        check_is_fitted(self)
        return super().transform(as_images(validate_data(self, X, reset=False)))


def as_images(rows: Any) -> np.ndarray:
    grey = 255 / (1 + np.exp(-np.clip(np.asarray(rows, np.float64), -50, 50) / 4))
    squares = np.resize(grey.T, (64, len(grey))).T.reshape(-1, 8, 8, 1)
    return np.repeat(np.rint(squares), 3, axis=3).astype(np.uint8)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.slow
def test_scikit_learns_own_checks() -> None:
    """All of them pass; the array API is checked only where SCIPY_ARRAY_API is set."""
    results = check_estimator(RowsAsImages(side=8, **SETTINGS), on_skip=None, on_fail=None)
    assert len(results) > 40
    assert [(r["check_name"], r["exception"]) for r in results if r["status"] == "failed"] == []
    assert {r["check_name"] for r in results if r["status"] == "skipped"} <= {"check_array_api_input"}
