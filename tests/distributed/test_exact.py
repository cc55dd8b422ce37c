"""N processes compute what one computes: loss, gradients, metrics and running statistics of every method."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from exact import step
from processes import run_in_processes

METHODS: dict[str, tuple[str, dict[str, Any]]] = {
    "relational": ("relational", {}),
    "relational-random": ("relational", {"negatives": "random", "aggregation": "mean", "avoid_collisions": True}),
    "relational-max": ("relational", {"aggregation": "max"}),
    "relational-dot": ("relational", {"head": "dot"}),
    "relational-encoder": ("relational", {"head": "encoder"}),
    "simclr": ("simclr", {}),
    "rotation": ("rotation", {}),
    "deepcluster": ("deepcluster", {"class_weights": True}),
    "deepinfomax": ("deepinfomax", {"locations": 9}),
    "supervised": ("supervised", {}),
    "byol": ("byol", {}),
    "simsiam": ("simsiam", {}),
    "barlow": ("barlow", {}),
    "vicreg": ("vicreg", {}),
    "moco": ("moco", {"queue": 20}),
    "dino": ("dino", {}),
    "swav": ("swav", {}),
    "emp": ("emp", {}),
}


def compare(size: int, images: int, backbone: str, dtype: torch.dtype, tolerance: float, names: list[str]) -> None:
    for name in names:
        method, options = METHODS[name]
        alone = step(method, backbone, images, dtype, options)
        for shared in run_in_processes(size, step, method, backbone, images, dtype, options):
            assert shared["loss"] == pytest.approx(alone["loss"], rel=tolerance), name
            assert shared["metrics"] == pytest.approx(alone["metrics"], rel=1e-5, abs=1e-6), name
            assert shared["gradients"].keys() == alone["gradients"].keys()
            scale = max(float(g.abs().max()) for g in alone["gradients"].values())
            for key, gradient in alone["gradients"].items():
                error = float((shared["gradients"][key] - gradient).norm() / (gradient.norm() + 1e-3 * scale))
                assert error < tolerance, f"{name}: {key} differs by {error:.1e}"
            for key, value in alone["buffers"].items():
                torch.testing.assert_close(shared["buffers"][key], value, rtol=1e-5, atol=1e-6, msg=f"{name}: {key}")


@pytest.mark.parametrize("name", METHODS)
def test_two_processes_equal_one_in_float64(name: str) -> None:
    compare(2, 7, "conv4", torch.float64, 1e-10, [name])


@pytest.mark.slow
@pytest.mark.parametrize("backbone", ["conv4", "resnet8"])
@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize(("size", "images"), [(2, 8), (3, 7), (3, 2)])
def test_processes_equal_one_in_float32(name: str, backbone: str, size: int, images: int) -> None:
    compare(size, images, backbone, torch.float32, 1e-5, [name])
