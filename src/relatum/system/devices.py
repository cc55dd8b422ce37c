"""The device to compute on. torch is imported inside."""

from __future__ import annotations

from relatum.errors import InputError, unknown

DEVICES = ("cuda", "mps", "cpu")  # in the order in which `auto` prefers them


def find_device(name: str = "auto") -> str:
    """The device to compute on.

    Args:
        name: `cuda`, `mps` or `cpu` (a number may follow, as in `cuda:1`); `auto` is the first one available.

    Raises:
        InputError: the device does not exist or is not available on this machine.
    """
    import torch

    available = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    usable = [device for device in DEVICES if available[device]]
    if name == "auto":
        return usable[0]
    kind = name.partition(":")[0]
    if kind not in DEVICES:
        raise unknown("device", name, ("auto", *DEVICES))
    if kind not in usable:
        raise InputError(f"--device {name} is not available here; available: {', '.join(usable)}.")
    return name
