"""Connects the processes of a run: a store that exactly those of one launch share. torch is imported inside."""

from __future__ import annotations

import json
import socket
import threading
import time
import uuid
from concurrent.futures import Future
from datetime import timedelta
from typing import Any

from relatum.errors import RelatumError
from relatum.system.launcher import Place


def listen() -> Any:
    """A store on a free port of this machine, for processes that this one starts."""
    from torch.distributed import TCPStore  # type: ignore[attr-defined]

    return TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)


def meet(place: Place, seconds: float, store: Any = None) -> Any:
    """A store that exactly the processes of this launch share.

    torchrun 2.13 gives restarted processes the store of those before them, with their keys in it: a process that reads
    an old address waits for ever. So the first process opens a new store, and everyone proves to be new (`_greet`).
    """
    from torch.distributed import TCPStore  # type: ignore[attr-defined]

    deadline = time.monotonic() + seconds

    try:
        agent = _connect(place.address, place.port, seconds) if place.agent_store else None
        if place.rank == 0:
            if store is None:
                port = 0 if agent is not None else place.port
                store = TCPStore(place.address, port, is_master=True, wait_for_workers=False)
            if agent is not None:
                agent.set("relatum", f"{place.address}|{store.port}")
            _welcome(place, store, deadline)
            return store
        while time.monotonic() < deadline:
            host, port = place.address, place.port
            if agent is not None:
                agent.set_timeout(timedelta(seconds=max(deadline - time.monotonic(), 1)))
                host, _, text = agent.get("relatum").decode().partition("|")
                port = int(text)
            try:
                store = _connect(host, port, 10 if agent is not None else max(deadline - time.monotonic(), 1))
                if _greet(place, store, min(deadline, time.monotonic() + 10) if agent is not None else deadline):
                    return store
            except RuntimeError:  # an address of processes that are gone: a new one will follow
                if agent is None:
                    raise
            time.sleep(0.2)
    except (RuntimeError, ValueError, OSError) as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0][:160]
        raise RelatumError(
            f"{who(place)} could not connect to the other processes at {place.address}:{place.port}: {reason}"
        ) from None
    raise _missing(place, seconds)


def _connect(host: str, port: int, seconds: float) -> Any:
    """Connect to a store. The time is limited: another program may listen on the port and never answer."""
    from torch.distributed import TCPStore  # type: ignore[attr-defined]

    connection: Future[Any] = Future()

    def connect() -> None:
        wait = timedelta(seconds=seconds)
        try:
            connection.set_result(TCPStore(host, port, is_master=False, wait_for_workers=False, timeout=wait))
        except Exception as error:
            connection.set_exception(error)

    threading.Thread(target=connect, daemon=True, name="relatum-connect").start()
    try:
        return connection.result(seconds + 5)
    except TimeoutError:
        raise RuntimeError("no answer; another program may use this port (choose another $MASTER_PORT)") from None


def _welcome(place: Place, store: Any, deadline: float) -> None:
    """Wait for every other process and confirm the name that each gave itself."""
    begun = time.monotonic()
    names: dict[int, str] = {}
    while len(names) < place.size - 1:
        for rank in range(1, place.size):
            key = f"here/{rank}"
            if rank not in names and store.check([key]):
                names[rank] = store.get(key).decode()
        if time.monotonic() > deadline:
            raise _missing(place, time.monotonic() - begun, [r for r in range(1, place.size) if r not in names])
        time.sleep(0.01)
    store.set("go", json.dumps(names))


def _greet(place: Place, store: Any, deadline: float) -> bool:
    """Register under a new unique name, and return whether the first process confirms it."""
    name = f"{uuid.uuid4()} on {socket.gethostname()}"
    store.set(f"here/{place.rank}", name)
    store.wait(["go"], timedelta(seconds=max(deadline - time.monotonic(), 1)))
    return bool(json.loads(store.get("go")).get(str(place.rank)) == name)


def who(place: Place) -> str:
    """The process as messages name it."""
    return f"process {place.rank} of {place.size}"


def _missing(place: Place, seconds: float, ranks: list[int] | None = None) -> RelatumError:
    which = "the others" if ranks is None else f"process(es) {', '.join(map(str, ranks))}"
    hint = " (srun must start one task per process)" if place.launcher == "srun" else ""
    return RelatumError(
        f"{who(place)} waited {seconds:.0f} s for {which}, which {place.launcher} should have started{hint}."
    )
