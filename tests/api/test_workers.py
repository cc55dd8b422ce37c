"""The processes that `devices=N` starts."""

from __future__ import annotations

import subprocess
import sys
import threading
from typing import Any

import pytest

from relatum.api import workers
from relatum.system.team import Team


def test_processes_that_wait_for_one_that_failed_do_not_delay_its_error(monkeypatch: pytest.MonkeyPatch) -> None:
    children = []

    def start(rank: int, size: int, port: int, message: bytes) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-c", "import time; time.sleep(300)"]
        children.append(subprocess.Popen(command, stdin=subprocess.PIPE))
        return children[-1]

    def connect(*arguments: Any) -> None:
        raise ValueError("the first process failed")

    def train() -> None:
        with pytest.raises(ValueError, match="failed"), workers.team(None, 2, "cpu", {}):
            pass

    monkeypatch.setattr(workers, "_start", start)
    monkeypatch.setattr(workers, "_FAILED_SECONDS", 0)
    monkeypatch.setattr(Team, "connect", connect)
    thread = threading.Thread(target=train, daemon=True)
    thread.start()
    thread.join(30)
    alive = thread.is_alive()
    for child in children:
        child.kill()
        child.wait()
    assert not alive
    assert len(children) == 1
