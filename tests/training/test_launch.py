"""Real launchers on this machine: each trains one run with the bits of the others; stops and losses lose nothing."""

from __future__ import annotations

import os
import random
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from launching import (
    RELATUM,
    TORCHRUN,
    arguments,
    assert_same_run,
    finish,
    free_port,
    rows,
    srun,
    start,
)

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with `--devices 2` that nobody disturbed."""
    run = tmp_path_factory.mktemp("reference") / "run"
    ((code, output, errors),) = finish(start(*RELATUM, *arguments(run, "--devices", "2")))
    assert code == 0, errors
    assert output.split() == [str(run)]
    assert "devices = 2" in (run / "recipe.toml").read_text()
    return run


def test_torchrun_needs_no_devices(reference: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    launch = (*TORCHRUN, "--standalone", "--nproc-per-node", "2", "-m", "relatum")
    ((code, output, errors),) = finish(start(*launch, *arguments(run)))
    assert code == 0, errors
    assert output.split() == [str(run)]
    assert_same_run(run, reference)


def test_two_nodes_write_one_run(reference: Path, tmp_path: Path) -> None:
    run, port = tmp_path / "run", str(free_port())
    meet = ("--nnodes", "2", "--nproc-per-node", "1", "--rdzv-backend", "c10d", "--rdzv-id", "7")
    launch = (*TORCHRUN, *meet, "--rdzv-endpoint", f"127.0.0.1:{port}", "--local-addr", "127.0.0.1", "-m", "relatum")
    nodes = [start(*launch, *arguments(run)) for _ in range(2)]
    ended = finish(*nodes)
    assert [code for code, _, _ in ended] == [0, 0], ended
    assert "".join(output for _, output, _ in ended).split() == [str(run)]
    assert_same_run(run, reference)


def test_srun_needs_no_devices(reference: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    ended = finish(*srun(*RELATUM, *arguments(run)))
    assert [code for code, _, _ in ended] == [0, 0], ended
    assert "".join(output for _, output, _ in ended).split() == [str(run)]
    assert_same_run(run, reference)


def test_processes_with_other_arguments_are_refused(tmp_path: Path) -> None:
    port = str(free_port())
    tasks = [
        srun(*RELATUM, *arguments(tmp_path / "run", "--seed", str(rank)), only=rank, MASTER_PORT=port)[0]
        for rank in range(2)
    ]
    ended = finish(*tasks)
    assert [code for code, _, _ in ended] == [2, 2], ended
    (line,) = (errors for _, _, errors in ended if errors)
    assert line.strip() == (
        "error: process 1 of 2 has seed = 1, and the first process 0: start all of them with the same arguments and"
        " data."
    )


def test_a_missing_task_is_an_error_and_not_a_hang(tmp_path: Path) -> None:
    lonely = srun(*RELATUM, *arguments(tmp_path / "run"), only=0, RELATUM_MEET_SECONDS="3")
    ((code, _, errors),) = finish(*lonely)
    assert code == 1
    assert len(errors.splitlines()) == 1
    assert "waited 3 s for process(es) 1, which srun should have started" in errors


def test_a_port_that_another_program_uses_is_an_error_and_not_a_hang(tmp_path: Path) -> None:
    with socket.socket() as stranger:
        stranger.bind(("127.0.0.1", 0))
        stranger.listen()
        variables = {"MASTER_PORT": str(stranger.getsockname()[1]), "RELATUM_MEET_SECONDS": "3"}
        ended = finish(*srun(*RELATUM, *arguments(tmp_path / "run"), **variables))
    assert [code for code, _, _ in ended] == [1, 1], ended
    assert "address already in use" in ended[0][2] or "EADDRINUSE" in ended[0][2]
    assert len(ended[1][2].splitlines()) == 1
    assert "another program may use this port" in ended[1][2]


TWICE = """
import sys, relatum
common = dict(views=2, batch_size=8, epochs=1, limit_train=24, device="cpu", threads=1, compile="off", quiet=True)
relatum.pretrain("shapes", out=sys.argv[1] + "/shared", devices=2, **common)
print("between")
relatum.pretrain("shapes", out=sys.argv[1] + "/alone", **common)
print("end")
"""


def test_a_script_that_trains_twice_is_run_once(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(TWICE)
    ((code, output, errors),) = finish(start(sys.executable, str(script), str(tmp_path)))
    assert code == 0, errors
    assert output.split() == ["between", "end"]
    assert [row["step"] for row in rows(tmp_path / "alone")] == [1, 3]
    assert "devices = 2" in (tmp_path / "shared" / "recipe.toml").read_text()
    assert "devices = 1" in (tmp_path / "alone" / "recipe.toml").read_text()


# A disk on which every save takes longer than Fabric's watcher waited (5 s) before it killed the first process.
SLOW_DISK = """
import sys, time
from relatum.cli import main
from relatum.runs import checkpoint
save = checkpoint.save
def slowly(path, state):
    if state["step"] >= 3:
        open(sys.argv[1], "w").close()
        time.sleep(8)
    save(path, state)
checkpoint.save = slowly
main(sys.argv[2:])
"""


def test_a_stop_waits_for_a_slow_save(reference: Path, tmp_path: Path) -> None:
    run, flag = tmp_path / "run", tmp_path / "saving"
    process = start(sys.executable, "-c", SLOW_DISK, str(flag), *arguments(run, "--devices", "2"))
    wait_for(flag.exists, process)
    process.send_signal(signal.SIGTERM)
    ((code, _, errors),) = finish(process)
    assert code == 143, errors
    assert "--resume continues" in errors
    stopped = rows(run)[-1]["step"]
    assert stopped < 24
    ((code, _, errors),) = finish(start(*RELATUM, "pretrain", "--resume", "--out", str(run)))
    assert code == 0, errors
    assert f"resumed at step {stopped}" in errors
    assert_same_run(run, reference)


FAULTS = {  # what happens in which process: the one line that all processes together print
    ("error", 0): "error: unexpected ValueError: the disk is on fire (--debug shows the traceback)",
    ("error", 1): "error: process 1 of 2: unexpected ValueError: the disk is on fire",
    ("kill", 1): "error: process(es) 1 of 2 ended without a message",
    ("nan", 1): "error: the loss is nan at step 6 (images: number 51, number 71, number 34,",
}


@pytest.mark.parametrize("launcher", ["devices", "srun"])
@pytest.mark.parametrize(("fault", "rank"), FAULTS)
def test_a_process_that_fails_ends_all_with_one_line(launcher: str, fault: str, rank: int, tmp_path: Path) -> None:
    support = str(Path(__file__).parents[1] / "support")
    command = [*RELATUM, *arguments(tmp_path / "run", "--backbone", "faulty:build")]
    faults = {"FAULT": fault, "FAULT_RANK": str(rank), "PYTHONPATH": support}
    processes = srun(*command, **faults) if launcher == "srun" else [start(*command, "--devices", "2", **faults)]
    ended = finish(*processes)
    killed = {rank} if fault == "kill" and launcher == "srun" else set()
    assert [code for code, _, _ in ended] == [-signal.SIGKILL if n in killed else 1 for n in range(len(ended))], ended
    told = ("data ", "method ", "backbone ", "training ")
    lines = [line for _, _, errors in ended for line in errors.splitlines() if not line.startswith(told)]
    if launcher == "srun" and (fault, rank) == ("error", 0):  # each task has a log of its own
        assert lines.pop() == (
            "error: process 1 of 2 lost its connection to the first process, whose own output says why."
        )
    (line,) = lines
    assert line.startswith(FAULTS[fault, rank])


def wait_for(condition: object, process: subprocess.Popen[str], seconds: float = 300) -> None:
    deadline = time.monotonic() + seconds
    while not condition():  # type: ignore[operator]
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline, "it did not start"
        time.sleep(0.02)


def workers(agent: subprocess.Popen[str]) -> dict[int, int]:
    """The processes that a torchrun has started, by their rank."""
    listed = subprocess.run(["ps", "-o", "pid=", "--ppid", str(agent.pid)], capture_output=True, text=True, check=False)
    pids = {}
    for pid in map(int, listed.stdout.split()):
        try:
            variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        except OSError:
            continue
        rank = next((int(v[5:]) for v in variables if v.startswith(b"RANK=")), None)
        if rank is not None:
            pids[rank] = pid
    return pids


@pytest.mark.parametrize("rank", [0, 1])
def test_a_lost_process_is_replaced_and_no_bit_changes(rank: int, reference: Path, tmp_path: Path) -> None:
    times = int(os.environ.get("RELATUM_KILLS", "1"))
    moments = random.Random(rank)
    for number in range(times):
        run = tmp_path / f"run{number}"
        launch = (*TORCHRUN, "--standalone", "--nproc-per-node", "2", "--max-restarts", "2", "-m", "relatum")
        agent = start(*launch, *arguments(run, "--resume"))
        last = moments.randrange(1, 20)
        metrics = run / "metrics.jsonl"
        wait_for(lambda m=metrics, n=last: m.exists() and m.read_text().count("\n") >= n, agent)
        os.kill(workers(agent)[rank], signal.SIGKILL)
        ((code, _, errors),) = finish(agent)
        assert code == 0, errors
        assert "resumed at step" in errors
        assert_same_run(run, reference)
