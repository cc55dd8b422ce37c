"""Kernels compiled by numba, kept on disk for later processes and recompiled when any of their sources changes.

numba's cache on disk is keyed by the content of the file that a kernel is defined in. Our kernels are compiled together
with functions from other files (`simd`, `resampling`, ...), whose changes numba would not notice. Here the key is a
digest of all Python files in the kernel's folder, and it is part of the name of each cache file. A process that
compiles a kernel deletes the files of other digests, so that old machine code does not accumulate.

Only the outermost function of a kernel is cached. numba optimises a cached part a second time inside its caller, which
changes the last bits of the results between a process that compiles and one that loads (docs/log.md).

A file that cannot be read, written or trusted (after a power failure some are empty) costs time, never a command.
"""

# mypy: disable-error-code="no-untyped-call"

from __future__ import annotations

import contextlib
import functools
import hashlib
import inspect
import pickle
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba
from numba.core.caching import FunctionCache, IndexDataCacheFile

from relatum.errors import InputError

_PREFIX = "relatum"
_announced = False


def cached_njit(signature: Any = None, **options: Any) -> Callable[[Any], Any]:
    """`numba.njit` with `nogil` for a kernel whose machine code is kept on disk.

    The code is stored in $NUMBA_CACHE_DIR if that is set, else in `__pycache__` beside the source or, if that cannot be
    written, in the user's cache folder; it is stored separately for each type of CPU. If none of these can be written,
    every process compiles the kernel again.

    Args:
        signature: compile for these argument types now; by default, at the first call with each set of types.
        options: further options of `numba.njit`.
    """

    if getattr(numba.config, "DISABLE_JIT", 0):  # numba sets it at run time, so mypy does not know it
        raise InputError("NUMBA_DISABLE_JIT is set, so there are no compiled kernels: unset it, or use 'torch'.")

    def decorate(function: Any) -> Any:
        kernel = numba.njit(nogil=True, **options)(function)
        try:
            kernel._cache = _KernelCache(function)
        except RuntimeError as error:
            if "cannot cache" not in str(error):
                raise
            warnings.warn("no writable folder for compiled kernels: set NUMBA_CACHE_DIR to one.", stacklevel=2)
        if signature is not None:
            kernel.compile(signature)
            kernel.disable_compile()
        return kernel

    return decorate


class _KernelCache(FunctionCache):
    """numba's cache of a function's machine code, with file names that contain the digest of all sources."""

    def __init__(self, function: Any) -> None:
        super().__init__(function)
        source = Path(inspect.getfile(function))
        self._digest = source_digest(source.parent)
        name = f"{source.stem}.{function.__qualname__}".replace("<", "").replace(">", "")
        python = f"py{sys.version_info[0]}{sys.version_info[1]}{getattr(sys, 'abiflags', '')}"
        self._cache_file = _CheckedFiles(
            cache_path=self.cache_path,
            filename_base=f"{_PREFIX}-{self._digest}-{name}.{python}",
            source_stamp=self._digest,
        )

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        compiled = None
        with contextlib.suppress(Exception):  # a damaged file may raise anything; the kernel is compiled again
            compiled = super().load_overload(sig, target_context)
        if compiled is None:
            _announce_compilation()
        return compiled

    def save_overload(self, sig: Any, data: Any) -> None:
        try:
            try:
                super().save_overload(sig, data)
            except OSError:
                raise
            except Exception:  # the index is damaged: numba reads it before it writes
                self.flush()
                super().save_overload(sig, data)
        except OSError as error:  # a full disk, a read-only one: the kernel works, but is not kept
            reason = error.strerror or str(error)
            warnings.warn(f"compiled kernels could not be kept in {self.cache_path}: {reason}.", stacklevel=2)
            return
        for path in Path(self.cache_path).glob(f"{_PREFIX}-*.nb[ci]"):
            if not path.name.startswith(f"{_PREFIX}-{self._digest}-"):
                with contextlib.suppress(OSError):
                    path.unlink()


class _CheckedFiles(IndexDataCacheFile):
    """numba's files with a SHA-256 of the machine code: a damaged one could crash, or give other results."""

    def _save_data(self, name: str, data: Any) -> None:
        content = self._dump(data)
        super()._save_data(name, (hashlib.sha256(content).digest(), content))

    def _load_data(self, name: str) -> Any:
        digest, content = super()._load_data(name)
        if hashlib.sha256(content).digest() != digest:
            raise ValueError(f"{name} is damaged")
        return pickle.loads(content)


@functools.cache
def source_digest(folder: Path) -> str:
    """A digest of the names and contents of all Python files in a folder, as they were at the first call."""
    digest = hashlib.sha256()
    for path in sorted(folder.glob("*.py")):
        content = path.read_bytes()
        digest.update(f"{path.name} {len(content)}\n".encode() + content)
    return digest.hexdigest()[:16]


def _announce_compilation() -> None:
    """Print a message before the first kernel is compiled; the others will be compiled too."""
    global _announced
    if not _announced:
        _announced = True
        with contextlib.suppress(OSError):  # a closed terminal is no reason to stop
            print("compiling kernels for this machine: about 20 s, once", file=sys.stderr, flush=True)
