"""The compiled views: output buffers, memory maps, bad input and threads. `test_parity` compares the pixels."""

import threading

import numpy as np
import pytest
import torch

from relatum.errors import InputError
from relatum.views import POLICIES, compiled, make_views, sample

MEAN, STD = (0.491, 0.482, 0.447), (0.247, 0.243, 0.262)


def batch(views=300, height=32, width=32, side=32, seed=0):
    images = np.random.default_rng(seed).integers(0, 256, (10, height, width, 3), dtype=np.uint8)
    params = sample(
        POLICIES["relational"],
        seed=seed, epoch=0, indices=np.arange(views), views=1, height=height, width=width, pad=4, side=side,
    )  # fmt: skip
    return images, np.arange(views) % 10, params


@pytest.mark.parametrize("channels_last", [True, False])
def test_the_layout_is_the_one_that_was_asked_for_and_aligned(channels_last):
    images, sources, params = batch()
    views = make_views(images, sources, params, side=32, mean=MEAN, std=STD, channels_last=channels_last)
    assert torch.equal(views, make_views(images, sources, params, side=32, mean=MEAN, std=STD))
    assert views.is_contiguous(memory_format=torch.channels_last if channels_last else torch.contiguous_format)
    assert views.data_ptr() % 64 == 0


def test_a_read_only_memory_map_works(tmp_path):
    images, sources, params = batch()
    images.tofile(tmp_path / "images")
    mapped = np.memmap(tmp_path / "images", np.uint8, "r", shape=images.shape)
    expected = compiled.make_views(images, sources, params, 32, MEAN, STD)
    assert np.array_equal(compiled.make_views(mapped, sources, params, 32, MEAN, STD), expected)


def test_nothing_is_read_behind_the_last_image(tmp_path):
    """A map whose end is the end of a page: reading on would be a bus error."""
    images, _, params = batch(views=64, height=64, width=64)  # 12,288 bytes an image: whole pages
    images.tofile(tmp_path / "images")
    mapped = np.memmap(tmp_path / "images", np.uint8, "r", shape=images.shape)
    last = np.full(64, len(images) - 1)
    assert np.isfinite(compiled.make_views(mapped, last, params, 32, MEAN, STD)).all()


def test_bad_images_and_sources_are_refused():
    images, sources, params = batch(views=4)
    with pytest.raises(InputError, match="uint8"):
        compiled.make_views(images.astype(np.float32), sources, params, 32, MEAN, STD)
    with pytest.raises(InputError, match="shape"):
        compiled.make_views(images[..., 0], sources, params, 32, MEAN, STD)
    with pytest.raises(IndexError, match="sources"):
        compiled.make_views(images, sources + 7, params, 32, MEAN, STD)
    with pytest.raises(ValueError, match="3 sources for 4 rows"):
        compiled.make_views(images, sources[:3], params, 32, MEAN, STD)


def test_no_views():
    images, sources, params = batch(views=4)
    assert compiled.make_views(images, sources[:0], params.rows(slice(0, 0)), 32, MEAN, STD).shape == (0, 3, 32, 32)


def hammer(rounds):
    """Two threads make views while a third runs torch operations; returns whether every result had the same bits."""
    cases = [batch(views=500, seed=s) for s in range(2)]
    alone = [compiled.make_views(*case, 32, MEAN, STD, threads=1) for case in cases]
    right, stop = [True, True], threading.Event()

    def make(number):
        for _ in range(rounds):
            views = compiled.make_views(*cases[number], 32, MEAN, STD, threads=2)
            right[number] &= bool(np.array_equal(views, alone[number]))

    def busy():
        a = torch.rand(128, 128)
        while not stop.is_set():
            a = (a @ a).softmax(1)

    makers = [threading.Thread(target=make, args=(n,)) for n in range(2)]
    other = threading.Thread(target=busy)
    for thread in (*makers, other):
        thread.start()
    for thread in makers:
        thread.join()
    stop.set()
    other.join()
    return all(right)


def test_threads_do_not_disturb_each_other():
    assert hammer(rounds=20)


@pytest.mark.slow
def test_threads_do_not_disturb_each_other_for_a_thousand_steps():
    assert hammer(rounds=1000)
