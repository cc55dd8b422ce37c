"""Reads CIFAR's pickles without executing code from the file, in bounded memory and time.

A pickle is a program that may call any function and allocate any amount of memory. CIFAR's files need plain containers,
numbers, strings and numpy arrays of bytes. So this module interprets the few instructions that these need: an
instruction allocates no more than it reads from the file, and a file may have a million of them (CIFAR-100 has
250,000). The only names that a file may use are those of numpy's pickles; they create inert records, which are checked
and converted to arrays at the end.
"""

from __future__ import annotations

import math
import stat
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from relatum.data.paths import Absent
from relatum.errors import InputError

_GLOBALS = {
    ("numpy", "ndarray"): "ndarray",
    ("numpy", "dtype"): "dtype",
    ("numpy.core.multiarray", "_reconstruct"): "reconstruct",
    ("numpy._core.multiarray", "_reconstruct"): "reconstruct",
}
_MAX_BYTES = 512 << 20  # of a file; CIFAR-100's largest has 155 MB
_MAX_INSTRUCTIONS = 1_000_000
_MAX_NAME = 256  # bytes of a module's or function's name


class _Forbidden(Exception):
    """The file uses a name that CIFAR's files never use."""


class _Global(NamedTuple):
    kind: str


class _Record:
    """An inert object: it stands for the result of a call in the file."""

    __slots__ = ("args", "kind", "state")

    def __init__(self, kind: str, args: tuple[Any, ...]) -> None:
        self.kind, self.args = kind, args
        self.state: Any = None


class _Reader:
    """Interprets the instructions of one pickle."""

    def __init__(self, content: bytes) -> None:
        self._content, self._place = content, 0
        self._stack: list[Any] = []
        self._marks: list[int] = []
        self._memo: dict[int, Any] = {}  # a dictionary: a large index takes no memory

    def load(self) -> Any:
        """The object that the pickle describes."""
        for _ in range(_MAX_INSTRUCTIONS):
            code = self._take(1)
            if code == b".":
                return self._pop()
            action = _ACTIONS.get(code)
            if action is None:
                raise ValueError(f"instruction {code!r} is not one of CIFAR's")
            action(self)
        raise ValueError(f"more than {_MAX_INSTRUCTIONS:,} instructions")

    def _take(self, size: int) -> bytes:
        start, self._place = self._place, self._place + size
        if size < 0 or self._place > len(self._content):
            raise ValueError("the file ends early")
        return self._content[start : self._place]

    def _number(self, form: str) -> int:
        (value,) = struct.unpack(form, self._take(struct.calcsize(form)))
        return int(value)

    def _line(self) -> bytes:
        end = self._content.find(b"\n", self._place, self._place + _MAX_NAME)
        if end < 0:
            raise ValueError("a name is too long")
        return self._take(end + 1 - self._place)[:-1]

    def _push(self, value: Any) -> None:
        self._stack.append(value)

    def _pop(self) -> Any:
        if len(self._stack) <= (self._marks[-1] if self._marks else 0):
            raise ValueError("the stack is empty")
        return self._stack.pop()

    def _top(self, kind: type) -> Any:
        if not self._stack or type(self._stack[-1]) is not kind:
            raise ValueError(f"a {kind.__name__.strip('_').lower()} is missing")
        return self._stack[-1]

    def _marked(self) -> list[Any]:
        """The objects above the last mark, which is removed."""
        if not self._marks:
            raise ValueError("a mark is missing")
        start = self._marks.pop()
        values = self._stack[start:]
        del self._stack[start:]
        return values

    def _last(self, number: int) -> tuple[Any, ...]:
        return tuple(reversed([self._pop() for _ in range(number)]))

    def _text(self, form: str) -> None:
        self._push(str(self._take(self._number(form)), "utf-8"))

    def _append(self, values: list[Any]) -> None:
        self._top(list).extend(values)

    def _set(self, values: list[Any] | tuple[Any, ...]) -> None:
        target = self._top(dict)
        if len(values) % 2 or not all(type(key) in (bytes, str) for key in values[::2]):
            raise ValueError("a key is not a string")  # hashing nested tuples may take for ever
        target.update(zip(values[::2], values[1::2], strict=True))

    def _dictionary(self) -> None:
        values = self._marked()
        self._push({})
        self._set(values)

    def _global(self, module: bytes | str, name: bytes | str) -> None:
        names = tuple(n if isinstance(n, str) else n.decode("ascii", "replace") for n in (module, name))
        kind = _GLOBALS.get((names[0], names[1]))
        if kind is None:
            raise _Forbidden(".".join(names)[:100])
        self._push(_Global(kind))

    def _stack_global(self) -> None:
        module, name = self._last(2)
        if type(module) is not str or type(name) is not str:
            raise ValueError("a name is not a string")
        self._global(module, name)

    def _call(self) -> None:
        function, args = self._last(2)
        if type(function) is not _Global or type(args) is not tuple:
            raise ValueError("a call of something that is not a function")
        self._push(_Record(function.kind, args))

    def _build(self) -> None:
        state = self._pop()
        self._top(_Record).state = state

    def _remember(self, index: int) -> None:
        if not self._stack:
            raise ValueError("the stack is empty")
        self._memo[index] = self._stack[-1]

    def _recall(self, index: int) -> None:
        if index not in self._memo:
            raise ValueError("a reference to nothing")
        self._push(self._memo[index])


_ACTIONS: dict[bytes, Callable[[_Reader], Any]] = {
    b"\x80": lambda r: r._take(1),  # protocol
    b"\x95": lambda r: r._take(8),  # length of a frame
    b"(": lambda r: r._marks.append(len(r._stack)),
    b"}": lambda r: r._push({}),
    b"]": lambda r: r._push([]),
    b")": lambda r: r._push(()),
    b"d": _Reader._dictionary,
    b"l": lambda r: r._push(r._marked()),
    b"t": lambda r: r._push(tuple(r._marked())),
    b"\x85": lambda r: r._push(r._last(1)),
    b"\x86": lambda r: r._push(r._last(2)),
    b"\x87": lambda r: r._push(r._last(3)),
    b"N": lambda r: r._push(None),
    b"\x88": lambda r: r._push(True),
    b"\x89": lambda r: r._push(False),
    b"K": lambda r: r._push(r._number("<B")),
    b"M": lambda r: r._push(r._number("<H")),
    b"J": lambda r: r._push(r._number("<i")),
    b"\x8a": lambda r: r._push(int.from_bytes(r._take(r._number("<B")), "little", signed=True)),
    b"U": lambda r: r._push(r._take(r._number("<B"))),
    b"T": lambda r: r._push(r._take(r._number("<i"))),
    b"C": lambda r: r._push(r._take(r._number("<B"))),
    b"B": lambda r: r._push(r._take(r._number("<I"))),
    b"\x8e": lambda r: r._push(r._take(r._number("<Q"))),
    b"\x8c": lambda r: r._text("<B"),
    b"X": lambda r: r._text("<I"),
    b"\x8d": lambda r: r._text("<Q"),
    b"a": lambda r: r._append([r._pop()]),
    b"e": lambda r: r._append(r._marked()),
    b"s": lambda r: r._set(r._last(2)),
    b"u": lambda r: r._set(r._marked()),
    b"c": lambda r: r._global(r._line(), r._line()),
    b"\x93": _Reader._stack_global,
    b"R": _Reader._call,
    b"b": _Reader._build,
    b"p": lambda r: r._remember(int(r._line())),
    b"q": lambda r: r._remember(r._number("<B")),
    b"r": lambda r: r._remember(r._number("<I")),
    b"\x94": lambda r: r._remember(len(r._memo)),
    b"g": lambda r: r._recall(int(r._line())),
    b"h": lambda r: r._recall(r._number("<B")),
    b"j": lambda r: r._recall(r._number("<I")),
}


def _array(record: _Record) -> NDArray[np.uint8]:
    """A uint8 array from the state of a pickled numpy array: (version, shape, dtype, fortran order, bytes)."""
    state = record.state
    if record.kind != "reconstruct" or type(state) is not tuple or len(state) != 5:
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
