"""The caller's settings of torch and scikit-learn change no result, and are as before afterwards."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import numpy as np
import pytest
import sklearn
import torch

import relatum
from relatum.system.torch_state import usual_torch_state
from relatum.views import Views

PIXELS = np.random.default_rng(0).integers(0, 256, (8, 16, 16, 3), dtype=np.uint8)


@contextmanager
def default_dtype(dtype: torch.dtype) -> Iterator[None]:
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(torch.float32)


@contextmanager
def default_device(name: str) -> Iterator[None]:
    torch.set_default_device(name)
    try:
        yield
    finally:
        torch.set_default_device(None)


STATES: dict[str, Callable[[], AbstractContextManager[object]]] = {
    "float64": lambda: default_dtype(torch.float64),
    "bfloat16": lambda: default_dtype(torch.bfloat16),
    "device": lambda: default_device("meta"),  # as `cuda`, which a machine without a GPU lacks
    "no_grad": torch.no_grad,
    "inference_mode": torch.inference_mode,
    "autocast": lambda: torch.autocast("cpu", torch.bfloat16),
}


def state() -> tuple[object, ...]:
    autocast = torch.is_autocast_enabled("cpu")
    modes = torch.is_grad_enabled(), torch.is_inference_mode_enabled()
    return torch.get_default_dtype(), torch.get_default_device(), autocast, *modes, torch.get_num_threads()


def train(out: Path) -> Path:
    relatum.pretrain(PIXELS, out=out, views=2, epochs=1, batch_size=4, threads=1, backbone="conv4", quiet=True)
    return out


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train(tmp_path_factory.mktemp("run"))


@pytest.mark.parametrize("name", STATES)
def test_training_and_representations_do_not_depend_on_the_callers_state(name: str, run: Path, tmp_path: Path) -> None:
    expected = relatum.embed(run, PIXELS, progress=False)
    with STATES[name]():
        before = state()
        z = relatum.embed(run, PIXELS, progress=False)
        again = train(tmp_path / "run")
        weights = [(p.dtype, str(p.device), p.is_inference()) for p in relatum.load_backbone(run).parameters()]
        assert state() == before
    assert z.tobytes() == expected.tobytes()
    assert set(weights) == {(torch.float32, "cpu", False)}
    backbones = [(folder / "backbone.safetensors").read_bytes() for folder in (run, again)]
    assert backbones[0] == backbones[1]


def test_the_state_is_restored_after_an_error() -> None:
    @usual_torch_state
    def fail() -> None:
        assert torch.get_default_dtype() == torch.float32
        raise KeyError

    with default_dtype(torch.float64), torch.no_grad():
        with pytest.raises(KeyError):
            fail()
        assert torch.get_default_dtype() == torch.float64
        assert not torch.is_grad_enabled()


def test_the_default_type_stays_float32_until_the_last_thread_has_left() -> None:
    entered, leave = threading.Event(), threading.Event()
    seen = []

    @usual_torch_state
    def first() -> None:
        entered.set()
        leave.wait(10)
        seen.append(torch.get_default_dtype())

    @usual_torch_state
    def second() -> None:
        seen.append(torch.get_default_dtype())

    with default_dtype(torch.float64):
        thread = threading.Thread(target=first)
        thread.start()
        entered.wait(10)
        second()
        leave.set()
        thread.join()
        assert torch.get_default_dtype() == torch.float64
    assert seen == [torch.float32, torch.float32]


@pytest.mark.parametrize("backend", ["numba", "torch"])
def test_views_of_arrays_under_another_default_device(backend: str) -> None:
    views = Views(number=2, backend=backend)
    torch.manual_seed(5)
    expected = views(PIXELS)
    with default_device("meta"):
        torch.manual_seed(5)
        assert views(PIXELS).equal(expected)


def test_maps_where_scikit_learn_gives_data_frames() -> None:
    from relatum.collection.maps import _tsne as map_of_collection
    from relatum.evaluation.tsne import _sklearn as map_of_evaluation

    z = np.random.default_rng(0).normal(size=(12, 4)).astype(np.float32)
    with sklearn.config_context(transform_output="pandas"):  # which need not be installed
        assert map_of_collection(z, 1).shape == (12, 2)
        assert map_of_evaluation(z, 250, 3.0, 10.0, 1, lambda *_: None)[0].shape == (12, 2)
