"""K-means: each part against scikit-learn or the definition, and the same bits every time."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.cluster import KMeans
from sklearn.decomposition import PCA
from sklearn.metrics import normalized_mutual_info_score

from relatum.features import clustering


def blobs(
    n: int = 600, dimensions: int = 6, groups: int = 5, *, spread: float = 0.1, seed: int = 0
) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    centres = torch.randn(groups, dimensions, generator=generator)
    labels = torch.arange(n) % groups
    return centres[labels] + spread * torch.randn(n, dimensions, generator=generator), labels


@pytest.mark.parametrize("keep", [3, 6])
def test_whitening_is_that_of_principal_components(keep: int) -> None:
    x, _ = blobs()
    x = x * torch.tensor([1.0, 5.0, 0.2, 3.0, 0.7, 2.0]) + 4
    ours = clustering.whiten(x, keep).double().numpy()
    theirs = PCA(keep, whiten=True, svd_solver="full").fit_transform(x.double().numpy())
    signs = np.sign((ours * theirs).sum(0))
    assert np.abs(ours * signs - theirs).max() < 1e-5
    assert np.abs(np.cov(ours.T) - np.eye(keep)).max() < 1e-5


def test_a_direction_without_variance_becomes_zero_and_not_noise() -> None:
    x, _ = blobs()
    dead = torch.cat([x, 1e-7 * torch.randn(len(x), 1), torch.full((len(x), 1), 3.0)], 1)
    white = clustering.whiten(dead, 8)
    assert torch.equal(white[:, 6:], torch.zeros(len(x), 2))
    torch.testing.assert_close(white[:, :6].abs(), clustering.whiten(x, 6).abs(), rtol=0, atol=1e-4)
    assert torch.equal(clustering.prepare(torch.ones(5, 4)), torch.zeros(5, 4))


def test_points_have_unit_length_and_wide_features_are_halved() -> None:
    generator = torch.Generator().manual_seed(0)
    for dimensions, kept in ((64, 64), (511, 511), (512, 256)):
        points = clustering.prepare(torch.randn(1200, dimensions, generator=generator))
        assert points.shape == (1200, kept)
        assert points.dtype == torch.float32
        torch.testing.assert_close(points.norm(dim=1), torch.ones(1200))


@pytest.mark.parametrize("clusters", [3, 50])
def test_assignment_is_the_nearest_centroid(clusters: int) -> None:
    x, _ = blobs()
    centroids = x[:clusters] + 0.01
    labels, closeness = clustering.assign(x, centroids)
    distance = torch.cdist(x.double(), centroids.double()) ** 2
    assert torch.equal(labels, distance.argmin(1))
    torch.testing.assert_close((x * x).sum(1) - 2 * closeness, distance.min(1).values.float(), rtol=0, atol=1e-5)


def test_an_update_gives_means_and_moves_empty_clusters_to_the_farthest_points() -> None:
    x = torch.tensor([[0.0], [0.2], [9.0], [1.0], [5.0]])
    labels = torch.tensor([0, 0, 0, 3, 3])
    distance = torch.tensor([1.0, 0.5, 30.0, 2.0, 4.0])
    centroids = clustering.update(x, labels, distance, 5)
    # 1, 2 and 4 are empty: they take the points at 9, 5 and 1 (farthest first), which leave their clusters.
    torch.testing.assert_close(centroids[:3], torch.tensor([[0.1], [9.0], [5.0]]))
    torch.testing.assert_close(centroids[4], torch.tensor([1.0]))
    assert torch.isfinite(centroids).all()


def test_it_finds_separated_clusters() -> None:
    x, truth = blobs()
    _, labels = clustering.kmeans(x, 5, 1, 0)
    assert normalized_mutual_info_score(truth, labels) > 0.999


def test_it_is_as_good_as_scikit_learn() -> None:
    x = torch.nn.functional.normalize(torch.randn(2000, 8, generator=torch.Generator().manual_seed(3)), dim=1)
    centroids, labels = clustering.kmeans(x, 40, 1, 0)
    ours = float(((x - centroids[labels]) ** 2).sum())
    theirs = KMeans(40, n_init=5, max_iter=30, random_state=0).fit(x.numpy()).inertia_
    assert ours < 1.01 * theirs
    assert torch.equal(labels, clustering.assign(x, centroids)[0])  # the labels are of these centroids


def test_starts_are_distinct_points_chosen_by_squared_distance() -> None:
    """Two far groups of very different size: k-means++ finds the small one, a uniform choice would not."""
    x = torch.cat([torch.randn(990, 2, generator=torch.Generator().manual_seed(0)), torch.full((10, 2), 1000.0)])
    starts = clustering.plus_plus(x, 2, 50, 1, 0)
    assert bool(((starts > 500).any(2).sum(1) == 1).all())
    many = clustering.plus_plus(x[:60], 60, 3, 1, 0)
    assert all(len(torch.unique(one, dim=0)) == 60 for one in many)


@pytest.mark.parametrize("iterations", [1, 3])
def test_the_iterations_end(iterations: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Noise that takes longer to settle: as many updates as allowed, and labels of the centroids that are returned."""
    x = torch.randn(2000, 8, generator=torch.Generator().manual_seed(0))
    updates: list[int] = []
    update = clustering.update
    monkeypatch.setattr(clustering, "update", lambda *a: (updates.append(1), update(*a))[1])
    centroids, labels, _ = clustering.lloyd(x, x[:40].clone(), iterations)
    assert len(updates) == iterations
    assert torch.equal(labels, clustering.assign(x, centroids)[0])


def test_the_same_name_gives_the_same_bits_and_another_epoch_does_not() -> None:
    x = torch.nn.functional.normalize(torch.randn(3000, 16, generator=torch.Generator().manual_seed(1)), dim=1)
    first, again, other = (clustering.kmeans(x, 30, *name) for name in ((1, 0), (1, 0), (1, 1)))
    assert torch.equal(first[0], again[0])
    assert torch.equal(first[1], again[1])
    assert not torch.equal(first[1], other[1])


def test_fewer_distinct_points_than_clusters_is_no_error() -> None:
    x = torch.eye(3).repeat(10, 1)
    centroids, labels = clustering.kmeans(x, 8, 1, 0)
    assert torch.isfinite(centroids).all()
    assert len(labels.unique()) == 3
    assert float(((x - centroids[labels]) ** 2).sum()) == 0.0
    whole = clustering.kmeans(torch.eye(4), 4, 1, 0)[1]
    assert sorted(whole.tolist()) == [0, 1, 2, 3]


@pytest.mark.parametrize("seed", range(3))
def test_mutual_information_is_scikit_learns(seed: int) -> None:
    random = np.random.default_rng(seed)
    a, b = random.integers(0, 5, 300), random.integers(0, 9, 300)
    c = np.where(random.random(300) < 0.7, a, 8)
    for one, two in ((a, b), (a, c), (a, a), (np.zeros_like(a), a)):
        ours = clustering.mutual_information(torch.from_numpy(one), torch.from_numpy(two))
        assert ours == pytest.approx(normalized_mutual_info_score(one, two), abs=1e-9)


@pytest.mark.slow
def test_fifty_thousand_images_as_well_as_scikit_learn() -> None:
    points = clustering.prepare(blobs(50_000, 64, 40, spread=1.0)[0])
    centroids, labels = clustering.kmeans(points, 100, 1, 0)
    other = KMeans(100, n_init=5, max_iter=30, random_state=0).fit(points.numpy())
    assert float(((points - centroids[labels]) ** 2).sum()) < 1.02 * other.inertia_
