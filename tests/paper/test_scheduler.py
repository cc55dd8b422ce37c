"""The grid of processes: what runs, what is kept, what happens when something fails or is killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from relatum.errors import InputError, Interrupted
from relatum.paper import measured
from relatum.paper.cells import Plan, Request
from relatum.paper.measured import Results, score
from relatum.paper.plan import plan
from relatum.paper.reproduce import reproduce
from relatum.paper.scheduler import Outcome, execute, missing
from relatum.runs import ledger
from relatum.system.cpus import available_cpus
from relatum.system.files import with_checksum, write_json

STUB = (sys.executable, str(Path(__file__).with_name("stub.py")))
RunStub = Callable[[Plan], tuple[Results, Outcome]]
SMALL = Request(("cifar10",), ("conv4",), ("relational", "supervised", "random"), (1, 2))


def wait_for(condition: Callable[[], bool], seconds: float = 20.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.02)


def test_runs_each_command_once_and_nothing_the_second_time(run_stub: RunStub, trace: Path) -> None:
    asked = plan(["linear-evaluation", "backbones-linear"], SMALL)
    results, outcome = run_stub(asked)
    lines = trace.read_text().splitlines()
    assert not outcome.failed
    assert sum(line.startswith("pretrain") for line in lines) == 6  # three methods, two seeds
    assert sum(line.startswith("evaluate") for line in lines) == 4  # the supervised rows score themselves
    assert all(score(c, results).status == measured.DONE for t in asked.tables for c in t.cells)
    run_stub(asked)
    assert trace.read_text().splitlines() == lines


def test_the_exact_command_is_recorded_and_the_ledger_s_holds_no_folder_of_this_machine(run_stub: RunStub) -> None:
    asked = plan(["linear-evaluation"], Request(("cifar10",), ("conv4",), ("relational",), (1,)))
    results, _ = run_stub(asked)
    run = asked.runs[0]
    records = results.records(run)
    assert records[0]["command"] == f"relatum {' '.join(run.arguments())} --out {results.run_dir(run)} --resume"
    entry = json.loads((results.out / "ledger" / f"{run.id}.json").read_text())
    assert entry["commands"][0] == f"relatum {' '.join(run.arguments())} --out runs/{run.id} --resume"
    assert entry["commands"][1].startswith(f"relatum evaluate linear runs/{run.id} --data cifar10 --split test")


def test_a_run_that_was_trained_elsewhere_is_recorded_with_the_command_that_trains_it(run_stub: RunStub) -> None:
    asked = plan(["linear-evaluation"], Request(("cifar10",), ("conv4",), ("relational",), (1,)))
    results, _ = run_stub(asked)
    run = asked.runs[0]
    entry = results.out / "ledger" / f"{run.id}.json"
    first = json.loads(entry.read_text())["commands"]
    for path in (results.log(run), entry, *(results.run_dir(run) / "evaluations").glob("*.json")):
        path.unlink()
    run_stub(asked)
    assert json.loads(entry.read_text())["commands"] == first


def test_a_failed_run_is_shown_as_failed_does_not_stop_the_others_and_is_tried_again(
    run_stub: RunStub, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = plan(["linear-evaluation"], SMALL)
    monkeypatch.setenv("STUB_FAIL", "relational")
    results, outcome = run_stub(asked)
    figures = {c.row.key: score(c, results) for c in asked.tables[0].cells}
    assert figures["relational"].status == measured.FAILED
    assert figures["relational"].mean is None
    assert figures["relational"].text == "failed"
    assert figures["relational"].reason == "error: something went wrong here Do it otherwise."
    assert figures["random"].status == measured.DONE
    assert len(outcome.failed) == 2
    monkeypatch.setenv("STUB_FAIL", "nothing")
    results, outcome = run_stub(asked)
    assert not outcome.failed
    assert {score(c, results).status for c in asked.tables[0].cells} == {measured.DONE}


def test_a_failed_seed_among_others_is_counted_and_explained(
    run_stub: RunStub, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = plan(["linear-evaluation"], Request(("cifar10",), ("conv4",), ("relational",), (1, 2, 3)))
    monkeypatch.setenv("STUB_FAIL", "3")  # `--seed 3`
    results, _ = run_stub(asked)
    actual = score(asked.tables[0].cells[0], results)
    assert (actual.status, actual.n, actual.of, actual.failed) == (measured.PARTIAL, 2, 3, 1)
    assert actual.text.endswith("(n = 2 of 3, 1 failed)")
    assert "something went wrong here" in actual.reason


def test_a_difference_pairs_its_seeds(results_of: Callable[..., Results]) -> None:
    asked = plan(["fig-depth"], Request(("cifar10",), methods=("relational",), seeds=(1, 2, 3)))
    results = results_of(asked, lambda e: 10.0**e.run.seed + 5.0 * (e.run.backbone == "resnet32"))
    cell = asked.tables[0].cells[0]
    assert score(cell, results).mean == pytest.approx(5.0)
    for evaluation in (cell.evaluations[0], cell.minus[1]):  # seed 1 lacks one side, seed 2 the other
        (results.run_dir(evaluation.run) / "evaluations" / evaluation.file).unlink()
    actual = score(cell, results)
    assert (actual.mean, actual.n, actual.of, actual.status) == (pytest.approx(5.0), 1, 3, measured.PARTIAL)
    (results.run_dir(cell.minus[2].run) / "evaluations" / cell.minus[2].file).unlink()
    assert score(cell, results).text == "missing"


def test_a_result_of_another_protocol_is_not_the_cell_s_and_is_made_again(run_stub: RunStub, trace: Path) -> None:
    asked = plan(["linear-evaluation"], Request(("cifar10",), ("conv4",), ("relational",), (1,)))
    results, _ = run_stub(asked)
    path = results.run_dir(asked.runs[0]) / "evaluations" / asked.evaluations[0].file
    document = json.loads(path.read_text())
    logistic = {**document, "settings": {**document["settings"], "solver": "logistic", "epochs": None}}
    path.write_text(json.dumps(logistic))
    assert score(asked.tables[0].cells[0], results).status == measured.MISSING
    assert results.source(asked.evaluations[0]) is None
    trace.write_text("")
    run_stub(asked)
    assert [line.split()[0] for line in trace.read_text().splitlines()] == ["evaluate"]
    assert json.loads(path.read_text()) == document


def test_an_unreadable_result_is_missing_and_the_other_seeds_count(run_stub: RunStub) -> None:
    asked = plan(["domain-transfer"], Request(("cifar10",), ("conv4",), ("relational",), (1, 2)))
    broken = asked.evaluations[1]
    results, _ = run_stub(asked)
    (results.run_dir(broken.run) / "evaluations" / broken.file).write_text("{half a fi")
    cell = asked.tables[0].cells[0]
    partial = score(cell, results)
    assert (partial.status, partial.n, partial.of, partial.std) == (measured.PARTIAL, 1, 2, None)
    assert "(n = 1 of 2)" in partial.text
    assert missing(asked, results) == [(broken.run, [broken])]


def test_a_result_of_other_epochs_is_not_that_result(run_stub: RunStub) -> None:
    asked = plan(["linear-evaluation"], Request(("cifar10",), ("conv4",), ("relational",), (1,)))
    results, _ = run_stub(asked)
    evaluation = asked.evaluations[0]
    path = results.run_dir(evaluation.run) / "evaluations" / evaluation.file
    document = json.loads(path.read_text())
    path.write_text(json.dumps({**document, "settings": {"epochs": 20}}))
    assert results.result(evaluation) is None


def grid_process(out: Path, jobs: int = 1) -> subprocess.Popen[bytes]:
    """A grid of two runs in a process of its own, slow enough to be stopped in the middle."""
    code = (
        "import sys; from relatum.errors import Interrupted, RelatumError\n"
        "from relatum.paper.reproduce import reproduce\n"
        "try:\n"
        f"    sys.exit(reproduce(['linear-evaluation'], datasets=['cifar10'], backbones=['conv4'],"
        f" methods=['relational'], seeds=[1, 2], out={str(out)!r}, ledger=(), command={STUB!r}, as_json=True,"
        f" jobs={jobs}))\n"
        "except (Interrupted, RelatumError) as error:\n"
        "    print(error, file=sys.stderr); sys.exit(error.exit_code)\n"
    )
    env = {**os.environ, "STUB_SLEEP": "1.0"}
    return subprocess.Popen([sys.executable, "-c", code], env=env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)


def steps(out: Path) -> list[list[int]]:
    paths = sorted(out.glob("runs/*/metrics.jsonl"), key=lambda p: p.parent.name)
    return [[json.loads(line)["step"] for line in p.read_text().splitlines()] for p in paths]


@pytest.mark.skipif(sys.platform != "linux", reason="the command of a killed grid is ended by Linux")
def test_a_killed_grid_resumes_and_nothing_runs_twice(tmp_path: Path, trace: Path) -> None:
    out = tmp_path / "out"
    first = grid_process(out)
    wait_for(lambda: len(steps(out)) == 2 and len(steps(out)[1]) > 3)  # the first run is done, the second is at work
    first.kill()
    first.communicate()
    before = trace.read_text().splitlines()
    done = {p: p.read_bytes() for p in out.glob("runs/*-s1-*/**/*.json")}
    again = grid_process(out)
    printed, _ = again.communicate(timeout=30)
    assert again.returncode == 0
    assert json.loads(printed)["complete"] is True
    assert steps(out) == [list(range(1, 52))] * 2  # no step missing, none made twice
    new = trace.read_text().splitlines()[len(before) :]
    assert [line.split()[0] for line in new] == ["pretrain", "evaluate"]
    assert all("-s2-" in line for line in new)
    assert done == {p: p.read_bytes() for p in done}


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGUSR1, 138)]
)
def test_a_signal_reaches_the_command_which_saves(tmp_path: Path, trace: Path, number: int, code: int) -> None:
    out = tmp_path / "out"
    process = grid_process(out)
    wait_for(lambda: bool(steps(out)) and len(steps(out)[0]) > 3)
    process.send_signal(number)
    process.communicate(timeout=20)
    assert process.returncode == code
    assert len(steps(out)[0]) < 51
    assert not list(out.glob("runs/*/backbone.safetensors"))
    record = json.loads(next(out.glob("logs/*.jsonl")).read_text())
    assert record["returncode"] == code  # the stub's own exit code after a clean save
    cell = plan(["linear-evaluation"], SMALL).tables[0].cells[0]
    assert score(cell, Results(out)).status == measured.MISSING  # not failed
    assert len(trace.read_text().splitlines()) == 1  # nothing was started after the signal


def test_runs_side_by_side_share_the_cores_and_a_signal_reaches_all(tmp_path: Path, trace: Path) -> None:
    out = tmp_path / "out"
    process = grid_process(out, jobs=2)
    wait_for(lambda: len(steps(out)) == 2 and all(len(logged) > 3 for logged in steps(out)))  # both are at work
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=20)
    assert process.returncode == 143
    assert all(len(logged) < 51 for logged in steps(out))
    again = grid_process(out, jobs=2)
    again.communicate(timeout=30)
    assert again.returncode == 0
    assert steps(out) == [list(range(1, 52))] * 2  # no step missing, none made twice
    assert len(list(out.glob("ledger/*.json"))) == 2
    with pytest.raises(InputError, match="jobs=0"):
        reproduce(["linear-evaluation"], jobs=0)


@pytest.mark.parametrize(("jobs", "threads"), [(1, None), (3, max(1, available_cpus() // 3))])
def test_jobs_get_their_share_of_the_cores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, jobs: int, threads: int | None
) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    code = "import os, sys; print('error:', os.environ.get('OMP_NUM_THREADS')); sys.exit(1)"
    outcome = execute(
        plan(["linear-evaluation"], SMALL), Results(tmp_path), command=(sys.executable, "-c", code), jobs=jobs
    )
    assert set(outcome.failed.values()) == {f"error: {threads}"}


def test_one_grid_at_a_time_in_a_folder(tmp_path: Path, trace: Path) -> None:
    out = tmp_path / "out"
    process = grid_process(out)
    try:
        wait_for(lambda: bool(steps(out)))
        asked = plan(["linear-evaluation"], SMALL)
        with pytest.raises(InputError, match=f"another .relatum reproduce. is running in .*process {process.pid} on"):
            execute(asked, Results(out), command=STUB)
    finally:
        process.terminate()
        process.communicate()


def test_interruption_names_what_was_stopped(tmp_path: Path, trace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STUB_SLEEP", "1.0")
    out = tmp_path / "out"
    asked = plan(["linear-evaluation"], Request(("cifar10",), ("conv4",), ("relational",), (1,)))
    killer = subprocess.Popen(
        [sys.executable, "-c", f"import os, time; time.sleep(0.6); os.kill({os.getpid()}, {int(signal.SIGTERM)})"]
    )
    with pytest.raises(Interrupted, match="stopped during relational-cifar10") as caught:
        execute(asked, Results(out), command=STUB)
    killer.wait()
    assert caught.value.exit_code == 143


def test_a_command_that_cannot_start_is_a_failure_not_a_crash(tmp_path: Path) -> None:
    asked = plan(["linear-evaluation"], Request(("cifar10",), ("conv4",), ("relational",), (1,)))
    results = Results(tmp_path)
    outcome = execute(asked, results, command=(str(tmp_path / "no-such-program"),))
    assert "cannot start" in next(iter(outcome.failed.values()))
    assert score(asked.tables[0].cells[0], results).status == measured.FAILED


def test_weights_of_the_ledger_do_not_take_the_place_of_a_score_that_only_training_writes(
    run_stub: RunStub, tmp_path: Path, trace: Path
) -> None:
    """They were unpacked, also over trained ones, and the missing score was then reported as a failure."""
    asked = plan(["linear-evaluation"], Request(("cifar10",), ("conv4",), ("supervised",), (1,)))
    results, _ = run_stub(asked)
    path = results.out / "ledger" / f"{asked.runs[0].id}.json"
    without = {**json.loads(path.read_text()), "evaluations": []}
    write_json(path, with_checksum(without))
    assert path.with_suffix(".safetensors").exists()
    trace.write_text("")
    again = Results(tmp_path / "again", [path.parent])
    assert not execute(asked, again, command=STUB).failed
    assert [line.split()[0] for line in trace.read_text().splitlines()] == ["pretrain"]
    assert score(asked.tables[0].cells[0], again).status == measured.DONE


def test_a_run_whose_files_were_changed_stops_no_other_job(run_stub: RunStub, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first one ended the command: the other runs did not start, and no table was written."""
    asked = plan(["linear-evaluation"], Request(("cifar10",), ("conv4",), ("relational",), (1, 2)))
    real = ledger.collect

    def collect(run: Path, commands: list[str]) -> dict[str, object]:
        if run.name == asked.runs[0].id:
            raise InputError("recipe.toml was changed after the run started")
        return real(run, commands)

    monkeypatch.setattr(ledger, "collect", collect)
    results, outcome = run_stub(asked)
    assert outcome.failed == {asked.runs[0].id: "recipe.toml was changed after the run started"}
    assert results.trained(asked.runs[1])
    assert (results.out / "ledger" / f"{asked.runs[1].id}.json").exists()
