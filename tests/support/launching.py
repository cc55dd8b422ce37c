"""Start `relatum pretrain` as launchers do: torchrun, two torchruns, srun, or `--devices`. Loopback only."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

RELATUM = (sys.executable, "-m", "relatum")
TORCHRUN = (sys.executable, "-m", "torch.distributed.run")
SECONDS = 600


def arguments(run: Path, *more: str) -> list[str]:
    """A run of 24 steps on built-in images, each one logged and saved."""
    return [
        *("pretrain", "shapes", "--out", str(run), "--views", "2", "--batch-size", "8", "--epochs", "2"),
        *("--limit-train", "96", "--device", "cpu", "--threads", "1", "--compile", "off"),
        *("--set", "log.every_steps=1", "--set", "checkpoint.every_steps=1", *more),
    ]


def environment(**more: str) -> dict[str, str]:
    """The environment without traces of a launcher; gloo talks to this machine only."""
    launchers = ("SLURM_", "TORCHELASTIC_", "RELATUM_", "MASTER_", "LOCAL_", "GROUP_")
    kept = {k: v for k, v in os.environ.items() if not k.startswith(launchers) and k not in ("RANK", "WORLD_SIZE")}
    return {**kept, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1", "RELATUM_MEET_SECONDS": "120", **more}


def start(*command: str, **more: str) -> subprocess.Popen[str]:
    """Start a command with this environment."""
    return subprocess.Popen(command, env=environment(**more), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finish(*processes: subprocess.Popen[str]) -> list[tuple[int, str, str]]:
    """Exit code, standard output and standard error of each; none is left running."""
    try:
        ended = [process.communicate(timeout=SECONDS) for process in processes]
    finally:
        for process in processes:
            if process.poll() is None:
                process.kill()
    return [(process.returncode, *output) for process, output in zip(processes, ended, strict=True)]


def srun(*command: str, tasks: int = 2, only: int | None = None, **more: str) -> list[subprocess.Popen[str]]:
    """What srun does on one machine: each task gets its number in variables, and nothing else."""
    job = {"SLURM_NTASKS": str(tasks), "SLURM_JOB_ID": "4", "SLURM_STEP_ID": "0", "SLURM_NNODES": "1"}
    common = {**job, "SLURM_JOB_NAME": "train", "SLURM_NODEID": "0", "MASTER_PORT": str(free_port()), **more}
    ranks = range(tasks) if only is None else [only]
    numbers = [{"SLURM_PROCID": str(n), "SLURM_LOCALID": str(n)} for n in ranks]
    return [start(*command, **common, **number, SLURM_NODELIST="127.0.0.1") for number in numbers]


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


def rows(run: Path) -> list[dict[str, Any]]:
    """The metrics of a run, without what depends on the clock."""
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [{k: v for k, v in line.items() if k != "views_per_second"} for line in lines]


def assert_same_run(run: Path, reference: Path) -> None:
    """Same weights and same metrics, step by step without gap."""
    assert [row["step"] for row in rows(run)] == list(range(1, len(rows(reference)) + 1))
    assert rows(run) == rows(reference)
    assert (run / "backbone.safetensors").read_bytes() == (reference / "backbone.safetensors").read_bytes()
