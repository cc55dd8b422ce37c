"""Mutates good inputs and gives them to a reader: anything but success or an error of ours is a failure.

Each input has a bound on memory (1.5 GiB above what the process had) and time (20 s). The same seed gives the same
inputs. A failing input is written to a file, and the run ends with exit code 1.
"""

from __future__ import annotations

import argparse
import faulthandler
import os
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from relatum.errors import RelatumError

MEMORY = 3 << 29
SECONDS = 20.0
_NUMBERS = [b"\0\0\0\0", b"\xff\xff\xff\xff", b"\xff\xff\xff\x7f", b"\x80\0\0\0", b"\x7f\xff\xff\xff", b"999999999999"]


class Slow(BaseException):
    """An input took too long."""


def mutate(content: bytes, others: Sequence[bytes], rng: np.random.Generator) -> bytes:
    """Up to five small changes to an input."""
    data = bytearray(content)
    for _ in range(int(rng.integers(1, 6))):
        place = int(rng.integers(0, len(data) + 1))
        length = int(min(2 ** rng.integers(0, 11), len(data)))
        kind = rng.integers(0, 9)
        if kind == 0 and data:
            data[place % len(data)] ^= 1 << int(rng.integers(0, 8))
        elif kind == 1 and data:
            data[place % len(data)] = int(rng.integers(0, 256))
        elif kind == 2:
            number = _NUMBERS[int(rng.integers(0, len(_NUMBERS)))]
            data[place : place + len(number)] = number
        elif kind == 3:
            del data[place : place + length]
        elif kind == 4:
            data[place:place] = data[place : place + length]
        elif kind == 5:
            del data[place:]
        elif kind == 6:
            other = others[int(rng.integers(0, len(others)))]
            start = int(rng.integers(0, len(other) + 1))
            data[place : place + length] = other[start : start + length]
        elif kind == 7:
            data[place:place] = rng.bytes(int(rng.integers(1, 16)))
        else:
            data[place:place] = data[place : place + 8] * int(rng.integers(2, 60))
    return bytes(data)


def fuzz(name: str, seeds: Sequence[bytes], attempt: Callable[[bytes, int, Path], None]) -> None:
    """Try mutated inputs until the time is over.

    Args:
        name: of the fuzzer.
        seeds: good inputs.
        attempt: reads an input, of which it gets the number of its seed and an empty folder to work in.
    """
    parser = argparse.ArgumentParser(description=f"fuzz the reader: {name}")
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    work = Path(tempfile.mkdtemp(prefix=f"fuzz-{name}-"))
    os.environ["RELATUM_CACHE"] = str(work / "cache")
    for number, content in enumerate(seeds):  # a good input must be read without an error
        _run(attempt, content, number, work)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, used + MEMORY))
    rng = np.random.default_rng(options.seed)
    tried = refused = 0
    end = time.monotonic() + 60 * options.minutes
    while time.monotonic() < end:
        number = int(rng.integers(0, len(seeds)))
        content = mutate(seeds[number], seeds, rng)
        tried += 1
        try:
            _run(attempt, content, number, work)
        except RelatumError:
            refused += 1
        except (Exception, Slow):
            place = work / f"input-{options.seed}-{tried}-of-seed-{number}"
            place.write_bytes(content)
            traceback.print_exc()
            print(f"{name}: input {tried} failed; it is in {place}")
            sys.exit(1)
    shutil.rmtree(work)
    print(f"{name}: {tried:,} inputs, {refused:,} refused, no failure")


def _run(attempt: Callable[[bytes, int, Path], None], content: bytes, number: int, work: Path) -> None:
    def stop(signum: int, frame: object) -> None:
        raise Slow(f"more than {SECONDS:.0f} s")

    folder = work / "input"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    faulthandler.dump_traceback_later(3 * SECONDS, exit=True)  # where the signal cannot interrupt
    try:
        attempt(content, number, folder)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        faulthandler.cancel_dump_traceback_later()
