"""Runs `relatum` commands in processes that start at once and can be killed: the imports are done before."""

from __future__ import annotations

import multiprocessing
import os
import sys
from multiprocessing.process import BaseProcess
from pathlib import Path

_MODULES = ["relatum.cli.app", "relatum.training.run", "relatum.objectives", "relatum.training.health", "killing"]


def start(arguments: list[str], log: Path) -> BaseProcess:
    """`relatum ARGUMENTS` in a new process; its output is appended to `log`."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(_MODULES)
    process = context.Process(target=_main, args=(arguments, str(log), dict(os.environ)))
    process.start()
    return process


def _main(arguments: list[str], log: str, environment: dict[str, str]) -> None:
    os.environ.update(environment)
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(output, 1)
    os.dup2(output, 2)
    sys.argv = ["relatum", *arguments]
    from relatum.cli import main

    main(arguments)
