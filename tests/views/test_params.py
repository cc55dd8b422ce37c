"""The laws of the random draws. Statistical tests have a fixed seed, so they are deterministic; their false-alarm rate,
had the seed been drawn, is ALPHA each.
"""

import dataclasses

import numpy as np
import pytest
from scipy import stats

from relatum import rng
from relatum.views import POLICIES, Policy, sample

ALPHA = 1e-6
DRAWS = 100_000


def draw(policy, views=4, images=16, seed=3, epoch=5, height=32, width=32, pad=4, side=32, indices=None):
    indices = np.arange(images) if indices is None else indices
    return sample(
        policy, seed=seed, epoch=epoch, indices=indices, views=views, height=height, width=width, pad=pad, side=side
    )


def same(a, b):
    return all(
        np.array_equal(getattr(a, f.name), getattr(b, f.name)) for f in dataclasses.fields(a) if f.name != "margin"
    )


@pytest.fixture(scope="module")
def many():
    return draw(POLICIES["relational"], views=4, images=DRAWS // 4)


@pytest.mark.parametrize("name", POLICIES)
def test_a_row_depends_on_nothing_but_seed_epoch_sample_and_view(name):
    policy = POLICIES[name]
    whole = draw(policy, views=6, images=10)
    assert len(whole) == 60
    few = draw(policy, views=3, indices=np.array([7, 2]))
    for k in range(3):
        for m, index in enumerate((7, 2)):
            assert same(few.rows([k * 2 + m]), whole.rows([k * 10 + index]))


def test_seed_epoch_sample_and_view_all_matter():
    policy = POLICIES["relational"]
    base = draw(policy, views=2, images=3).factors
    assert not np.array_equal(base, draw(policy, views=2, images=3, seed=4).factors)
    assert not np.array_equal(base, draw(policy, views=2, images=3, epoch=6).factors)
    assert len(np.unique(base, axis=0)) == 6


def test_rows_select_like_numpy():
    params = draw(POLICIES["finetune"])
    assert np.array_equal(params.rows(slice(3, 9)).box, params.box[3:9])
    assert np.array_equal(params.rows(np.array([5, 1])).factors, params.factors[[5, 1]])
    assert len(params.rows(params.flip)) == params.flip.sum()


def uniform_pvalue(values, low, high):
    return stats.kstest(values, stats.uniform(low, high - low).cdf).pvalue


def test_probabilities(many):
    for hits, p in ((many.flip, 0.5), (many.order[:, 0] >= 0, 0.8), (many.gray, 0.2)):
        assert stats.binomtest(int(hits.sum()), DRAWS, p).pvalue > ALPHA


def test_factors_are_uniform_and_independent(many):
    for k in range(3):
        assert uniform_pvalue(many.factors[:, k], 0.2, 1.8) > ALPHA
    assert uniform_pvalue(many.factors[:, 3], -0.2, 0.2) > ALPHA
    for a in range(4):
        for b in range(a):
            assert stats.pearsonr(many.factors[:, a], many.factors[:, b]).pvalue > ALPHA


def test_all_orders_are_equally_likely(many):
    order = many.order[many.order[:, 0] >= 0]
    codes, counts = np.unique(order @ (64, 16, 4, 1), return_counts=True)
    assert len(codes) == 24
    assert stats.chisquare(counts).pvalue > ALPHA
    assert np.array_equal(np.sort(order, axis=1), np.tile(np.arange(4), (len(order), 1)))


def crop_oracle(count, height, width):
    """The law again, one draw at a time with another generator: the first of ten tries that fits."""
    generator = np.random.default_rng(11)
    boxes = []
    for _ in range(count):
        for _ in range(10):
            area = height * width * generator.uniform(0.08, 1)
            ratio = np.exp(generator.uniform(np.log(3 / 4), np.log(4 / 3)))
            w, h = round(np.sqrt(area * ratio)), round(np.sqrt(area / ratio))
            if 0 < w <= width and 0 < h <= height:
                boxes.append((generator.integers(height - h + 1), generator.integers(width - w + 1), h, w))
                break
    return np.array(boxes)


def test_crops_follow_their_law(many):
    box, other = many.box, crop_oracle(20_000, 32, 32)
    for value in (
        lambda b: b[:, 2] * b[:, 3],  # area
        lambda b: b[:, 3] / b[:, 2],  # ratio
        lambda b: b[:, 0],
        lambda b: b[:, 1],
    ):
        assert stats.ks_2samp(value(box), value(other)).pvalue > ALPHA
    assert (box[:, 0] >= 0).all()
    assert (box[:, 0] + box[:, 2] <= 32).all()
    assert (box[:, 1] + box[:, 3] <= 32).all()


def test_area_and_ratio_of_the_first_try_are_uniform():
    # Within an image much larger than any crop of these bounds no try fails, and rounding is negligible.
    policy = dataclasses.replace(POLICIES["relational"], area=(0.08, 0.5))
    box = draw(policy, views=4, images=DRAWS // 4, height=20_000, width=20_000).box.astype(float)
    assert uniform_pvalue(box[:, 2] * box[:, 3] / 20_000**2, 0.08, 0.5) > ALPHA
    assert uniform_pvalue(np.log(box[:, 3] / box[:, 2]), np.log(3 / 4), np.log(4 / 3)) > ALPHA
    assert uniform_pvalue(box[:, 0] / (20_000 - box[:, 2] + 1), 0, 1) > ALPHA
    assert uniform_pvalue(box[:, 1] / (20_000 - box[:, 3] + 1), 0, 1) > ALPHA


def test_corners_are_uniform_over_the_integers_that_fit(many):
    h, w = 24, 22
    rows = (many.box[:, 2] == h) & (many.box[:, 3] == w)
    for column, places in ((0, 32 - h + 1), (1, 32 - w + 1)):
        counts = np.bincount(many.box[rows, column], minlength=places)
        assert len(counts) == places
        assert stats.chisquare(counts).pvalue > ALPHA


@pytest.mark.parametrize(
    ("height", "width", "expected"),
    [(10, 100, (0, 43, 10, 13)), (100, 10, (43, 0, 13, 10)), (30, 30, (0, 0, 30, 30))],
)
def test_after_ten_failures_the_largest_central_crop_is_taken(height, width, expected):
    never = dataclasses.replace(POLICIES["relational"], area=(30.0, 31.0))
    box = draw(never, height=height, width=width).box
    assert (box == expected).all()


def test_later_tries_only_for_rows_that_failed():
    policy = POLICIES["relational"]
    params = draw(policy, views=1, images=2000)
    keys = rng.key(rng.VIEW, 3, 5, np.arange(2000), 0)
    u = rng.uniform(keys, 32 + np.arange(4))
    area, ratio = 1024 * (0.08 + 0.92 * u[:, 0]), np.exp(np.log(3 / 4) + np.log(16 / 9) * u[:, 1])
    w, h = np.rint(np.sqrt(area * ratio)), np.rint(np.sqrt(area / ratio))
    fits = (w <= 32) & (h <= 32)
    assert 0.05 < 1 - fits.mean() < 0.2
    assert np.array_equal(params.box[fits, 2:], np.stack([h, w], 1)[fits].astype(int))


def test_padded_crops_are_uniform_over_all_shifts():
    box = draw(POLICIES["padded-crop"], images=DRAWS // 4).box
    assert (box[:, 2:] == 32).all()
    counts = np.bincount((box[:, 0] + 4) * 9 + box[:, 1] + 4)
    assert len(counts) == 81
    assert stats.chisquare(counts).pvalue > ALPHA


def test_rotation_shares_one_draw_among_four_views():
    params = draw(POLICIES["rotation"], views=8, images=50)
    box = params.box.reshape(8, 50, 4)
    assert (box[:4] == box[0]).all()
    assert (box[4:] == box[4]).all()
    assert not np.array_equal(box[0], box[4])
    assert np.array_equal(params.turns.reshape(8, 50), np.tile([[k % 4] for k in range(8)], 50))


def test_rotation_study_draws_turns():
    turns = draw(POLICIES["rotation-study"], images=DRAWS // 4).turns
    assert stats.chisquare(np.bincount(turns, minlength=4)).pvalue > ALPHA


def test_finetune_draws():
    params = draw(POLICIES["finetune"], images=DRAWS // 4)
    assert stats.binomtest(int(params.has_affine.sum()), DRAWS, 0.5).pvalue > ALPHA
    assert stats.binomtest(int((params.cutout[:, 2] > 0).sum()), DRAWS, 0.5).pvalue > ALPHA
    a, b, _, d, e, _ = params.affine[params.has_affine].T.astype(float)
    scale = 1 / np.sqrt(a * e - b * d)
    assert uniform_pvalue(scale, 0.9, 1.1) > ALPHA
    assert uniform_pvalue(np.rad2deg(np.arctan2(-d, e)), -18, 18) > ALPHA
    box = params.cutout[params.cutout[:, 2] > 0]
    assert (box[:, 2:] == 16).all()
    assert stats.chisquare(np.bincount(box[:, 0] * 17 + box[:, 1], minlength=289)).pvalue > ALPHA


def test_affine_is_the_inverse_of_scale_rotation_shear_and_shift():
    policy = dataclasses.replace(
        POLICIES["finetune"], affine_p=1.0, degrees=(30, 30), scale=(2, 2), shear=(10, 10), translate=(0.1, 0.1)
    )
    a, b, c, d, e, f = draw(policy, views=1, images=1, side=40).affine[0].astype(float)
    t, s = np.deg2rad(30), np.tan(np.deg2rad(10))
    forward = 2 * np.array([[np.cos(t), -np.sin(t)], [np.sin(t), np.cos(t)]]) @ np.array([[1, s], [0, 1]])
    point = np.array([3.0, -5.0])
    moved = forward @ point + (4, 4)
    assert np.array([[a, b], [d, e]]) @ moved + (c, f) == pytest.approx(point, abs=1e-5)


@pytest.mark.parametrize(("area", "side", "size"), [(0.25, 32, 16), (0.111, 96, 32), (0.0625, 32, 8)])
def test_cutout_sizes_of_the_paper(area, side, size):
    policy = dataclasses.replace(POLICIES["finetune"], cutout_area=area, cutout_p=1.0)
    assert (draw(policy, side=side).cutout[:, 2:] == size).all()


def test_none_and_flip_keep_the_whole_image():
    for name in ("none", "flip"):
        params = draw(POLICIES[name], height=20, width=30)
        assert (params.box == (0, 0, 20, 30)).all()
        assert (params.order == -1).all()
    assert not draw(POLICIES["none"]).flip.any()
    assert 0 < draw(POLICIES["flip"]).flip.mean() < 1


def test_a_bad_policy_is_refused():
    for bad in ({"crop": "center"}, {"turn": "left"}, {"hue": (-0.7, 0.7)}):
        with pytest.raises(ValueError, match=next(iter(bad))):
            Policy(**bad)


def test_the_strength_of_colour_jitter() -> None:
    policy = POLICIES["relational"]
    assert policy.with_strength(1.0) is policy
    half = policy.with_strength(0.5)
    assert half.brightness == half.contrast == half.saturation == pytest.approx((0.6, 1.4))
    assert half.hue == pytest.approx((-0.1, 0.1))
    drawn = sample(half, seed=1, epoch=0, indices=np.arange(500), views=2, height=32, width=32, pad=4, side=32)
    full = sample(policy, seed=1, epoch=0, indices=np.arange(500), views=2, height=32, width=32, pad=4, side=32)
    np.testing.assert_allclose(drawn.factors[:, :3] - 1, (full.factors[:, :3] - 1) / 2, atol=1e-6)
    np.testing.assert_allclose(drawn.factors[:, 3], full.factors[:, 3] / 2, atol=1e-6)
    for name in ("box", "flip", "order", "gray"):
        np.testing.assert_array_equal(getattr(drawn, name), getattr(full, name))
