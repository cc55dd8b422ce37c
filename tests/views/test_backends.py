"""Which backend serves, and that nothing heavy is imported before one is needed."""

import subprocess
import sys

import numpy as np
import pytest
import torch

import relatum.views as views
from relatum.errors import InputError
from relatum.kernels import numba_available
from relatum.registry import KERNELS


def arguments():
    images = np.random.default_rng(0).integers(0, 256, (3, 32, 32, 3), dtype=np.uint8)
    params = views.sample(
        views.POLICIES["relational"],
        seed=0,
        epoch=0,
        indices=np.arange(3),
        views=1,
        height=32,
        width=32,
        pad=4,
        side=32,
    )
    return images, np.arange(3), params, {"side": 32, "mean": (0.5,) * 3, "std": (0.25,) * 3}


def test_importing_views_imports_neither_numba_nor_torch():
    code = "import sys, relatum.views; print([m for m in ('numba', 'torch') if m in sys.modules])"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


@pytest.mark.parametrize("backend", KERNELS)
@pytest.mark.parametrize("channels_last", [True, False])
def test_backends_agree(backend, channels_last):
    images, sources, params, rest = arguments()
    result = views.make_views(images, sources, params, **rest, backend=backend, channels_last=channels_last)
    layout = torch.channels_last if channels_last else torch.contiguous_format
    assert result.is_contiguous(memory_format=layout)
    assert result.dtype == torch.float32
    expected = views.make_views(images, sources, params, **rest, backend="reference")
    assert (result - expected).abs().max() < 1 / 255 / 0.25
    from_tensor = views.make_views(torch.from_numpy(images), torch.from_numpy(sources), params, **rest, backend=backend)
    assert torch.allclose(from_tensor, result, atol=1e-5)


def test_an_unknown_backend_is_refused():
    images, sources, params, rest = arguments()
    with pytest.raises(InputError, match="did you mean 'numba'"):
        views.make_views(images, sources, params, **rest, backend="number")


def test_without_numba_torch_is_used_with_one_warning(monkeypatch):
    images, sources, params, rest = arguments()
    expected = views.make_views(images, sources, params, **rest, backend="torch")
    monkeypatch.setitem(sys.modules, "numba", None)
    numba_available.cache_clear()
    try:
        with pytest.warns(UserWarning, match="numba cannot be imported"):
            first = views.make_views(images, sources, params, **rest)
        again = views.make_views(images, sources, params, **rest)  # a second warning would be an error
        assert views.backend_for("cpu") == "torch"
    finally:
        numba_available.cache_clear()
    assert torch.equal(first, expected)
    assert torch.equal(again, expected)


def test_auto_is_numba_on_a_cpu_and_torch_elsewhere():
    assert views.backend_for("cpu") == "numba"
    assert views.backend_for("cuda") == "torch"
