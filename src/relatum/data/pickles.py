"""Reads CIFAR's pickles without executing code from the file, in bounded memory and time.

A pickle is a program that may call any function and allocate any amount of memory. CIFAR's files need plain containers,
numbers, strings and numpy arrays of bytes. So the standard library's reader is restricted to the few instructions that
these need: an instruction allocates no more than it reads from the file, and a file may have a million of them
(CIFAR-100 has 250,000). The only names that a file may use are those of numpy's pickles; they create inert records,
which are checked and converted to arrays at the end.
"""

from __future__ import annotations

import io
import math
import pickle
import stat
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relatum.data.paths import Absent
from relatum.errors import InputError

_NAMES = {"numpy.ndarray", "numpy.dtype", *(f"numpy.{c}.multiarray._reconstruct" for c in ("core", "_core"))}
_MAX_BYTES = 512 << 20  # of a file; CIFAR-100's largest has 155 MB
_MAX_INSTRUCTIONS = 1_000_000
# Protocol and frames; containers and marks; None, booleans, numbers and strings; append; names, calls; the memo. Not
# among them: DUP, byte arrays, which are allocated before they are read, and everything that looks up Python objects.
_INSTRUCTIONS = b"\x80\x95.(}])lt\x85\x86\x87N\x88\x89KMJ\x8aUTCB\x8e\x8cX\x8daec\x93Rpqr\x94ghj"


class _Forbidden(Exception):
    """The file uses a name that CIFAR's files never use."""


class _Record:
    """An inert object: it stands for the result of a call in the file."""

    __slots__ = ("args", "kind", "state")

    def __init__(self, kind: str, *args: Any) -> None:
        self.kind, self.args = kind, args
        self.state: Any = None


class _Instructions:
    """The instructions that are allowed, a million of which can be taken."""

    def __init__(self, actions: dict[int, Callable[[Any], None]]) -> None:
        self._actions, self._left = actions, _MAX_INSTRUCTIONS

    def __getitem__(self, code: int) -> Callable[[Any], None]:
        self._left -= 1
        if self._left < 0:
            raise ValueError(f"more than {_MAX_INSTRUCTIONS:,} instructions")
        if code not in self._actions:
            raise ValueError(f"instruction {bytes([code])!r} is not one of CIFAR's")
        return self._actions[code]


class _Reader(pickle._Unpickler):
    """The standard library's reader in Python, whose memo is a dictionary: a large index takes no memory."""

    stack: list[Any]

    def __init__(self, content: bytes) -> None:
        super().__init__(io.BytesIO(content), encoding="bytes")
        allowed = {code: action for code, action in pickle._Unpickler.dispatch.items() if code in _INSTRUCTIONS}
        own = {b"b": _Reader._build, b"d": _Reader._dictionary, b"s": _Reader._set_one, b"u": _Reader._set_marked}
        self.dispatch = _Instructions({**allowed, **{code[0]: action for code, action in own.items()}})  # type: ignore[assignment,misc]

    def find_class(self, module: str, name: str) -> Any:
        """What a name of the file stands for: a function that creates a record."""
        if f"{module}.{name}" not in _NAMES:
            raise _Forbidden(f"{module}.{name}"[:100])
        return partial(_Record, name)

    def _build(self) -> None:
        state = self.stack.pop()
        if type(self.stack[-1]) is not _Record:  # of another object, the file could set attributes
            raise ValueError("a state of something that is not an array")
        self.stack[-1].state = state

    def _dictionary(self) -> None:
        values = self.pop_mark()  # type: ignore[attr-defined]
        self.stack.append({})
        self._set(values)

    def _set_one(self) -> None:
        value, key = self.stack.pop(), self.stack.pop()
        self._set([key, value])

    def _set_marked(self) -> None:
        self._set(self.pop_mark())  # type: ignore[attr-defined]

    def _set(self, values: list[Any]) -> None:
        if not all(type(key) in (bytes, str) for key in values[::2]):
            raise ValueError("a key is not a string")  # hashing nested tuples may take for ever
        if type(self.stack[-1]) is not dict:
            raise ValueError("a dict is missing")
        self.stack[-1].update(zip(values[::2], values[1::2], strict=True))


def _array(record: _Record) -> NDArray[np.uint8]:
    """A uint8 array from the state of a pickled numpy array: (version, shape, dtype, fortran order, bytes)."""
    state = record.state
    if record.kind != "_reconstruct" or type(state) is not tuple or len(state) != 5:
        raise ValueError("an array is not complete")
    _, shape, dtype, fortran, content = state
    if type(dtype) is not _Record or dtype.kind != "dtype" or dtype.args[:1] not in ((b"u1",), ("u1",)):
        raise ValueError("an array does not hold bytes (uint8)")
    if (
        type(content) is not bytes
        or type(shape) is not tuple
        or len(shape) > 4
        or not all(type(n) is int and n >= 0 for n in shape)
        or math.prod(shape) != len(content)
    ):
        raise ValueError("an array is malformed")
    return np.frombuffer(content, np.uint8).reshape(shape, order="F" if fortran is True else "C")


def read(path: Path) -> dict[str, Any]:
    """The dictionary in a CIFAR file, with text keys and uint8 arrays.

    Raises:
        Absent: there is no such file.
        InputError: the file uses other names than numpy arrays, is truncated, or is not such a dictionary.
    """
    try:
        content = _Reader(_bytes(path)).load()
        if type(content) is not dict:
            raise ValueError("not a dictionary")
        result: dict[str, Any] = {}
        for key, value in content.items():
            name = key.decode("ascii") if isinstance(key, bytes) else key
            result[name] = _array(value) if isinstance(value, _Record) else value
        return result
    except _Forbidden as error:
        raise InputError(f"{path} is not a CIFAR file: it asks to load {str(error)!r}. Nothing was run.") from None
    except FileNotFoundError:
        raise Absent(f"{path} is missing.") from None
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}.") from None
    except Exception as error:  # a malformed pickle may raise any exception
        reason = " ".join(str(error).split())[:120] or type(error).__name__
        raise InputError(f"{path} is truncated or not a CIFAR file ({reason}).") from None


def _bytes(path: Path) -> bytes:
    status = path.stat()
    if not stat.S_ISREG(status.st_mode):  # opening a pipe would block
        raise OSError("not a regular file")
    if status.st_size > _MAX_BYTES:
        raise ValueError(f"{status.st_size:,} bytes are too many")
    return path.read_bytes()
