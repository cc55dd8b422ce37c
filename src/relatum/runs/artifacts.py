"""Images and arrays for the report: RUN/artifacts/*.npz. No torch here.

The report could not compute them without torch, so training and evaluation write them with the functions below, and
`relatum.report` reads them. Every file loads with `allow_pickle=False`; strings are arrays of unicode. Images are
(S, S, 3) uint8, not normalised.

    views.npz                          views (n, K, S, S, 3) · originals (n, S, S, 3) · names (n,)
    pairs.npz                          left, right (p, S, S, 3) · scores, targets, group (p,)
                                       · left_names, right_names (p,) · histogram (2, 20)
    retrieval-DATASET-SPLIT[-TAG].npz  query_index (q,) · neighbour_index, distances (q, t) · image_index (u,)
                                       · thumbs (u, S, S, 3) · labels, names (u,) · classes (c,)
    tsne-DATASET-SPLIT[-TAG].npz       xy (N, 2) · thumbs (N, S, S, 3) · labels, names, folders, dates, super (N,)
                                       · neighbours (N, 8) · classes, super_names (c,)

Neighbours are positions of images, nearest first; `super` numbers super-categories (vehicles, animals). Where they are
unknown, `labels` is -1 and `names`, `folders`, `dates`, `classes`, `super` and `super_names` are empty. The functions
take what the files contain; `dataset`, `split` and `tag` are those of the result file's name.
"""

from __future__ import annotations

import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from relatum.errors import RelatumError
from relatum.runs.folder import RunFolder
from relatum.runs.names import MATRICES, PAIRS, VIEWS, evaluation_stem
from relatum.system.files import write_atomically
from relatum.system.npy import read_array
from relatum.system.untrusted import check_regular

Arrays = dict[str, NDArray[Any]]

# Groups of `pairs.npz`, in this order: what the head is surest of and right, and what confuses it most.
PAIR_GROUPS = ("sure-same", "sure-different", "confusing-same", "confusing-different")
HISTOGRAM_BINS = 20
# Bounds of an artifact when it is read. The largest that relatum writes, a map of 5,000 images of 64×64, takes 61 MB.
MAX_BYTES, MAX_ARRAYS = 512 * 2**20, 64


def save_views(
    run: str | Path, views: ArrayLike, originals: ArrayLike, names: Sequence[str] | None = None, *, limit: int = 8
) -> Path:
    """Save K views of a few images, at most `limit`, to show the input of training. Originals are (n, H, W, 3)."""
    views, originals = _images(views, "views", 5)[:limit], _images(originals, "originals", 4)[:limit]
    return _write(run, VIEWS, views=views, originals=originals, names=_texts(names)[:limit])


def save_pairs(
    run: str | Path,
    left: ArrayLike,
    right: ArrayLike,
    scores: ArrayLike,
    targets: ArrayLike,
    names: tuple[Sequence[str], Sequence[str]] | None = None,
    *,
    per_group: int = 6,
) -> Path:
    """Keep the pairs that the relation head is surest of and those that confuse it most, and how all scores spread.

    `left` and `right` are the two views of each pair, as many as were scored. Targets are 1 for two views of one image,
    0 for views of two. `per_group` pairs of each kind are kept (see `select_pairs`).
    """
    left, right = _images(left, "left", 4), _images(right, "right", 4)
    score, target = np.asarray(scores, np.float32).ravel(), np.asarray(targets).ravel().astype(np.int8)
    selected, group = select_pairs(score, target, per_group)
    histogram = np.stack([np.histogram(score[target == t], bins=HISTOGRAM_BINS, range=(0, 1))[0] for t in (0, 1)])
    sides = [_texts(side) for side in names or ((), ())]
    return _write(
        run,
        PAIRS,
        left=left[selected],
        right=right[selected],
        scores=score[selected],
        targets=target[selected],
        group=group,
        left_names=sides[0][selected] if len(sides[0]) else sides[0],
        right_names=sides[1][selected] if len(sides[1]) else sides[1],
        histogram=histogram.astype(np.int64),
    )


def select_pairs(
    scores: ArrayLike, targets: ArrayLike, per_group: int = 6
) -> tuple[NDArray[np.int64], NDArray[np.int8]]:
    """Which pairs are worth showing: indices, and for each the number of its group in `PAIR_GROUPS`.

    Positives with the highest scores and negatives with the lowest are the surest; positives with the lowest and
    negatives with the highest are the most confusing. A pair is shown once: the groups of a kind share what there is.
    """
    score, target = np.asarray(scores, np.float64).ravel(), np.asarray(targets).ravel()
    selected: list[int] = []
    groups: list[int] = []
    for number, (kind, sign, opposite) in enumerate(((1, -1, 2), (0, 1, 3), (1, 1, 0), (0, -1, 1))):
        order = np.flatnonzero(target == kind)
        order = order[np.argsort(sign * score[order], kind="stable")]
        # The surest take at most half (rounded up) of a small number of pairs, the most confusing the other half.
        most = -(-len(order) // 2) if number < opposite else len(order) // 2
        kept = order[: min(per_group, most)]
        selected += [int(i) for i in kept]
        groups += [number] * len(kept)
    return np.asarray(selected, np.int64), np.asarray(groups, np.int8)


def save_retrieval(
    run: str | Path,
    dataset: str,
    split: str,
    *,
    query_index: ArrayLike,
    neighbour_index: ArrayLike,
    distances: ArrayLike,
    images: NDArray[np.uint8],
    labels: ArrayLike | None = None,
    classes: Sequence[str] = (),
    names: Sequence[str] | None = None,
    tag: str = "",
) -> Path:
    """Keep a few random queries with their nearest images.

    `images`, `labels` and `names` are those of the whole gallery, in which the indices are positions; only what is
    shown is kept.
    """
    query, near = np.asarray(query_index, np.int64), np.asarray(neighbour_index, np.int64)
    used = np.unique(np.concatenate([query.ravel(), near.ravel()]))
    return _write(
        run,
        evaluation_stem("retrieval", dataset, split, tag),
        query_index=query,
        neighbour_index=near,
        distances=np.asarray(distances, np.float32),
        image_index=used,
        thumbs=np.ascontiguousarray(images[used]),
        labels=np.full(len(used), -1) if labels is None else np.asarray(labels, np.int64)[used],
        names=_texts(None if names is None else [names[int(i)] for i in used]),
        classes=_texts(classes),
    )


def save_tsne(
    run: str | Path,
    dataset: str,
    split: str,
    *,
    xy: ArrayLike,
    thumbs: ArrayLike,
    neighbours: ArrayLike,
    labels: ArrayLike | None = None,
    classes: Sequence[str] = (),
    super_labels: ArrayLike | None = None,
    super_names: Sequence[str] = (),
    names: Sequence[str] | None = None,
    folders: Sequence[str] | None = None,
    dates: Sequence[str] | None = None,
    tag: str = "",
) -> Path:
    """Keep a map of the representations. Neighbours are those in the space of the representations."""
    where = np.asarray(xy, np.float32)
    return _write(
        run,
        evaluation_stem("tsne", dataset, split, tag),
        xy=where,
        thumbs=_images(thumbs, "thumbs", 4),
        neighbours=np.asarray(neighbours, np.int64),
        labels=np.full(len(where), -1) if labels is None else np.asarray(labels, np.int64),
        classes=_texts(classes),
        super=np.zeros(0, np.int64) if super_labels is None else np.asarray(super_labels, np.int64),
        super_names=_texts(super_names),
        names=_texts(names),
        folders=_texts(folders),
        dates=_texts(dates),
    )


def save_matrices(run: str | Path, stem: str, matrices: Mapping[str, NDArray[np.float64]]) -> Path:
    """Keep class matrices (C, C) in percent by name, which are too large for the result file with this stem."""
    return _write(run, stem + MATRICES, **{name: matrix.astype(np.float32) for name, matrix in matrices.items()})


def load(path: str | Path) -> Arrays:
    """All arrays of an artifact, or a `RelatumError` that says why it cannot be read.

    Sizes are checked before anything is unpacked: an artifact may take `MAX_BYTES` of memory in `MAX_ARRAYS` arrays.
    """
    try:
        return read_arrays(Path(path))
    except Exception as error:  # a damaged archive may raise anything: zlib.error, OverflowError, struct.error, ...
        raise RelatumError(f"{Path(path).name} cannot be read: {error or type(error).__name__}") from None


def read_arrays(path: Path, limit: int = MAX_BYTES) -> Arrays:
    """All arrays of an `.npz` file that take at most `limit` bytes; raises any kind of error for a damaged one."""
    check_regular(path)
    with zipfile.ZipFile(path) as archive:
        members = archive.infolist()
        total = sum(member.file_size for member in members)
        if len(members) > MAX_ARRAYS or total > limit:
            raise ValueError(
                f"{len(members)} arrays of {total:,} bytes are more than the limit of {MAX_ARRAYS} arrays and"
                f" {limit:,} bytes"
            )
        return {member.filename.removesuffix(".npy"): _read_member(archive, member, limit) for member in members}


def _read_member(archive: zipfile.ZipFile, member: zipfile.ZipInfo, limit: int) -> NDArray[Any]:
    with archive.open(member) as file:
        array = read_array(file, member.file_size, limit)
        file.read()  # to the end, where the checksum of the archive is compared
        return array


def _images(images: ArrayLike, what: str, ndim: int) -> NDArray[np.uint8]:
    array = np.asarray(images)
    if array.dtype != np.uint8 or array.ndim != ndim or array.shape[-1] != 3:
        raise ValueError(f"{what} must be uint8 with {ndim} axes, the last of size 3, not {array.dtype} {array.shape}")
    return array


def _texts(texts: Sequence[str] | None) -> NDArray[np.str_]:
    return np.asarray([str(text) for text in texts] if texts is not None else [], dtype=np.str_)


def _write(run: str | Path, stem: str, **arrays: NDArray[Any]) -> Path:
    path = RunFolder(run).artifact(stem)

    def write(temporary: Path) -> None:
        with temporary.open("wb") as file:  # given a name, numpy would append .npz to it
            np.savez_compressed(file, **arrays)  # type: ignore[arg-type]

    write_atomically(path, write)
    return path
