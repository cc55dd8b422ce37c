"""Limits for untrusted checkpoints: the file is checked before torch reads it, and its content afterwards.

`torch.load(weights_only=True)` runs no code, but a kilobyte can still take gigabytes or hours: a compressed archive,
a codec that doubles a text thirty times, a tensor that repeats one number, a list that contains itself.
"""

from __future__ import annotations

import codecs
import pickle
import pickletools
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

import torch
from torch import Tensor

from relatum.system.untrusted import check_regular

_MAX_PICKLE = 64 << 20  # bytes of the part without tensors; ours have 50 kB
_MAX_ITEMS, _MAX_DEPTH = 1_000_000, 100  # of nested values, each counted as often as it occurs
_SHARED = 8  # how often the bytes of a file may be used: tensors may share memory
_LEGACY_PICKLES = 5  # of the format before torch 1.6: magic number, protocol, system, content, keys
_PLAIN_CODECS = ("iso8859-1", "ascii", "utf-8")  # how pickles of protocol 2 store bytes
_LONGEST_CODEC = 40
_ENDS = 56 + 20 + 22  # bytes at the end of an archive: the 64-bit end, its place, and the 32-bit end


def check_file(path: Path) -> None:
    """Refuse a checkpoint that would unpack to more than its size.

    Raises:
        ValueError: with the reason.
        UnpicklingError: it is not a checkpoint at all.
        OSError: the file cannot be read.
    """
    check_regular(path)
    with path.open("rb") as file:
        archive = file.read(4) == b"PK\x03\x04"
        file.seek(0)
        if not archive:
            for _ in range(_LEGACY_PICKLES):
                _check_pickle(file)
            return
    with zipfile.ZipFile(path) as members:
        if members.start_dir != _stated_start(path):
            raise ValueError("the list of its parts is not where its end says, and torch may read another one")
        infos = members.infolist()
        if any(info.compress_type != zipfile.ZIP_STORED for info in infos):
            raise ValueError("it is compressed, which torch never does")
        if sum(info.file_size for info in infos) > path.stat().st_size:
            raise ValueError("its parts are larger than the file")
        for info in infos:
            if info.filename.lower().endswith(".pkl"):  # torch finds names in any case
                if info.file_size > _MAX_PICKLE:
                    raise ValueError(f"its description of tensors has {info.file_size:,} bytes")
                with members.open(info) as member:
                    _check_pickle(member)


def _stated_start(path: Path) -> int | None:
    """The start of an archive's list of parts, as its end record states it; None if the record is unusual.

    torch goes there, and to the 64-bit end where that is stated. zipfile takes what lies directly before the end.
    """
    size = path.stat().st_size
    with path.open("rb") as file:
        file.seek(max(size - _ENDS, 0))
        ends = file.read().rjust(_ENDS, b"\0")
    wide, locator, end = ends[:56], ends[56:76], ends[76:]
    if end[:4] != b"PK\x05\x06" or end[-2:] != b"\0\0":  # torch writes no comment behind it
        return None
    if locator[:4] != b"PK\x06\x07":
        return int.from_bytes(end[16:20], "little")
    if wide[:4] != b"PK\x06\x06" or int.from_bytes(locator[8:16], "little") != size - _ENDS:
        return None
    return int.from_bytes(wide[48:56], "little")


def _check_pickle(file: IO[bytes]) -> None:
    """Read the instructions of a pickle without following them; it stops at the end of the pickle."""
    encodes, expands = False, False
    for instruction, argument, position in _instructions(file):
        if position is not None and position > _MAX_PICKLE:
            raise ValueError("its description of tensors is too long")
        if instruction.name == "GLOBAL":
            encodes |= str(argument) == "_codecs encode"
            if str(argument).endswith(" bytearray"):  # of any length, in a few bytes
                raise ValueError("it makes a bytearray, which can fill the memory")
        elif isinstance(argument, str) and len(argument) <= _LONGEST_CODEC:
            expands |= _is_codec(argument)
    if encodes and expands:
        raise ValueError("it encodes texts, which can fill the memory")


def _instructions(file: IO[bytes]) -> Iterator[tuple[pickletools.OpcodeInfo, Any, int | None]]:
    try:
        yield from pickletools.genops(file)
    except ValueError as error:  # an unknown instruction, or no end
        raise pickle.UnpicklingError(str(error)) from None


def _is_codec(name: str) -> bool:
    """Whether a text is the name of a codec that is not a plain one."""
    try:
        return codecs.lookup(name).name not in _PLAIN_CODECS
    except (LookupError, ValueError):
        return False


def check_content(state: Any, size: int) -> None:
    """Refuse values that are larger, deeper or more than the file's size explains.

    Args:
        state: what torch loaded.
        size: bytes of the file.

    Raises:
        ValueError: with the reason.
    """
    total, depths = 0, [iter([state])]
    for _ in range(_MAX_ITEMS):
        value = next(depths[-1], _END)
        if value is _END:
            depths.pop()
            if not depths:
                return
        elif isinstance(value, Tensor):
            total += _bytes(value)
            if total > _SHARED * size:
                raise ValueError("its tensors are larger than the file")
        elif isinstance(value, Mapping | list | tuple | set | frozenset):
            depths.append(_children(value))
            if len(depths) > _MAX_DEPTH:
                raise ValueError("its values are nested too deeply")
    raise ValueError(f"it has more than {_MAX_ITEMS:,} values")


_END = object()


def _children(value: Any) -> Iterator[Any]:
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield key
            yield item
    else:
        yield from value


def _bytes(tensor: Tensor) -> int:
    """The size of a tensor's elements in bytes; refuses tensors that repeat elements or have no plain storage."""
    if tensor.layout is not torch.strided or tensor.is_quantized or tensor.device.type != "cpu":
        raise ValueError("it has a tensor that is sparse, quantised or without content")
    needed = tensor.numel() * tensor.element_size()
    if needed > tensor.untyped_storage().nbytes():
        raise ValueError(f"it has a tensor of shape {tuple(tensor.shape)} that repeats its numbers")
    return needed
