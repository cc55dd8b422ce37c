"""`Embedder` in scikit-learn's manner: fit, transform, clone, pipelines, saving without pickle, and its own checks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import check_estimator

import relatum
from relatum.errors import InputError

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


def test_it_is_saved_without_pickle(fitted: relatum.Embedder, paths: list[Path], tmp_path: Path) -> None:
    folder = fitted.save(tmp_path / "saved")
    assert {path.suffix for path in folder.iterdir()} == {".safetensors", ".json"}
    loaded = relatum.Embedder.load(folder)
    assert loaded.get_params() == fitted.get_params()
    np.testing.assert_array_equal(loaded.transform(paths[:4]), fitted.transform(paths[:4]))
    with pytest.raises(InputError, match="holds no embedder"):
        relatum.Embedder.load(tmp_path)


def test_an_unfitted_embedder_says_so(paths: list[Path]) -> None:
    with pytest.raises(NotFittedError):
        relatum.Embedder().transform(paths)


class TakesRows(relatum.Embedder):
    """An embedder that claims to take matrices: otherwise scikit-learn runs none of its checks but one."""

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = True
        return tags


PASSING = {
    "check_do_not_raise_errors_in_init_or_set_params",
    "check_estimator_cloneable",
    "check_estimator_repr",
    "check_estimator_tags_renamed",
    "check_estimators_unfitted",
    "check_get_params_invariance",
    "check_mixin_order",
    "check_no_attributes_set_in_init",
    "check_parameters_default_constructible",
    "check_set_params",
    "check_transformer_n_iter",
    "check_transformers_unfitted",
    "check_valid_tag_types",
}
# These do not apply: they fit a matrix of numbers, one row per sample, which an embedder refuses because it is no list
# of images. What they look for is tested above on images: `fit` returns the estimator, fitting twice gives the same,
# parameters are not overwritten, `transform` gives one row per sample in their order.
FIT_A_MATRIX = {
    "check_dict_unchanged",
    "check_dont_overwrite_parameters",
    "check_estimators_dtypes",
    "check_estimators_fit_returns_self",
    "check_estimators_overwrite_params",
    "check_f_contiguous_array_estimator",
    "check_fit2d_1feature",
    "check_fit2d_1sample",
    "check_fit2d_predict1d",
    "check_fit_check_is_fitted",
    "check_fit_idempotent",
    "check_fit_score_takes_y",
    "check_methods_sample_order_invariance",
    "check_methods_subset_invariance",
    "check_n_features_in",
    "check_n_features_in_after_fitting",
    "check_pipeline_consistency",
    "check_readonly_memmap_input",
    "check_transformer_general",
    "check_transformer_preserve_dtypes",
}
# These ask for particular errors on matrices that are complex, empty, sparse, 1-D or not finite.
BAD_MATRICES = {
    "check_complex_data",
    "check_dtype_object",
    "check_estimator_sparse_array",
    "check_estimator_sparse_matrix",
    "check_estimator_sparse_tag",
    "check_estimators_empty_data_messages",
    "check_estimators_nan_inf",
    "check_fit1d",
    "check_positive_only_tag_during_fit",
    "check_transformer_data_not_an_array",
}
# Not promised: an embedder is saved as safetensors and JSON (`save`), never as a pickle.
PICKLE = {"check_estimators_pickle"}


@pytest.mark.filterwarnings("ignore")
def test_scikit_learns_own_checks() -> None:
    results = check_estimator(TakesRows(**SETTINGS), on_skip=None, on_fail=None)
    by_status: dict[str, set[str]] = {}
    for result in results:
        by_status.setdefault(str(result["status"]), set()).add(str(result["check_name"]))
    assert by_status["passed"] >= PASSING
    assert by_status["failed"] <= FIT_A_MATRIX | BAD_MATRICES | PICKLE
