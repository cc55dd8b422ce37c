"""Same parameters, same pixels: the fused kernel and the batched torch path against the reference, that against Pillow.

The bound of 1/255 before normalisation holds for every pixel of every policy, edges of affine maps and cutouts
included: all paths compute the same formula, so nothing is left out of the comparison.
"""

import dataclasses

import numpy as np
import pytest
import torch
from PIL import Image, ImageEnhance

from relatum.views import POLICIES, Policy, compiled, make_views, reference, sample, tensor

# Every link of the chain at once, which no named policy has: their order must agree too.
EVERYTHING = Policy(
    crop="resized", flip_p=0.5, affine_p=0.5, jitter_p=0.8, gray_p=0.2, turn="random", cutout_p=0.5, cutout_area=0.1
)
CHAINS = {**POLICIES, "everything": EVERYTHING, "padded everything": dataclasses.replace(EVERYTHING, crop="padded")}
# (H, W, side): the paper's, growing, shrinking, oblong, not multiples of sixteen, tiny.
SIZES = [(32, 32, 32), (24, 24, 40), (96, 96, 32), (40, 20, 32), (33, 47, 45), (50, 21, 19), (3, 5, 16), (1, 1, 4)]
ZERO, ONE = (0.0, 0.0, 0.0), (1.0, 1.0, 1.0)
BOUND = 1 / 255


def pictures(count, height, width, seed=0):
    """Half noise, half smooth: noise shows wrong taps, smooth images show wrong colours."""
    generator = np.random.default_rng(seed)
    noise = generator.integers(0, 256, (count, height, width, 3), dtype=np.uint8)
    y, x = np.mgrid[:height, :width] / max(height, width)
    waves = generator.uniform(1, 6, (count, 2, 1, 1, 3))
    smooth = 127.5 + 127.5 * np.sin(waves[:, 0] * y[..., None] + waves[:, 1] * x[..., None])
    return np.where(np.arange(count)[:, None, None, None] % 2 == 0, noise, smooth.astype(np.uint8))


def case(policy, size, views, seed=1):
    height, width, side = size
    images = pictures(6, height, width, seed)
    params = sample(
        policy, seed=seed, epoch=0, indices=np.arange(views), views=1, height=height, width=width, pad=4, side=side
    )
    return images, np.random.default_rng(seed).integers(0, 6, views), params, side


def worst(policy, size, views, seed=1):
    """Largest differences of both fast paths from the reference, before normalisation."""
    images, sources, params, side = case(policy, size, views, seed)
    # Cutout acts after normalisation: with mean 0 and std 1 it is the same pixels, set to zero.
    expected = reference.make_views(images, sources, params, side, ZERO, ONE)
    fused = compiled.make_views(images, sources, params, side, ZERO, ONE)
    batched = tensor.make_views(torch.from_numpy(images[sources]), None, params.to("cpu"), side, ZERO, ONE)
    return np.abs(fused - expected).max(), np.abs(batched.numpy() - expected).max()


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("name", CHAINS)
def test_fast_paths_equal_the_reference(name, size):
    assert max(worst(CHAINS[name], size, 24)) < BOUND


@pytest.mark.slow
@pytest.mark.parametrize("name", CHAINS)
def test_fast_paths_equal_the_reference_over_ten_thousand_draws(name):
    for part in range(10):
        assert max(worst(CHAINS[name], (32, 32, 32), 1000, seed=part)) < BOUND


@pytest.mark.parametrize("size", [(32, 32, 32), (33, 47, 45)], ids=str)
def test_layouts_threads_and_batches_do_not_change_bits(size):
    images, sources, params, side = case(EVERYTHING, size, 300)
    mean, std = (0.49, 0.48, 0.44), (0.24, 0.25, 0.26)
    views = compiled.make_views(images, sources, params, side, mean, std, threads=1)
    for threads in (2, 5):
        assert np.array_equal(views, compiled.make_views(images, sources, params, side, mean, std, threads=threads))
    planes = compiled.make_views(images, sources, params, side, mean, std, channels_last=False)
    assert np.array_equal(views, planes)
    assert planes.flags.c_contiguous
    assert views.transpose(0, 2, 3, 1).flags.c_contiguous
    some = np.array([250, 3, 77])
    assert np.array_equal(views[some], compiled.make_views(images, sources[some], params.rows(some), side, mean, std))


def test_normalisation():
    images, sources, params, side = case(EVERYTHING, (32, 32, 32), 50)
    mean, std = (0.491, 0.482, 0.447), (0.247, 0.243, 0.262)
    expected = reference.make_views(images, sources, params, side, mean, std)
    for backend in ("numba", "torch", "reference"):
        views = make_views(images, sources, params, side=side, mean=mean, std=std, backend=backend)
        assert np.abs(views.numpy() - expected).max() < BOUND / 0.24


def pillow_box(image, box, side):
    y0, x0, h, w = (int(n) for n in box)
    crop = Image.fromarray(image).crop((x0, y0, x0 + w, y0 + h))
    return np.asarray(crop.resize((side, side), Image.Resampling.BILINEAR)) / 255


@pytest.mark.parametrize("size", [(32, 32, 32), (96, 96, 32), (33, 47, 45), (64, 20, 32)], ids=str)
def test_crops_equal_pillow(size):
    policy = Policy(crop="resized")
    images, sources, params, side = case(policy, size, 60)
    fused = compiled.make_views(images, sources, params, side, ZERO, ONE)
    for row, source in enumerate(sources):
        expected = pillow_box(images[source], params.box[row], side).transpose(2, 0, 1)
        assert np.abs(fused[row] - expected).max() <= 2 / 255
        assert np.abs(reference.apply(images[source], params, row, side) - expected).max() <= 2 / 255


def test_colour_steps_equal_pillow():
    # Pillow rounds to uint8 after each step; its contrast also rounds the mean grey.
    image = pictures(2, 32, 32)[1]
    view, picture = image / 255.0, Image.fromarray(image)
    for factor in (0.3, 0.9, 1.7):
        for ours, theirs in (
            (reference.brightness, ImageEnhance.Brightness),
            (reference.contrast, ImageEnhance.Contrast),
            (reference.saturation, ImageEnhance.Color),
        ):
            expected = np.asarray(theirs(picture).enhance(factor)) / 255
            assert np.abs(np.clip(ours(view, factor), 0, 1) - expected).max() <= 2 / 255
    assert np.abs(reference.gray(view) - np.asarray(picture.convert("L")) / 255).max() <= 1 / 255


def test_hue_equals_the_standard_library():
    colorsys = pytest.importorskip("colorsys")
    view = np.random.default_rng(0).random((8, 8, 3))
    view[0] = view[0, :, :1]  # greys have no hue
    for shift in (-0.2, 0.13, 0.5):
        turned = reference.hue(view, shift)
        for y, x in np.ndindex(8, 8):
            h, s, v = colorsys.rgb_to_hsv(*view[y, x])
            assert turned[y, x] == pytest.approx(colorsys.hsv_to_rgb((h + shift) % 1, s, v), abs=1e-12)


def test_identity_and_flip_are_exact():
    images = pictures(3, 32, 32)
    params = sample(
        POLICIES["none"], seed=0, epoch=0, indices=np.arange(3), views=1, height=32, width=32, pad=4, side=32
    )
    expected = (images / 255).transpose(0, 3, 1, 2).astype(np.float32)
    views = compiled.make_views(images, np.arange(3), params, 32, ZERO, ONE)
    assert np.abs(views - expected).max() < 1e-6
    flipped = dataclasses.replace(params, flip=np.ones(3, bool))
    assert np.abs(compiled.make_views(images, np.arange(3), flipped, 32, ZERO, ONE) - expected[..., ::-1]).max() < 1e-6


def test_turns_are_counter_clockwise():
    images, sources, params, side = case(POLICIES["rotation-study"], (32, 32, 32), 40)
    still = dataclasses.replace(params, turns=np.zeros(40, np.int8))
    turned = compiled.make_views(images, sources, params, side, ZERO, ONE)
    straight = compiled.make_views(images, sources, still, side, ZERO, ONE)
    for row in range(40):
        expected = np.rot90(straight[row], params.turns[row], (1, 2))
        assert np.abs(turned[row] - expected).max() < 1e-5  # the mean grey is summed in another order


def test_part_of_a_jitter_chain():
    """Orders that end early or lack contrast are legal parameters."""
    images, sources, params, side = case(POLICIES["relational"], (32, 32, 32), 40)
    order = params.order.copy()
    order[::2, 2:] = -1
    params = dataclasses.replace(params, order=order)
    expected = reference.make_views(images, sources, params, side, ZERO, ONE)
    assert np.abs(compiled.make_views(images, sources, params, side, ZERO, ONE) - expected).max() < BOUND


def test_boxes_far_outside_the_image_are_black():
    images, sources, params, side = case(Policy(), (8, 8, 16), 5)
    box = np.array([[-50, 0, 8, 8], [0, -50, 8, 8], [50, 0, 8, 8], [0, 50, 8, 8], [-4, -4, 30, 30]], np.int32)
    params = dataclasses.replace(params, box=box, margin=60)
    expected = reference.make_views(images, sources, params, side, ZERO, ONE)
    assert not expected[:4].any()
    assert np.abs(compiled.make_views(images, sources, params, side, ZERO, ONE) - expected).max() < BOUND
    batched = tensor.make_views(torch.from_numpy(images[sources]), None, params.to("cpu"), side, ZERO, ONE)
    assert np.abs(batched.numpy() - expected).max() < BOUND
