"""The image that each view is computed from: semi-supervised relational reasoning in one pure function. No torch here.

The paper couples "instances sampled from the same category" where labels are known. Our reading: in a slot of the
mini-batch whose image is labelled, each of the K views is computed from an image drawn at random from the labelled
images of its class; in the other slots all K views come from the one image. Pairs and kernels do not change.

Shape letters: N training images, M slots of a mini-batch, K views.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from relatum import rng


@dataclass(frozen=True, eq=False)
class Visible:
    """The labels that training may see, with the labelled images in the order of their classes.

    Attributes:
        labels: (N,) int64; -1 where a label is hidden.
        members: numbers of all labelled images, class after class.
        starts: where each class begins in `members`.
        counts: how many labelled images each class has.
    """

    labels: NDArray[np.int64]
    members: NDArray[np.int64]
    starts: NDArray[np.int64]
    counts: NDArray[np.int64]

    @classmethod
    def of(cls, labels: NDArray[np.int64]) -> Visible:
        """Sort the labelled images by class, once for all epochs."""
        labels = np.asarray(labels, np.int64)
        order = np.argsort(labels, kind="stable")
        members = order[labels[order] >= 0]
        counts = np.bincount(labels[members]) if len(members) else np.zeros(0, np.int64)
        return cls(labels, members, np.cumsum(counts) - counts, counts)


def sources(
    indices: NDArray[np.int64], *, visible: Visible | None, seed: int, epoch: int, views: int
) -> NDArray[np.int64]:
    """The image behind each view of a mini-batch.

    A draw is a pure function of (seed, epoch, sample index, view number), whatever the mini-batch around it.

    Args:
        indices: (M,) sample numbers of the slots.
        visible: the labels that training may see; None where it sees none.
        seed: the run's seed.
        epoch: the epoch.
        views: K.

    Returns:
        (K, M) sample numbers: row k is the image of view k of every slot.
    """
    indices = np.asarray(indices, np.int64)
    result = np.repeat(indices[None, :], views, axis=0)
    if visible is None:
        return result
    slots = np.flatnonzero(visible.labels[indices] >= 0)
    if not len(slots):
        return result
    labelled = indices[slots]
    classes = visible.labels[labelled]
    keys = rng.key(rng.SOURCE, seed, epoch, labelled[None, :], np.arange(views)[:, None])
    places = (rng.uniform(keys, [0])[..., 0] * visible.counts[classes]).astype(np.int64)
    result[:, slots] = visible.members[visible.starts[classes] + places]
    return result
