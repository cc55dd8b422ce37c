"""Outliers: images that are far from all others, by their representations or by their colours and texture."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from relatum.collection.scaling import robust_score, standardise, whiten
from relatum.collection.signatures import Signatures, Statistics
from relatum.features.neighbours import nearest

_NEIGHBOURS = 10  # k: a group of at most this many images counts as unusual


def outlier_scores(
    features: NDArray[np.float32], statistics: Statistics, signatures: Signatures
) -> NDArray[np.float64]:
    """A score per image, higher for more unusual images; ordinary ones are around 0.

    The score is the distance to the k-th nearest image (Ramaswamy et al. 2000), in units of the usual spread.
    Representations and statistics of colour and texture count equally: a backbone is trained to ignore some
    differences, and can place noise or a blank image next to photographs. The statistics are whitened (Mahalanobis
    distance), because an image is often unusual in a combination of them: a colour gradient has the contrast of a
    photograph and the smoothness of a flat colour.

    Images with the same thumbnail count once, from the beginning: fifteen icons that are blank on white would
    stretch the scales on which a flat colour is unusual, and be the ten nearest images of a sixteenth.

    The local outlier factor, which compares an image with the surroundings of its neighbours, was tried first: where a
    folder is sparse (drawings among photographs), what lies there looked ordinary to it. docs/log.md has the other
    trials.

    Args:
        features: (N, d) representations.
        statistics: (N, s) statistics (`signatures.describe`).
        signatures: (N, SIDE, SIDE, 3) thumbnails (`signatures.describe`).
    """
    numbers: dict[bytes, int] = {}
    which = np.array([numbers.setdefault(thumbnail.tobytes(), len(numbers)) for thumbnail in signatures], np.int64)
    first = np.unique(which, return_index=True)[1]
    if len(first) < 3:
        return np.zeros(len(features))
    blocks = [
        standardise(features[first]) / np.sqrt(max(features.shape[1], 1)),
        whiten(statistics[first]) / np.sqrt(max(statistics.shape[1], 1)),
    ]
    distinct = np.concatenate(blocks, axis=1)
    distances, _ = nearest(
        distinct, distinct, min(_NEIGHBOURS, len(distinct) - 1), exclude=np.arange(len(distinct), dtype=np.int64)
    )
    return robust_score(distances[:, -1])[which]


def ranked(scores: NDArray[np.float64], signatures: Signatures) -> list[list[int]]:
    """The images from the highest score to the lowest, those with identical thumbnails together.

    White icons on a transparent background are all blank on white, and would fill the list with one picture.

    Args:
        scores: of each image.
        signatures: (N, SIDE, SIDE, 3) thumbnails (`signatures.describe`).
    """
    places: dict[bytes, list[int]] = {}
    for number in np.argsort(-scores, kind="stable").tolist():
        places.setdefault(signatures[number].tobytes(), []).append(number)
    return list(places.values())
