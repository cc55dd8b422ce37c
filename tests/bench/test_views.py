"""The benchmark runs and reports what the contract names. No test depends on how fast this machine is."""

import json
import random

import numpy as np
import torch

from relatum.bench.plain import PillowChain, PlainViews, random_box
from relatum.bench.views import measure
from relatum.views import POLICIES, make_views, sample


def smooth_images(count, side):
    """Random images: sums of a few waves."""
    generator = np.random.default_rng(0)
    y, x = np.mgrid[:side, :side] / side
    waves = generator.uniform(1, 9, (count, 2, 1, 1, 3))
    return (127.5 + 127.5 * np.sin(waves[:, 0] * y[..., None] + waves[:, 1] * x[..., None])).astype(np.uint8)


def test_measure_reports_the_contracts_fields():
    result = measure(smooth_images(8, 16), views=2, batch_size=3, side=16, repeats=2, plain_views=4)
    fields = ("what", "method", "views", "batch_size", "side", "backbone", "ours_seconds", "plain_seconds", "speedup")
    assert set(fields) <= set(result)
    assert result["what"] == "views"
    assert result["speedup"] == result["plain_seconds"] / result["ours_seconds"]
    assert result["spread"]["ours"]["min"] <= result["ours_seconds"] <= result["spread"]["ours"]["max"]
    json.dumps(result)


def test_the_plain_chain_makes_the_same_kind_of_views():
    """Both sides of the benchmark do the same work: first and second moments agree over many views."""
    random.seed(0)
    images = smooth_images(50, 32)
    chain = PillowChain(32, (0.5,) * 3, (0.25,) * 3)
    plain = torch.stack([chain(images[n % 50]) for n in range(1500)])
    indices = np.arange(50)
    params = sample(
        POLICIES["relational"], seed=0, epoch=0, indices=indices, views=30, height=32, width=32, pad=0, side=32
    )
    ours = make_views(images, np.tile(indices, 30), params, side=32, mean=(0.5,) * 3, std=(0.25,) * 3)
    assert plain.shape == ours.shape
    # 1,500 views each; the standard error of the mean of a view's mean is about 0.02.
    assert abs(plain.mean() - ours.mean()) < 0.1
    assert abs(plain.std() - ours.std()) < 0.1


def test_plain_views_is_a_dataset_of_k_views():
    dataset = PlainViews(smooth_images(3, 24), 4, PillowChain(24, (0.5,) * 3, (0.25,) * 3))
    assert len(dataset) == 3
    assert dataset[1].shape == (4, 3, 24, 24)


def test_random_box_lies_within_the_image():
    random.seed(1)
    for width, height in ((32, 32), (8, 100)):
        for _ in range(200):
            x, y, w, h = random_box(width, height)
            assert 0 <= x <= width - w
            assert 0 <= y <= height - h
