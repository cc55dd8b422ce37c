"""`Team`: the connected processes of one run, which decide and fail together.

The first process reads and writes the run folder and sends the result to the others (`first_does`). Work that every
process does itself runs in `together`: an error in one of them ends all of them, and the first one prints it. torch is
imported only if there are several processes.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

from relatum.errors import InputError, RelatumError, describe
from relatum.system.launcher import Place
from relatum.system.rendezvous import meet, who

T = TypeVar("T")
_MEET_SECONDS = "RELATUM_MEET_SECONDS"
_NEWS_SECONDS = 3  # for news of a failure to reach all processes
_FAILURE = "failure"  # key of the store: number, exit code and message of the process that failed first
_Failure = tuple[int, str]


class Team:
    """The processes of one run, as seen by one of them.

    Args:
        place: the place of this process.
    """

    def __init__(self, place: Place | None = None) -> None:
        self.place = place or Place()
        self.size, self.rank, self.first = self.place.size, self.place.rank, self.place.rank == 0
        self._store: Any = None

    def connect(self, device: str, store: Any = None) -> None:
        """Wait until all processes are there, and connect them.

        Args:
            device: `cuda` adds a connection between GPUs.
            store: the first process's store, where this process has started the others.
        """
        if self.size == 1:
            return
        from torch import distributed

        seconds = float(os.environ.get(_MEET_SECONDS, "300"))
        backend = "cpu:gloo,cuda:nccl" if device == "cuda" else "gloo"
        self._store = meet(self.place, seconds, store)
        distributed.init_process_group(backend, store=self._store, rank=self.rank, world_size=self.size)

    def disconnect(self) -> None:
        """Close the connections, so that the next run of this process starts alone."""
        if self.size > 1:
            from torch import distributed

            if distributed.is_initialized():
                distributed.destroy_process_group()
            self._store = None

    def end(self, error: Exception) -> Exception:
        """The error that this process ends with, after one that the processes may not share: one of them prints it.

        A process that fails leaves the reason in the store and prints it. The others notice a lost connection, and are
        silent if they find a reason.
        """
        store, self._store = self._store, None
        if store is None:
            return error
        reachable = _is_reachable(store)
        if not _is_lost_connection(error):
            silent = isinstance(error, RelatumError) and error.quiet
            code, text = _describe(error)
            if reachable:
                with suppress(RuntimeError):
                    store.compare_set(_FAILURE, "", json.dumps((self.rank, code, text, silent)))
            return error if self.first or silent else _fail(code, f"{who(self.place)}: {text}")
        with suppress(RuntimeError), _without_warnings():  # the store ends with the first process
            if reachable and (reason := self._reason(store)) is not None:
                return reason
        text = f"{who(self.place)} lost its connection to the first process, whose own output says why."
        return _fail(1, text, quiet=self.place.launcher == "relatum")  # with `--devices` users see the first process

    def _reason(self, store: Any) -> RelatumError | None:
        """Why a connection was lost: what the other process left in the store, or nothing; None for the first one."""
        store.set(f"alive/{self.rank}", "")
        deadline = time.monotonic() + _NEWS_SECONDS
        while time.monotonic() < deadline and not store.check([_FAILURE]):
            time.sleep(0.05)
        if store.check([_FAILURE]):
            rank, code, text, silent = json.loads(store.get(_FAILURE))
            return _fail(code, text, quiet=not (silent and self.first)) if rank else None
        silent_ones = [str(r) for r in range(self.size) if not store.check([f"alive/{r}"])]
        text = (
            f"process(es) {', '.join(silent_ones) or 'unknown'} of {self.size} ended without a message: killed, out of"
            " memory, or a machine was lost. The run can be resumed."
        )
        return _fail(1, text, quiet=not self.first)

    # ------------------------------------------------------------------------------------------------ deciding together

    def first_does(self, action: Callable[[], T]) -> T:
        """Call `action` in the first process only, and return its result in all. Its error is raised in all."""
        if self.size == 1:
            return action()
        from torch import distributed

        message: list[Any] = [None, None]
        error: BaseException | None = None
        if self.first:
            try:
                message[1] = action()
            except Exception as caught:
                error, message[0] = caught, _describe(caught)
        distributed.broadcast_object_list(message, src=0)
        if error is not None:
            raise error
        if message[0] is not None:
            raise _fail(*message[0], quiet=True)
        result: T = message[1]
        return result

    def together(self, action: Callable[[], T]) -> T:
        """Call `action` in every process, and return this one's result; an error in any process is raised in all."""
        if self.size == 1:
            return action()
        error: Exception | None = None
        result: Any = None
        try:
            result = action()
        except Exception as caught:
            error = caught
        failures: list[_Failure | None] = self.gather(None if error is None else _describe(error))
        self._raise(error, failures)
        return result  # type: ignore[no-any-return]

    def _raise(self, error: Exception | None, failures: list[_Failure | None]) -> None:
        """Raise the first process's error if it has one, else that of the lowest number; only the first prints it."""
        failed = next((rank for rank, failure in enumerate(failures) if failure is not None), None)
        if failed is None:
            return
        if error is not None and failed == self.rank == 0:
            raise error
        code, text = failures[failed] or (1, "")
        text = text if failed == 0 else f"process {failed} of {self.size}: {text}"
        raise _fail(code, text, quiet=not self.first) from error

    def one_per_machine_first(self, action: Callable[[], T]) -> T:
        """`together`, but the first process of each machine goes ahead: it decodes or downloads for the others."""
        done: list[T] = []
        leads = self.place.local_rank == 0
        self.together(lambda: done.append(action()) if leads else None)
        self.together(lambda: None if leads else done.append(action()))
        return done[0]

    def gather(self, value: T) -> list[T]:
        """The values of all processes, by their number."""
        if self.size == 1:
            return [value]
        from torch import distributed

        values: list[Any] = [None] * self.size
        distributed.all_gather_object(values, value)
        return values

    def require_same(self, facts: Mapping[str, Any]) -> None:
        """Refuse processes that differ in what must be the same, such as their arguments."""
        firsts, *others = self.gather(dict(facts))
        for rank, other in enumerate(others, 1):
            for key in sorted(firsts.keys() | other.keys()):
                if firsts.get(key) != other.get(key):
                    error = InputError(
                        f"process {rank} of {self.size} has {key} = {other.get(key)!r}, and the first process"
                        f" {firsts.get(key)!r}: start all of them with the same arguments and data."
                    )
                    error.quiet = not self.first
                    raise error


def _describe(error: Exception) -> _Failure:
    return (error.exit_code, str(error)) if isinstance(error, RelatumError) else (1, describe(error))


def _fail(code: int, text: str, *, quiet: bool = False) -> RelatumError:
    """An error with this exit code; `quiet` if another process prints it."""
    error = InputError(text) if code == InputError.exit_code else RelatumError(text)
    error.quiet = quiet
    return error


def _is_lost_connection(error: Exception) -> bool:
    """Whether another process has disconnected. gloo's errors have no separate class; they name its source file."""
    from torch.distributed import DistError  # type: ignore[attr-defined]

    return isinstance(error, DistError) or (isinstance(error, RuntimeError) and "gloo/" in str(error))


@contextmanager
def _without_warnings() -> Iterator[None]:
    """Suppress output: torch prints a long C++ traceback when a store is gone."""
    sys.stderr.flush()
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)


def _is_reachable(store: Any) -> bool:
    """Whether the first process still listens."""
    try:
        socket.create_connection((store.host, store.port), _NEWS_SECONDS).close()
    except OSError:
        return False
    return True
