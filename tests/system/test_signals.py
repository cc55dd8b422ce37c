"""Stop signals: collected or raised, at any place, and a second one ends the process at once."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from typing import Any

import pytest

from relatum.system import signals

ALL = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP)


@pytest.mark.parametrize("number", ALL)
def test_a_signal_is_raised_where_it_arrives_and_passes_except_exception(number: signal.Signals) -> None:
    before = signal.getsignal(number)

    def wait() -> None:
        with contextlib.suppress(Exception):
            os.kill(os.getpid(), number)
            time.sleep(5)

    with pytest.raises(signals.Stop) as caught, signals.raising():
        wait()
    assert caught.value.signum == number
    assert signal.getsignal(number) == before


@pytest.mark.parametrize("number", ALL)
def test_signals_are_collected(number: signal.Signals) -> None:
    with signals.collect() as received:
        os.kill(os.getpid(), number)
    assert received == [number]
    with signals.raising(), signals.collect("none") as received:
        os.kill(os.getpid(), signal.SIGUSR1)
        time.sleep(0.01)
    assert received == []
    with signals.raising(), signals.collect("SIGUSR2") as received:
        os.kill(os.getpid(), signal.SIGUSR2)
    assert received == [signal.SIGUSR2]
    assert signals.numbers("none") == [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]


def test_a_closed_terminal_sends_its_signal_twice_and_nohup_ignores_it() -> None:
    with signals.collect() as received:
        for _ in range(2):
            os.kill(os.getpid(), signal.SIGHUP)
            time.sleep(0.01)
    assert received == [signal.SIGHUP] * 2
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with signals.collect() as received:
            os.kill(os.getpid(), signal.SIGHUP)
            time.sleep(0.01)
        assert received == []
    finally:
        signal.signal(signal.SIGHUP, before)


PROGRAM = """
import sys, time
from relatum.system import signals
class Slow:
    def __del__(self):
        print("in destructor", flush=True); time.sleep(0.5)
with signals.{context}() as received:
    try:
        print("ready", flush=True)
        {body}
    except KeyboardInterrupt as stop:
        print("stopped", stop.signum, flush=True)
        time.sleep(20)
"""


def program(context: str, body: str) -> subprocess.Popen[str]:
    code = PROGRAM.format(context=context, body=body)
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


@pytest.mark.parametrize("context", ["raising", "collect"])
def test_a_second_signal_ends_the_process_at_once(context: str) -> None:
    process = program(context, "[time.sleep(0.05) for _ in range(400)]")
    process.send_signal(signal.SIGTERM)
    time.sleep(0.3)
    assert process.poll() is None
    process.send_signal(signal.SIGTERM)
    assert process.wait(5) == -signal.SIGTERM
    assert process.communicate()[1] == ""


def test_a_signal_inside_a_destructor_is_not_lost() -> None:
    process = program("raising", "s = Slow(); del s; [time.sleep(0.05) for _ in range(400)]")
    assert process.stdout is not None
    assert process.stdout.readline() == "in destructor\n"
    process.send_signal(signal.SIGTERM)
    assert process.stdout.readline() == f"stopped {signal.SIGTERM.value}\n"
    process.kill()
    assert "Traceback" not in process.communicate()[1]


def test_a_signal_while_torch_is_imported_waits_for_the_end_of_the_import() -> None:
    """An exception that passes through torch's C++ code aborts the process (exit code -6, `error_already_set`)."""
    program = compile(
        "import os, time\nos.kill(os.getpid(), 15)\ntime.sleep(0.1)\nfinished.append(True)", "fake", "exec"
    )
    finished: list[bool] = []

    def run() -> None:
        exec(program, {"__name__": "torch.fake", "finished": finished})
        time.sleep(5)

    with pytest.raises(signals.Stop), signals.raising():
        run()
    assert finished == [True]


def test_a_handler_that_python_did_not_install_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """`signal.signal` gives None for such a handler, and does not take it back."""
    real, calls = signal.signal, []

    def fake(number: int, handler: Any) -> Any:
        assert handler is not None
        calls.append(handler)
        before = real(number, handler)
        return None if len(calls) == 1 else before

    usual = signal.getsignal(signal.SIGUSR2)
    monkeypatch.setattr(signals.signal, "signal", fake)
    with signals.handle([signal.SIGUSR2], signal.SIG_IGN):
        pass
    monkeypatch.undo()
    real(signal.SIGUSR2, usual)
    assert calls == [signal.SIG_IGN]
