"""DeepCluster: pseudo-labels from clean features, a weighted cross-entropy, a head that is made anew."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from small import IMAGES, agree, clean_features, small_batch, small_objective
from torch import nn

import relatum
from relatum import data
from relatum.errors import InputError
from relatum.features import clustering
from relatum.objectives import EpochContext
from relatum.objectives.deepcluster import DeepCluster


@pytest.mark.parametrize("class_weights", [False, True])
def test_the_loss_and_its_gradient_equal_a_loop_over_views(class_weights: bool) -> None:
    objective = small_objective("deepcluster", clusters=6, class_weights=class_weights)
    batch = small_batch(2, 7)
    loss, _ = objective(batch)
    labels = clustering.kmeans(clustering.prepare(clean_features()), 6, 1, 0)[1]
    logits = objective.head(objective.backbone(batch.views.flatten(0, 1)))
    above, below = torch.zeros((), dtype=torch.float64), 0.0
    for row, number in enumerate(batch.indices.tolist() * 2):
        cluster = int(labels[number])
        weight = 1 - labels.tolist().count(cluster) / IMAGES if class_weights else 1.0
        above = above - weight * torch.log(torch.exp(logits[row, cluster]) / torch.exp(logits[row]).sum())
        below += weight
    # The weights are a float32 buffer made double: their own rounding, 6e-8, is not the loss's business.
    objective.cluster_weights.copy_(1 - torch.bincount(labels, minlength=6).double() / IMAGES)
    agree(objective, objective(batch)[0], above / below)
    assert abs(loss.item() - float(above.detach()) / below) < 1e-7


def test_what_is_clustered_are_clean_images_normalised_once(
    pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The features that a run hands over, against the definition: pixels, mean and deviation, eval mode, in order."""
    calls: list[tuple[torch.Tensor, nn.Module]] = []
    start = DeepCluster.start_epoch

    def look(self: DeepCluster, context: EpochContext) -> Any:
        calls.append((context.features(), copy.deepcopy(self.backbone)))
        return start(self, context)

    monkeypatch.setattr(DeepCluster, "start_epoch", look)
    relatum.pretrain(
        pictures,
        out=tmp_path / "run",
        method="deepcluster",
        epochs=2,
        batch_size=12,
        compile="off",
        threads=1,
        quiet=True,
    )
    images = data.load(pictures)
    clean = torch.from_numpy(images.images / 255.0)
    x = ((clean - torch.tensor(images.mean)) / torch.tensor(images.std)).float().permute(0, 3, 1, 2)
    assert len(calls) == 2
    for features, backbone in calls:
        with torch.no_grad():
            torch.testing.assert_close(features, backbone.eval()(x), rtol=0, atol=1e-4)
    assert not torch.equal(calls[0][0], calls[1][0])  # those of the second epoch are by the backbone as it is then


def test_five_starts_of_at_most_thirty_iterations(monkeypatch: pytest.MonkeyPatch) -> None:
    starts: list[int] = []
    lloyd = clustering.lloyd

    def count(points: torch.Tensor, centroids: torch.Tensor, iterations: int) -> Any:
        starts.append(iterations)
        return lloyd(points, centroids, iterations)

    monkeypatch.setattr(clustering, "lloyd", count)
    small_objective("deepcluster", clusters=6)
    assert starts == [30] * 5


@pytest.mark.parametrize("reset", ["head", "last"])
def test_the_head_is_reset_in_place_from_seed_and_epoch(reset: str) -> None:
    objective = small_objective("deepcluster", reset=reset)
    before = {name: (p, p.detach().clone()) for name, p in objective.named_parameters()}
    objective(small_batch())  # moves the running statistics
    moved = objective.head.bn1.running_mean.clone()
    renewed = list(objective.start_epoch(EpochContext(1, 1, clean_features)))
    head = {name for name in before if name.startswith("head.")}
    names = {name for name, p in objective.named_parameters() if any(p is r for r in renewed)}
    assert names == (head if reset == "head" else set())  # the optimiser keeps its state of the last layer
    for name, p in objective.named_parameters():
        assert p is before[name][0]
        changed = not torch.equal(p, before[name][1])
        reset_names = head if reset == "head" else {"head.linear2.weight"}  # the bias is 0 again
        assert changed == (name in reset_names and "bn1" not in name)  # batch-norm starts at 1 and 0 again
    if reset == "last":  # the authors' law
        assert torch.equal(objective.head.linear2.bias, torch.zeros_like(objective.head.linear2.bias))
        assert 0.008 < float(objective.head.linear2.weight.detach().std()) < 0.012
    assert bool((objective.head.bn1.running_mean == 0).all()) == (reset == "head")
    assert torch.equal(objective.head.bn1.running_mean, moved) == (reset == "last")
    first = objective.head.linear2.weight.clone()
    objective.start_epoch(EpochContext(1, 1, clean_features))
    assert torch.equal(objective.head.linear2.weight, first)
    objective.start_epoch(EpochContext(2, 1, clean_features))
    assert not torch.equal(objective.head.linear2.weight, first)


def test_making_the_head_leaves_the_global_generator_alone() -> None:
    objective = small_objective("deepcluster")
    torch.manual_seed(3)
    want = torch.rand(2)
    torch.manual_seed(3)
    objective.start_epoch(EpochContext(1, 1, clean_features))
    assert torch.equal(torch.rand(2), want)


def test_pseudo_labels_live_in_the_checkpoint() -> None:
    """A resume in mid-epoch does not cluster again: the state has the labels, the weights and the head."""
    objective = small_objective("deepcluster", class_weights=True)
    state = {name: value.clone() for name, value in objective.state_dict().items()}
    assert state["pseudo_labels"].shape == (IMAGES,)
    other = small_objective("deepcluster", class_weights=True, clustered=False)
    with pytest.raises(ValueError, match="no pseudo-labels yet"):
        other(small_batch())
    other.load_state_dict(state)
    assert torch.equal(other(small_batch())[0], objective(small_batch())[0])


def test_a_line_says_what_was_found() -> None:
    said: list[str] = []
    objective = small_objective("deepcluster", clustered=False, clusters=6)
    for epoch in range(2):
        objective.start_epoch(EpochContext(1, epoch, clean_features, said.append))
    assert said[0] == "epoch 1: clustering the training images"
    assert said[1].startswith("6 clusters of 24 images, ")
    assert "NMI" not in said[1]
    assert "NMI" in said[3]


@pytest.mark.parametrize(
    ("options", "clusters"),
    [({"num_classes": 10}, 100), ({"num_classes": 0}, 100), ({"clusters": 7, "num_classes": 10}, 7), ({}, 100)],
)
def test_the_number_of_clusters(options: dict[str, int], clusters: int) -> None:
    assert DeepCluster(nn.Identity(), 4, num_images=500, **options).clusters == clusters
    assert DeepCluster(nn.Identity(), 4, num_images=50, num_classes=10).clusters == 50


def test_what_it_cannot_use_is_refused() -> None:
    objective = small_objective("deepcluster")
    with pytest.raises(ValueError, match="`indices`"):
        objective(small_batch().replace(indices=None))
    with pytest.raises(ValueError, match="at least 2 images"):
        objective(small_batch(4, 1))
    with pytest.raises(ValueError, match="3 features for 24 images"):
        objective.start_epoch(EpochContext(1, 1, lambda: torch.zeros(3, 64)))
    with pytest.raises(InputError, match="more than the 5 images"):
        DeepCluster(nn.Identity(), 4, num_images=5, clusters=6)
