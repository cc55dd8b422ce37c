"""Freed memory is kept: a loop that allocates and frees large tensors stops causing page faults."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

LOOP = """
import resource, sys, torch
if sys.argv[1] == "keep":
    from relatum.system.allocator import keep_freed_memory
    assert keep_freed_memory()
for step in range(20):
    if step == 16:  # the heap has found its size by the tenth step or so
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    kept = [torch.ones(2**23 + 2**21) for _ in range(2)]  # 40 MiB each
    del kept
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="glibc's allocator")
def test_large_blocks_are_reused() -> None:
    def faults(how: str) -> int:
        return int(subprocess.run([sys.executable, "-c", LOOP, how], check=True, capture_output=True, text=True).stdout)

    assert faults("keep") * 10 < faults("default")
