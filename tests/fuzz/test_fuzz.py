"""Each fuzzer for about a second; `python tests/fuzz/fuzz_NAME.py --minutes 10` runs one for longer."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

FUZZERS = sorted(Path(__file__).parent.glob("fuzz_*.py"))


@pytest.mark.parametrize("fuzzer", FUZZERS, ids=lambda path: path.stem)
def test_a_short_run(fuzzer: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(fuzzer), "--minutes", "0.02"], capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "no failure" in done.stdout
