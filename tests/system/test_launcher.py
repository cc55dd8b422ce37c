"""The place of a process as launchers tell it, and the contradictions that are refused before anything is loaded."""

from __future__ import annotations

import pytest

from relatum.cli import main
from relatum.errors import InputError
from relatum.system.launcher import Place, check_devices, find_place, first_host, is_first_process, processes_per_share

TORCHRUN = {
    **{"TORCHELASTIC_RUN_ID": "7", "TORCHELASTIC_RESTART_COUNT": "2", "TORCHELASTIC_USE_AGENT_STORE": "True"},
    **{"RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2", "GROUP_WORLD_SIZE": "2"},
    **{"MASTER_ADDR": "host", "MASTER_PORT": "1234"},
}
SRUN = {
    **{"SLURM_NTASKS": "4", "SLURM_PROCID": "2", "SLURM_LOCALID": "0", "SLURM_NNODES": "2", "SLURM_NODEID": "1"},
    **{"SLURM_JOB_ID": "123456", "SLURM_NODELIST": "gpu[07-08]", "SLURM_JOB_NAME": "train"},
}


def test_a_process_without_a_launcher_is_alone() -> None:
    assert find_place({"OMP_NUM_THREADS": "1"}) is None
    assert is_first_process({})


def test_torchrun() -> None:
    place = find_place(TORCHRUN)
    assert place is not None
    assert (place.launcher, place.rank, place.size, place.local_rank, place.local_size) == ("torchrun", 3, 4, 1, 2)
    assert (place.nodes, place.address, place.port, place.agent_store, place.restarts) == (2, "host", 1234, True, 2)
    assert not is_first_process(TORCHRUN)


def test_srun() -> None:
    place = find_place(SRUN)
    assert place is not None
    assert (place.launcher, place.rank, place.size, place.local_rank, place.local_size) == ("srun", 2, 4, 0, 2)
    assert (place.address, place.port) == ("gpu07", 15000 + 3456)


def test_a_shell_in_an_allocation_is_not_a_task() -> None:
    assert find_place({**SRUN, "SLURM_JOB_NAME": "bash"}) is None
    assert find_place({k: v for k, v in SRUN.items() if k != "SLURM_PROCID"}) is None
    assert find_place({**SRUN, "SLURM_NTASKS": "1", "SLURM_PROCID": "0", "SLURM_NNODES": "1"}) is None


@pytest.mark.parametrize(
    ("hosts", "first"),
    [("a[3-5,9],b", "a3"), ("n1,n2", "n1"), ("n[001-004]", "n001"), ("a-1", "a-1"), ("x[1]y", "x1y")],
)
def test_first_host_of_a_node_list(hosts: str, first: str) -> None:
    assert first_host(hosts) == first


@pytest.mark.parametrize("change", [{"RANK": "4"}, {"RANK": "x"}, {"LOCAL_RANK": "2"}])
def test_variables_that_make_no_sense_are_refused(change: dict[str, str]) -> None:
    with pytest.raises(InputError):
        find_place({**TORCHRUN, **change})


def test_devices_must_agree_with_the_launcher() -> None:
    place = Place("torchrun", 0, 2)
    check_devices(place, None)
    check_devices(place, 2)
    check_devices(None, 4)
    with pytest.raises(InputError, match="devices=4, but torchrun started 2 process"):
        check_devices(place, 4)


@pytest.mark.parametrize("rank", [0, 1])
def test_a_contradiction_is_one_line_and_exit_code_2(
    rank: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in {**TORCHRUN, "RANK": str(rank), "LOCAL_RANK": str(rank)}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(SystemExit) as exit:
        main(["pretrain", "shapes", "--out", "nowhere", "--devices", "2"])
    assert exit.value.code == 2
    assert len(capsys.readouterr().err.splitlines()) == 1 - rank  # the first process speaks for all


def test_threads_are_divided_among_processes_that_relatum_starts() -> None:
    assert processes_per_share(4, {}) == 4
    assert processes_per_share(4, {"RELATUM_RANK": "1", "RELATUM_SIZE": "4", "RELATUM_PORT": "1"}) == 4
    assert processes_per_share(4, {"OMP_NUM_THREADS": "1"}) == 1
    assert processes_per_share(4, TORCHRUN) == 1
