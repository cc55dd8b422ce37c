"""Two-dimensional maps of representations: PCA, t-SNE, and UMAP where it is installed."""

from __future__ import annotations

import importlib.util
import warnings

import numpy as np
from numpy.typing import NDArray

from relatum.collection.scaling import standardise

Points = NDArray[np.float32]
_COMPONENTS = 50  # principal components that t-SNE and UMAP start from, as scikit-learn's guide advises


def maps(features: NDArray[np.float32], seed: int = 1) -> dict[str, Points]:
    """Positions (N, 2) by the name of the method, the most readable map first."""
    components = principal_components(features, min(_COMPONENTS, *features.shape))
    flat = np.zeros((len(features), 2), np.float32)
    flat[:, : components.shape[1]] = components[:, :2]
    result = {"PCA": flat}
    if len(features) >= 5:
        seed %= 2**32  # scikit-learn and UMAP take no larger one
        result = {"t-SNE": _tsne(components, seed), **result}
        if importlib.util.find_spec("umap") is not None:
            result["UMAP"] = _umap(components, seed)
    return result


def principal_components(features: NDArray[np.float32], number: int) -> Points:
    """The first principal components of the standardised representations; signs are fixed by their largest entry."""
    z = standardise(features).astype(np.float64)
    _, vectors = np.linalg.eigh(z.T @ z)
    vectors = vectors[:, ::-1][:, :number]
    signs = np.sign(vectors[np.abs(vectors).argmax(0), np.arange(vectors.shape[1])])
    return np.asarray(z @ (vectors * np.where(signs == 0, 1, signs)), np.float32)


def _tsne(components: Points, seed: int) -> Points:
    from sklearn.manifold import TSNE

    spread = components / max(float(components[:, 0].std()), 1e-6)  # identical images must not divide by zero
    perplexity = min(30.0, (len(components) - 1) / 3)
    start = np.ascontiguousarray(1e-4 * spread[:, :2]) if spread.shape[1] > 1 else "random"
    model = TSNE(perplexity=perplexity, init=start, learning_rate="auto", random_state=seed)
    model.set_output(transform="default")  # whatever `sklearn.set_config` says
    return np.asarray(model.fit_transform(spread), np.float32)


def _umap(components: Points, seed: int) -> Points:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ImportWarning)  # umap misses TensorFlow, which only its ParametricUMAP needs
        import umap

    neighbours = min(15, len(components) - 1)
    model = umap.UMAP(n_neighbors=neighbours, random_state=seed, n_jobs=1)
    return np.asarray(model.fit_transform(components), np.float32)
