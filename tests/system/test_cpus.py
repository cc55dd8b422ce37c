"""The number of cores."""

import os
import subprocess
import sys

import pytest

from relatum.system.cpus import available_cpus

CODE = "import os; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))}); "
CODE += "from relatum.system.cpus import available_cpus; print(available_cpus())"


def test_at_least_one_and_at_most_all_cores():
    assert 1 <= available_cpus() <= (os.cpu_count() or 1)


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="needs CPU affinity")
def test_only_cores_that_the_process_may_use_are_counted():
    run = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True)
    assert run.stdout == "1\n"
