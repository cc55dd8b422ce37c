"""Provenance of a result: version, commit, machine, threads, libraries. No host names, no user names, no paths."""

from __future__ import annotations

import importlib.metadata
import platform
import subprocess
from functools import lru_cache
from pathlib import Path
from typing import Any

from relatum.system.cpus import available_cpus
from relatum.version import __version__

_LIBRARIES = ("torch", "numpy", "numba", "scikit-learn", "pillow", "safetensors", "lightning-fabric")


@lru_cache(maxsize=1)
def commit() -> str | None:
    """The git commit of the checkout that contains this code, or None if there is none (an installed wheel)."""
    package = Path(__file__).resolve().parents[1]
    top = _git(package, "rev-parse", "--show-toplevel")
    # Only relatum's repository counts: a wheel in the `.venv` of another project is inside that project's checkout.
    if top is None or Path(top).resolve() / "src" / "relatum" != package:
        return None
    return _git(package, "rev-parse", "HEAD")


@lru_cache(maxsize=1)
def machine() -> dict[str, Any]:
    """The processor's model, the cores this process may use, the system and, where there is one, the GPU."""
    facts: dict[str, Any] = {
        "cpu": _cpu_model(),
        "cores": available_cpus(),
        "system": f"{platform.system()} {platform.machine()}",
    }
    import torch

    if torch.cuda.is_available():
        facts["gpu"] = torch.cuda.get_device_name(0)
    return facts


def threads() -> int:
    """The CPU threads that torch uses now."""
    import torch

    return torch.get_num_threads()


@lru_cache(maxsize=1)
def versions() -> dict[str, str]:
    """Versions of Python and of the libraries that affect the bits of a result."""
    installed = {"python": platform.python_version()}
    for name in _LIBRARIES:
        version = _installed(name)
        if version is not None:
            installed[name] = version
    return installed


def record() -> dict[str, Any]:
    """All of the above as one table, as run and result files contain it."""
    return {
        "version": __version__,
        "commit": commit(),
        "machine": machine(),
        "threads": threads(),
        "versions": versions(),
    }


def _installed(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _git(folder: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *arguments], capture_output=True, text=True, timeout=10, check=False
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip() or None if done.returncode == 0 else None


def _cpu_model() -> str:
    """The processor's marketing name: `platform.processor()` is empty or only the architecture on Linux."""
    try:
        for line in Path("/proc/cpuinfo").read_text("utf-8").splitlines():
            if line.lower().startswith(("model name", "hardware")):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine() or "unknown"
