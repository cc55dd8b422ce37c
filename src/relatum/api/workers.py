"""The processes of a data-parallel `pretrain`: those that a launcher started, or those that `--devices N` starts here.

A process that is started here runs this module and nothing else of the user's script: it reads the arguments of
`pretrain` from its standard input, trains its share of that one run, and ends.
"""

from __future__ import annotations

import io
import os
import pickle
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from relatum.config.methods import METHODS, Method
from relatum.errors import InputError, Interrupted, RelatumError, describe
from relatum.system import launcher, signals
from relatum.system.cpus import available_cpus
from relatum.system.launcher import Place
from relatum.system.rendezvous import listen
from relatum.system.stderr import say
from relatum.system.team import Team
from relatum.system.text import counted

_FEW = 8  # processes that any machine may start
_END_SECONDS = 60  # for other processes to end after this one
_FAILED_SECONDS = 5  # the same after an error: they may wait for this process in the middle of a step
# Exit codes that all processes have agreed on.
_ORDERLY = (2, *signals.EXIT_CODES)


@contextmanager
def team(place: Place | None, devices: int, device: str, arguments: Mapping[str, Any]) -> Iterator[Team]:
    """Start the other processes of a run if necessary, and connect all of them.

    Args:
        place: the place that the launcher gave this process; if None, `devices` - 1 more processes are started here.
        devices: number of processes of the run.
        device: `cpu` or `cuda`.
        arguments: the arguments of `pretrain`, for the processes that are started here.
    """
    store, children = None, []
    if place is None and devices > 1:
        _check_number(devices)
        message = _pickled(arguments)
        store = listen()
        place = Place("relatum", 0, devices, 0, devices, port=store.port)
        children = [_start(rank, devices, store.port, message) for rank in range(1, devices)]
        _watch(children)
    members, patience = Team(place), _END_SECONDS
    try:
        members.connect(device, store)
        yield members
    except Exception as error:
        patience = _FAILED_SECONDS
        last = members.end(error)
        if last is error:
            raise
        raise last from error
    finally:
        members.disconnect()
        _end(children, patience)


def _check_number(devices: int) -> None:
    """Refuse more processes than the machine can run: the number may come from an untrusted recipe."""
    most = max(_FEW, 2 * available_cpus())
    if devices > most:
        raise InputError(
            f"--devices {devices}: this machine has {counted(available_cpus(), 'CPU')}, for at most {most} processes."
            " torchrun and srun start processes on several machines."
        )


def _pickled(arguments: Mapping[str, Any]) -> bytes:
    backbone = arguments.get("backbone")
    try:
        if type(backbone).__module__ == "__main__":
            raise TypeError("its class is defined in the script itself")
        pickled = pickle.dumps(dict(arguments))
    except Exception as error:  # pickling a user's object may raise any exception
        raise InputError(
            f"devices: this backbone cannot be sent to other processes ({error}). Name it as module:function, or start"
            " the script with torchrun."
        ) from None
    return pickle.dumps(_custom_methods()) + pickled


def _custom_methods() -> dict[str, Method]:
    """Rows that the script added to the table of methods; loading one imports the module of its options."""
    rows = {name: row for name, row in METHODS.items() if not row.target.startswith("relatum.")}
    for name, row in rows.items():
        if row.options.__module__ == "__main__":
            raise InputError(
                f"devices: the method {name} is defined in the script itself, which other processes do not run. Put it"
                " into a module and import that, or start the script with torchrun."
            )
    return rows


def _start(rank: int, size: int, port: int, message: bytes) -> subprocess.Popen[bytes]:
    ours = {launcher.RANK: str(rank), launcher.SIZE: str(size), launcher.PORT: str(port)}
    path = os.pathsep.join(entry for entry in sys.path if entry)  # a backbone may be defined beside the script
    command = [sys.executable, "-P", "-c", "import sys; from relatum.api.workers import main; sys.exit(main())"]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, env={**os.environ, **ours, "PYTHONPATH": path})
    assert process.stdin is not None
    with suppress(BrokenPipeError):  # it has died already: `_watch` sees that
        process.stdin.write(len(message).to_bytes(8, "big") + message)
        process.stdin.flush()  # and it stays open: its end tells the process that this one is gone
    return process


def _watch(children: list[subprocess.Popen[bytes]]) -> None:
    """End this process if another one has died and the connection does not report it, as between GPUs."""

    def died() -> bool:
        return any(child.poll() not in (None, 0, *_ORDERLY) for child in children)

    def watch() -> None:
        while not died():
            if all(child.poll() is not None for child in children):
                return
            time.sleep(1)
        time.sleep(_END_SECONDS)
        if all(child.stdin for child in children):  # still training: `_end` has not been called
            say("error: another process of this run has died; --resume continues it.")
            os._exit(1)

    threading.Thread(target=watch, daemon=True, name="relatum-watch").start()


def _end(children: list[subprocess.Popen[bytes]], seconds: float) -> None:
    """Wait for the processes that were started here; one that does not end is killed."""
    deadline = time.monotonic() + seconds
    for child in children:
        if child.stdin is not None:
            child.stdin.close()
            child.stdin = None
    for child in children:
        try:
            child.wait(max(deadline - time.monotonic(), 1))
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


# -------------------------------------------------------------------------------------- in a process that was started


def _end_with_parent() -> None:
    """End this process some time after the one that started it: its standard input is closed then."""

    def wait() -> None:
        os.read(0, 1)
        time.sleep(_END_SECONDS - 10)
        os._exit(1)

    threading.Thread(target=wait, daemon=True, name="relatum-parent").start()


def main() -> int:
    """Train the share of this process; the first process prints errors."""
    from relatum.api.pretraining import pretrain

    with open(0, "rb", buffering=0, closefd=False) as pipe:  # unbuffered: nothing is read beyond the message
        length = int.from_bytes(pipe.read(8), "big")
        message = b""
        while len(message) < length and (part := pipe.read(length - len(message))):
            message += part
    stream = io.BytesIO(message)  # from the process that started this one
    METHODS.update(pickle.load(stream))
    arguments = pickle.load(stream)
    _end_with_parent()
    try:
        pretrain(**arguments)
    except Exception as error:
        if "RELATUM_DEBUG" in os.environ:
            raise
        if isinstance(error, RelatumError) and error.quiet:
            return error.exit_code
        text = str(error) if isinstance(error, RelatumError) else describe(error)
        say(f"error: {text}")
        return error.exit_code if isinstance(error, RelatumError) else 1
    except Interrupted as error:
        return error.exit_code
    except KeyboardInterrupt:
        return 130
    return 0
