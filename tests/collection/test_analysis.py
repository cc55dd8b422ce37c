"""Outliers, clusters and diverse subsets on points whose answer is known."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image, ImageDraw

from relatum.collection.clusters import find_clusters
from relatum.collection.outliers import outlier_scores
from relatum.collection.selection import diverse_subset
from relatum.collection.signatures import STATISTICS, describe, shrink
from relatum.errors import InputError


def blobs(*counts: int, d: int = 6) -> np.ndarray:
    draws = np.random.default_rng(0)
    centres = 20 * np.eye(d)[: len(counts)]
    return np.concatenate([c + draws.normal(size=(n, d)) for c, n in zip(centres, counts, strict=True)]).astype("f4")


def test_a_far_point_is_the_first_outlier_by_either_description() -> None:
    points, ordinary = blobs(80), np.random.default_rng(1).normal(size=(80, 4)).astype(np.float32)
    points[7] += 30
    ordinary[9] -= 30
    order = np.argsort(-outlier_scores(points, ordinary, points))
    assert set(order[:2].tolist()) == {7, 9}


def test_a_small_group_of_another_kind_is_not_a_list_of_outliers() -> None:
    points = blobs(200, 30)
    points[0] += np.float32([0, 0, 9, 9, 0, 0])
    assert np.argmax(outlier_scores(points, points, points)) == 0


def test_an_image_among_sparse_ones_is_still_an_outlier() -> None:
    draws = np.random.default_rng(3)
    dense, sparse = draws.normal(size=(300, 6)), draws.normal(size=(60, 6)) * 4 + 12
    points = np.concatenate([dense, sparse, [[12, 12, 12, 12, 12, 60]]]).astype(np.float32)
    assert np.argmax(outlier_scores(points, points, points)) == 360


def test_copies_of_an_outlier_do_not_hide_it() -> None:
    points = np.concatenate([blobs(80), np.full((15, 6), 90, np.float32)])
    assert set(np.argsort(-outlier_scores(points, points, points))[:15].tolist()) == set(range(80, 95))


def test_many_blank_icons_do_not_hide_another_flat_colour() -> None:
    draws = np.random.default_rng(1)
    features, statistics = (draws.normal(size=(321, d)).astype(np.float32) for d in (32, STATISTICS))
    statistics[300:, 0] = 12  # twenty icons that are blank on white
    features[301:320], statistics[301:320] = features[300], statistics[300]
    statistics[320, 0] = 10  # and a flat colour
    thumbnails = np.minimum(np.arange(321), 300)
    thumbnails[320] = 301
    scores = outlier_scores(features, statistics, thumbnails)
    assert scores[320] > scores[:300].max()


def test_a_colour_gradient_is_an_outlier_among_photographs_and_drawings() -> None:
    draws = np.random.default_rng(4)
    images = []
    for i in range(300):
        coarse = Image.fromarray(draws.integers(0, 256, (6, 6, 3), dtype=np.uint8)).resize((96, 96), 3 if i % 3 else 0)
        images.append(np.asarray(coarse) // 2 + draws.integers(0, 2 + i % 60, (96, 96, 1), dtype=np.uint8))
    across = np.linspace(0, 1, 96)[None, :, None]
    images.append(np.broadcast_to((1 - across) * [180, 60, 90] + across * [60, 90, 170], (96, 96, 3)).astype(np.uint8))
    signatures, statistics = describe(np.stack(images))
    features = draws.normal(size=(301, 32)).astype(np.float32)
    assert np.argmax(outlier_scores(features, statistics, signatures)) == 300


def test_an_image_that_is_unusual_only_in_a_combination_of_statistics_is_the_first_outlier() -> None:
    draws = np.random.default_rng(5)
    features, statistics = (draws.normal(size=(300, d)).astype(np.float32) for d in (6, STATISTICS))
    statistics[:, 1] = statistics[:, 0] + 0.1 * statistics[:, 1]
    statistics[7] = 0
    statistics[7, :2] = 1.5, -1.5  # each is an ordinary value
    assert np.argmax(outlier_scores(features, statistics, features)) == 7


def test_patterns_differ_from_other_images_in_the_layout_of_their_edges() -> None:
    draws = np.random.default_rng(6)
    noise = draws.integers(0, 256, (96, 96, 1), dtype=np.uint8)
    patch = np.full((96, 96, 1), 40, np.uint8)
    patch[10:40, 10:40] = noise[10:40, 10:40]
    upright = np.broadcast_to(np.where(np.arange(96) // 8 % 2, 30, 220)[None, :, None], (96, 96, 1))
    checkers = np.where((np.add.outer(np.arange(96) // 8, np.arange(96) // 8) % 2)[..., None], 30, 220)
    images = np.stack([np.repeat(image, 3, 2) for image in (noise, patch, upright, checkers)]).astype(np.uint8)
    unevenness, aligned, agreement = describe(images)[1][:, 16:19].T
    assert unevenness[0] < unevenness[1] - 1
    assert aligned[0] < 0.6
    assert aligned[2:].min() > 0.8
    assert agreement[2] > 0.9
    assert max(agreement[0], agreement[3]) < 0.6  # neighbouring steps of noise share a pixel


def drawing(draws: np.random.Generator) -> np.ndarray:
    """Lines, rings and discs in black on white."""
    image = Image.new("L", (96, 96), "white")
    draw = ImageDraw.Draw(image)
    for _ in range(draws.integers(4, 60)):
        (x, y), end = draws.integers(4, 92, (2, 2)).tolist()
        if draws.random() < 0.5:
            draw.line([(x, y), tuple(end)], fill=0, width=int(draws.integers(1, 6)))
        else:
            r = int(draws.integers(2, 16))
            fill = 255 if draws.random() < 0.5 else 0
            draw.ellipse((x - r, y - r, x + r, y + r), outline=0, fill=fill, width=int(draws.integers(1, 4)))
    return np.repeat(np.asarray(image)[..., None], 3, 2)


def test_a_code_is_an_outlier_among_drawings_in_black_and_white() -> None:
    draws = np.random.default_rng(2)
    code = np.pad(np.kron(draws.integers(0, 2, (24, 24)), np.ones((3, 3), np.int64)), 12)
    images = [drawing(draws) for _ in range(200)] + [np.repeat(np.where(code, 0, 255)[..., None], 3, 2)]
    signatures, statistics = describe(np.stack(images).astype(np.uint8))
    features = draws.normal(size=(201, 32)).astype(np.float32)
    assert np.argmax(outlier_scores(features, statistics, signatures)) == 200


def test_edges_and_corners_of_dark_shapes_are_counted() -> None:
    square = np.full((1, 96, 96, 3), 255, np.uint8)
    square[:, 20:60, 20:60] = 0
    slanted = np.full((1, 96, 96, 3), 255, np.uint8)
    slanted[:, np.add.outer(np.arange(96), 2 * np.arange(96)) < 140] = 0  # steps of two pixels
    straight, steps, corners = describe(np.concatenate([square, slanted]))[1][:, -3:].T ** 2 * 94**2
    assert [straight[0], steps[0], corners[0]] == pytest.approx([4 * 38, 0, 4], abs=0.1)
    assert steps[1] > 40
    assert corners[1] < 2


def test_fine_patterns_lose_their_contrast_at_lower_resolutions() -> None:
    fine, coarse = (np.where(np.arange(96) // width % 2, 30, 220) for width in (2, 24))
    images = np.stack([np.broadcast_to(line[None, :, None], (96, 96, 3)) for line in (fine, coarse)]).astype(np.uint8)
    left = describe(images)[1][:, 19:22]
    assert left[0, 1:].max() < -2
    assert left[1] == pytest.approx(0, abs=0.01)


def test_identical_images_have_finite_scores() -> None:
    points = np.repeat(blobs(12), 20, axis=0)
    assert np.isfinite(outlier_scores(points, points, points)).all()
    assert outlier_scores(points[:2], points[:2], points[:2]).tolist() == [0, 0]


def test_clusters_are_found_with_their_number_and_a_title_image() -> None:
    points = blobs(60, 40, 20)
    clusters = find_clusters(points)
    assert [len(c.members) for c in clusters] == [60, 40, 20]
    assert set(clusters[0].members) == set(range(60))
    assert list(clusters[0].distances) == sorted(clusters[0].distances)
    assert len(find_clusters(points, number=2)) == 2
    assert find_clusters(points) == clusters


def test_hdbscan_leaves_images_out() -> None:
    points = np.concatenate([blobs(60, 40), np.random.default_rng(2).uniform(-60, 60, (10, 6)).astype("f4")])
    clusters = find_clusters(points, method="hdbscan")
    assert len(clusters) >= 2
    assert sum(len(c.members) for c in clusters) < 110


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"number": 0}, "0 clusters"),
        ({"number": 99}, "99 clusters"),
        ({"method": "magic"}, "unknown clustering method"),
        ({"method": "hdbscan", "number": 3}, "finds the number"),
    ],
)
def test_impossible_requests_are_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        find_clusters(blobs(20), **options)  # type: ignore[arg-type]


def test_a_diverse_subset_takes_one_image_of_each_group_first() -> None:
    points = blobs(100, 5, 5)
    selected, radius = diverse_subset(points, 3)
    assert sorted(0 if i < 100 else 1 if i < 105 else 2 for i in selected) == [0, 1, 2]
    assert (np.diff(radius) <= 0).all()
    everything, _ = diverse_subset(np.zeros((4, 2), np.float32), 9)
    assert sorted(everything.tolist()) == [0, 1, 2, 3]


def test_shrinking_averages_and_statistics_describe_noise() -> None:
    pixels = np.random.default_rng(0).random((2, 32, 40, 3)).astype(np.float32)
    assert np.allclose(shrink(pixels, 8), pixels.reshape(2, 8, 4, 8, 5, 3).mean((2, 4)), atol=1e-6)
    noise = np.random.default_rng(0).integers(0, 256, (1, 32, 32, 3), dtype=np.uint8)
    smooth = np.tile(np.linspace(0, 255, 32).astype(np.uint8)[:, None, None], (1, 1, 32, 3))
    _, statistics = describe(np.concatenate([noise, smooth]))
    assert statistics[0, 9] > 0.9 > 0.2 > statistics[1, 9]
