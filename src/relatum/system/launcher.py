"""Detects the launcher of this process: torchrun, srun, relatum itself (`--devices N`), or none. No torch here.

The launcher decides how many processes there are and which one this is; `--devices` must agree with it.
"""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Mapping
from dataclasses import dataclass

from relatum.errors import InputError

RANK, SIZE, PORT = "RELATUM_RANK", "RELATUM_SIZE", "RELATUM_PORT"  # set for the processes that relatum starts
LOOPBACK = "127.0.0.1"
_TORCHRUN = "TORCHELASTIC_RUN_ID"
_STATIC = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


@dataclass(frozen=True)
class Place:
    """The place of this process among the processes of a run.

    Attributes:
        launcher: who started the processes, for messages.
        rank, size: the number of this process, and how many there are.
        local_rank, local_size: the same among the processes on this machine.
        nodes: number of machines.
        address, port: where the first process listens.
        agent_store: whether torchrun listens there instead, on behalf of all restarts.
        restarts: how often the launcher has restarted the processes.
        token: the same for all restarts by one launcher; empty where it is not known.
    """

    launcher: str = "relatum"
    rank: int = 0
    size: int = 1
    local_rank: int = 0
    local_size: int = 1
    nodes: int = 1
    address: str = LOOPBACK
    port: int = 0
    agent_store: bool = False
    restarts: int = 0
    token: str = ""


def find_place(environ: Mapping[str, str] = os.environ) -> Place | None:
    """The place that the launcher gave this process; None if it was started alone."""
    if RANK in environ:
        rank, size = _number(environ, RANK), _number(environ, SIZE)
        return Place("relatum", rank, size, rank, size, port=_number(environ, PORT))
    if _TORCHRUN in environ or all(name in environ for name in _STATIC):
        return _checked(_torchrun(environ))
    if _in_slurm_task(environ):
        place = _checked(_srun(environ))
        return place if place.size > 1 else None
    return None


def is_first_process(environ: Mapping[str, str] = os.environ) -> bool:
    """Whether this process prints results: the only one, or the first of many."""
    place = find_place(environ)
    return place is None or place.rank == 0


def check_devices(place: Place | None, devices: int | None) -> None:
    """Refuse a number of devices that contradicts the launcher."""
    if place is None or devices is None or devices == place.size:
        return
    error = InputError(
        f"--devices {devices}, but {place.launcher} started {place.size} process(es): leave it out, or change"
        f" the number of processes that {place.launcher} starts."
    )
    error.quiet = place.rank > 0  # all see it, the first one prints it
    raise error


def processes_per_machine(devices: int, environ: Mapping[str, str] = os.environ) -> int:
    """How many processes of a run on `devices` share this machine's disk."""
    place = find_place(environ)
    return devices if place is None else max(place.local_size, 1)


def processes_per_share(devices: int, environ: Mapping[str, str] = os.environ) -> int:
    """Among how many processes the CPU threads that this one sees are divided.

    torchrun ($OMP_NUM_THREADS) and srun (CPU affinity) give each process its own share; `--devices N` does not.
    """
    place = find_place(environ)
    if "OMP_NUM_THREADS" in environ or (place is not None and place.launcher != "relatum"):
        return 1
    return devices


def _torchrun(environ: Mapping[str, str]) -> Place:
    elastic = _TORCHRUN in environ
    rank, size = _number(environ, "RANK"), _number(environ, "WORLD_SIZE")
    return Place(
        launcher="torchrun" if elastic else "the launcher (WORLD_SIZE)",
        rank=rank,
        size=size,
        local_rank=_number(environ, "LOCAL_RANK", 0),
        local_size=_number(environ, "LOCAL_WORLD_SIZE", size if "LOCAL_RANK" in environ else 1),
        nodes=_number(environ, "GROUP_WORLD_SIZE", 1),
        address=environ.get("MASTER_ADDR", LOOPBACK),
        port=_number(environ, "MASTER_PORT"),
        agent_store=environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True",
        restarts=_number(environ, "TORCHELASTIC_RESTART_COUNT", 0),
        token=f"{environ[_TORCHRUN]} {socket.gethostname()} {os.getppid()}" if elastic else "",
    )


def _in_slurm_task(environ: Mapping[str, str]) -> bool:
    """Whether srun started this process as a task; a shell in an allocation is not one."""
    interactive = environ.get("SLURM_JOB_NAME") in ("bash", "interactive")
    return "SLURM_NTASKS" in environ and "SLURM_PROCID" in environ and not interactive


def _srun(environ: Mapping[str, str]) -> Place:
    size = _number(environ, "SLURM_STEP_NUM_TASKS", _number(environ, "SLURM_NTASKS"))
    nodes = _number(environ, "SLURM_STEP_NUM_NODES", _number(environ, "SLURM_NNODES", 1))
    hosts = next((environ[f"SLURM_{n}"] for n in ("STEP_NODELIST", "NODELIST") if environ.get(f"SLURM_{n}")), LOOPBACK)
    job = re.sub(r"\D", "", environ.get("SLURM_JOB_ID", "")) or "0"
    return Place(
        launcher="srun",
        rank=_number(environ, "SLURM_PROCID"),
        size=size,
        local_rank=(local := _number(environ, "SLURM_LOCALID", 0)),
        local_size=max(min(_number(environ, "SLURM_NTASKS_PER_NODE", -(-size // nodes)), size), local + 1),
        nodes=nodes,
        address=environ.get("MASTER_ADDR") or first_host(hosts),
        port=_number(environ, "MASTER_PORT", 15000 + int(job[-4:])),
        restarts=_number(environ, "SLURM_RESTART_COUNT", 0),
        token=f"slurm {job}",
    )


def first_host(hosts: str) -> str:
    """The first name of a Slurm node list: `a[3-5,9],b` gives `a3`."""
    match = re.match(r"([^,\[\s]+)(?:\[([^,\-\]]+)[^\]]*\])?([^,\s]*)", hosts.strip())
    return LOOPBACK if match is None else f"{match[1]}{match[2] or ''}{match[3]}"


def _checked(place: Place) -> Place:
    if not (0 <= place.rank < place.size and 0 <= place.local_rank < max(place.local_size, 1)):
        raise InputError(
            f"{place.launcher} numbers this process {place.rank} of {place.size}, and {place.local_rank} of "
            f"{place.local_size} on its machine: its environment variables contradict one another."
        )
    return place


def _number(environ: Mapping[str, str], name: str, default: int | None = None) -> int:
    text = environ.get(name)
    if text is None and default is not None:
        return default
    try:
        return int(text or "")
    except ValueError:
        raise InputError(f"the launcher set {name} to {text!r}, which is not a number.") from None
