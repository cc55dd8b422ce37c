"""Pickles as Python 2 wrote them, which is the format of CIFAR's files."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np


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
