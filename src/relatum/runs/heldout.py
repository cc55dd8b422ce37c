"""`heldout.json`: the images that a run on a folder held out, identified by their content.

A folder changes: splitting it again later could test on images that the run was trained on. Datasets have fixed content
and are split by the seed, so their runs have no such file. Neither have older runs.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
from numpy.typing import NDArray

from relatum.data.fingerprint import DIGEST_LENGTH, image_digests
from relatum.data.imageset import ImageSet
from relatum.runs.folder import RunFolder
from relatum.system.files import read_json, with_checksum, write_json


def write_held_out(folder: RunFolder, images: ImageSet) -> None:
    """Write the digests of held-out images, in order, as one string of 16 hexadecimal digits each."""
    document = {"images": len(images), "digests": "".join(image_digests(images.images))}
    write_json(folder.held_out, with_checksum(document))


def read_held_out(folder: RunFolder) -> list[str] | None:
    """The digests of the images that a run held out, or None if it has no list or a damaged one."""
    text = (read_json(folder.held_out) or {}).get("digests")
    if not isinstance(text, str) or len(text) % DIGEST_LENGTH:
        return None
    return [text[start : start + DIGEST_LENGTH] for start in range(0, len(text), DIGEST_LENGTH)]


def find_held_out(images: ImageSet, digests: list[str]) -> NDArray[np.bool_]:
    """A mask of the images whose digest is listed; of equal images, as many as are listed."""
    left = Counter(digests)
    mask = np.zeros(len(images), np.bool_)
    for number, digest in enumerate(image_digests(images.images)):
        if left[digest] > 0:
            left[digest] -= 1
            mask[number] = True
    return mask
