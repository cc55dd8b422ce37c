"""`Embedder`: a scikit-learn transformer that learns and computes representations of images."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from relatum.api.runs import StrPath, architecture_of
from relatum.errors import InputError
from relatum.runs.names import BACKBONE
from relatum.system.files import write_json
from relatum.system.torch_state import usual_torch_state
from relatum.system.untrusted import read_json_bounded

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from torch import nn

_PARAMETERS = "embedder.json"  # beside the weights, which have the same name as in a run folder


class Embedder(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """A transformer from images to representations.

    `fit` pretrains a backbone without labels; `transform` gives (N, d) float32 representations. Images are a folder, or
    a list of paths, Pillow images, arrays (H, W, 3) or tensors (3, H, W). Parameters that are None take the defaults of
    `relatum.pretrain`.

    Args:
        method: training method.
        backbone: backbone name.
        views: K, number of views per image.
        epochs: number of training epochs.
        batch_size: M, images per step.
        side: side of an image in pixels.
        seed: random seed.
        out: run folder to keep; by default the run is discarded after training.
        device: `auto`, `cpu`, `cuda` or `mps`.
        threads: number of CPU threads of training; all cores by default.
        verbose: print progress.

    Attributes:
        backbone_: the trained backbone, frozen, in eval mode.
        n_features_out_: size of a representation.

    Example:
        >>> from sklearn.linear_model import LogisticRegression
        >>> from sklearn.pipeline import make_pipeline
        >>> model = make_pipeline(relatum.Embedder(epochs=10), LogisticRegression()).fit(paths, labels)
    """

    def __init__(
        self,
        *,
        method: str = "relational",
        backbone: str = "conv4",
        views: int | None = None,
        epochs: int | None = None,
        batch_size: int | None = None,
        side: int | None = None,
        seed: int = 1,
        out: StrPath | None = None,
        device: str = "auto",
        threads: int | None = None,
        verbose: bool = False,
    ) -> None:
        self.method = method
        self.backbone = backbone
        self.views = views
        self.epochs = epochs
        self.batch_size = batch_size
        self.side = side
        self.seed = seed
        self.out = out
        self.device = device
        self.threads = threads
        self.verbose = verbose

    def fit(self, X: Any, y: Any = None) -> Embedder:
        """Pretrain a backbone on images; `y` is ignored.

        Args:
            X: the images.
            y: not used; for scikit-learn's conventions.
        """
        from relatum.api.pretraining import pretrain

        _refuse_matrix(X)
        with tempfile.TemporaryDirectory(prefix="relatum-") as place:
            run = pretrain(
                X,
                out=Path(place) / "run" if self.out is None else self.out,
                method=self.method,
                backbone=self.backbone,
                views=self.views,
                epochs=self.epochs,
                batch_size=self.batch_size,
                side=self.side,
                seed=self.seed,
                device=None if self.device == "auto" else self.device,
                threads=self.threads,
                overwrite=self.out is not None,
                quiet=not self.verbose,
            )
            self._use(run.backbone())
        return self

    @usual_torch_state
    def transform(self, X: Any) -> NDArray[np.float32]:
        """The representations of images.

        Args:
            X: the images.

        Returns:
            (N, d) float32.
        """
        from relatum.evaluation.embedding import embed

        check_is_fitted(self)
        _refuse_matrix(X)
        return embed(self.backbone_, X, progress=self.verbose)

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[np.object_]:
        """The names of the columns: `embedder0`, `embedder1`, ..."""
        import numpy as np

        check_is_fitted(self)
        return np.array([f"embedder{number}" for number in range(self.n_features_out_)], object)

    def save(self, folder: StrPath) -> Path:
        """Write the weights as safetensors and the parameters as JSON: no pickle.

        Args:
            folder: folder to write to; it is created.
        """
        from relatum.runs.weights import save_weights

        check_is_fitted(self)
        place = Path(folder)
        place.mkdir(parents=True, exist_ok=True)
        save_weights(place / BACKBONE, self.backbone_.state_dict(), self.backbone_.info)  # type: ignore[arg-type]
        write_json(place / _PARAMETERS, {key: _as_json(value) for key, value in self.get_params().items()})
        return place

    @classmethod
    @usual_torch_state
    def load(cls, folder: StrPath, *, backbone: str | nn.Module | None = None) -> Embedder:
        """Read an embedder that `save` wrote. Its `out` is None, so that a file cannot decide where `fit` writes.

        Args:
            folder: the folder.
            backbone: the backbone, if it is a module, or a `module:function`, which is not imported unless you name it
                here.
        """
        from relatum import registry
        from relatum.runs.weights import load_backbone

        place = Path(folder)
        if not (place / _PARAMETERS).exists():
            raise InputError(f"{place} contains no embedder: it has no file {_PARAMETERS}.")
        try:
            parameters = read_json_bounded(place / _PARAMETERS)
            embedder = cls(**{**parameters, "out": None})
        except (OSError, ValueError, TypeError) as error:
            raise InputError(f"{place} contains no embedder: {error}") from None
        named: Any = backbone or registry.backbone_from_file(embedder.backbone, place)
        embedder.backbone = named
        embedder._use(load_backbone(place / BACKBONE, backbone=architecture_of(place, backbone)))
        return embedder

    def _use(self, backbone: nn.Module) -> None:
        from relatum.backbones import feature_size
        from relatum.backbones.base import image_settings

        self.backbone_ = backbone
        self.n_features_out_ = feature_size(backbone, image_settings(backbone).get("side", 32))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = False  # images, not rows of numbers
        tags.input_tags.three_d_array = True
        tags.input_tags.string = True
        tags.non_deterministic = False
        tags.transformer_tags.preserves_dtype = []  # representations are float32, whatever the pixels are
        return tags


def _as_json(value: Any) -> Any:
    """A parameter as JSON can hold it: numbers of NumPy come from a grid search; a module only leaves its name."""
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if hasattr(value, "item"):
        return value.item()
    return value if isinstance(value, str | int | float | None) else f"object:{type(value).__name__}"


def _refuse_matrix(X: Any) -> None:
    """scikit-learn's usual X, one row per sample, would pass for a single grayscale image."""
    shape = tuple(getattr(X, "shape", ()))
    if len(shape) == 2:
        raise InputError(f"X has shape {shape}, but Embedder takes images: an array (N, H, W, 3) or a list of paths.")
