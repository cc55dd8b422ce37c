"""Reads CIFAR's pickles without executing code from the file.

A pickle is a program that may call any function. CIFAR's files need plain containers and numpy arrays of bytes, so the
only names that a file may use are the four of numpy's own pickles. Even these do not refer to numpy: they create inert
records, which are checked and converted to arrays after unpickling. Any other name is an error before a call.
"""

from __future__ import annotations

import io
import pickle
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relatum.errors import InputError

_ALLOWED = {
    ("numpy", "ndarray"): "ndarray",
    ("numpy", "dtype"): "dtype",
    ("numpy.core.multiarray", "_reconstruct"): "reconstruct",
    ("numpy._core.multiarray", "_reconstruct"): "reconstruct",
}


class _Forbidden(pickle.UnpicklingError):
    """The file uses a name that CIFAR's files never use."""


class _Record:
    """An inert object that stores its arguments and state."""

    __slots__ = ("args", "state")

    def __init__(self, *args: Any) -> None:
        self.args = args
        self.state: Any = None

    def __setstate__(self, state: Any) -> None:
        self.state = state


def _stand_ins() -> dict[str, type[_Record]]:
    """New record types for each file, so that a file cannot affect the reading of another."""
    return {kind: type(kind, (_Record,), {"__slots__": ()}) for kind in ("ndarray", "dtype", "reconstruct")}


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: io.BufferedIOBase, stand_ins: dict[str, type[_Record]]) -> None:
        super().__init__(file, encoding="bytes")
        self._stand_ins = stand_ins

    def find_class(self, module: str, name: str) -> Any:
        kind = _ALLOWED.get((module, name))
        if kind is None:
            raise _Forbidden(f"{module}.{name}")
        return self._stand_ins[kind]


def _array(record: _Record, stand_ins: dict[str, type[_Record]]) -> NDArray[np.uint8]:
    """A uint8 array from the state of a pickled numpy array: (version, shape, dtype, fortran order, bytes)."""
    state = record.state
    if type(record) is not stand_ins["reconstruct"] or not isinstance(state, tuple) or len(state) != 5:
        raise ValueError("an array is not complete")
    _, shape, dtype, fortran, content = state
    if type(dtype) is not stand_ins["dtype"] or dtype.args[:1] not in ((b"u1",), ("u1",)):
        raise ValueError("an array does not hold bytes (uint8)")
    if (
        not isinstance(content, bytes)
        or not isinstance(shape, tuple)
        or not all(type(n) is int and n >= 0 for n in shape)
    ):
        raise ValueError("an array is malformed")
    return np.frombuffer(content, np.uint8).reshape(shape, order="F" if fortran else "C")


def read(path: Path) -> dict[str, Any]:
    """The dictionary in a CIFAR file, with text keys and uint8 arrays.

    Raises:
        InputError: the file uses other names than numpy arrays, is truncated, or is not such a dictionary.
    """
    stand_ins = _stand_ins()
    try:
        with path.open("rb") as file:
            content = _Unpickler(file, stand_ins).load()
        if type(content) is not dict:
            raise ValueError("not a dictionary")
        result: dict[str, Any] = {}
        for key, value in content.items():
            name = key.decode("ascii") if isinstance(key, bytes) else str(key)
            result[name] = _array(value, stand_ins) if isinstance(value, _Record) else value
        return result
    except _Forbidden as error:
        raise InputError(f"{path} is not a CIFAR file: it asks to load {str(error)!r}. Nothing was run.") from None
    except FileNotFoundError:
        raise InputError(f"{path} is missing.") from None
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}.") from None
    except Exception as error:  # a malformed pickle may raise any exception
        reason = " ".join(str(error).split())[:120] or type(error).__name__
        raise InputError(f"{path} is truncated or not a CIFAR file ({reason}).") from None
