"""N processes compute what one computes: loss, gradients, metrics and running statistics of every method."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
import torch
from exact import METHODS, step
from processes import Processes

Start = Callable[[int], Processes]


@pytest.fixture(scope="module")
def start() -> Iterator[Start]:
    """Gives connected processes, which are started once for all tests: their imports take longer than a step."""
    running: dict[int, Processes] = {}
    with ExitStack() as stack:

        def get(size: int) -> Processes:
            if size not in running:
                running[size] = stack.enter_context(Processes(size))
            return running[size]

        yield get


def compare(
    processes: Processes,
    images: int,
    backbone: str,
    dtype: torch.dtype,
    tolerance: float,
    name: str,
    seed: int = 8,
) -> None:
    method, options = METHODS[name]
    alone = step(method, backbone, images, dtype, options, seed)
    for shared in processes.run(step, method, backbone, images, dtype, options, seed):
        assert shared["loss"] == pytest.approx(alone["loss"], rel=tolerance), name
        assert shared["metrics"] == pytest.approx(alone["metrics"], rel=1e-5, abs=1e-6), name
        assert shared["gradients"].keys() == alone["gradients"].keys()
        # Relative to the whole gradient: that of a bias before a batch-norm is nothing but rounding errors.
        scale = float(torch.stack([g.norm() for g in alone["gradients"].values()]).norm())
        errors = {key: float((shared["gradients"][key] - g).norm()) / scale for key, g in alone["gradients"].items()}
        assert sum(e**2 for e in errors.values()) ** 0.5 < tolerance, f"{name}: {errors}"
        if dtype == torch.float64:  # precise enough to ask it of every parameter
            for key, g in alone["gradients"].items():
                assert errors[key] * scale < tolerance * (float(g.norm()) + 1e-3 * scale), f"{name}: {key}"
        for key, value in alone["buffers"].items():
            torch.testing.assert_close(shared["buffers"][key], value, rtol=1e-5, atol=1e-6, msg=f"{name}: {key}")


@pytest.mark.parametrize("name", METHODS)
def test_two_processes_equal_one_in_float64(name: str, start: Start) -> None:
    compare(start(2), 7, "conv4", torch.float64, 1e-10, name)


@pytest.mark.slow
@pytest.mark.parametrize("backbone", ["conv4", "resnet8"])
@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize(("size", "images"), [(2, 8), (3, 7), (3, 2)])
def test_processes_equal_one_in_float32(name: str, backbone: str, size: int, images: int, start: Start) -> None:
    compare(start(size), images, backbone, torch.float32, 1e-5, name)
