"""DeepCluster (Caron et al. 2018): predict the cluster of each image; the clusters are recomputed at each epoch.

Where the authors' code clusters augmented images, normalised twice, with a seed bounded by the clock, this one clusters
clean images, seeded. Shape letters: K views, M images, N training images, d features.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import cast

import torch
from torch import Tensor, distributed, nn
from torch.nn import functional as F

from relatum import rng
from relatum.backbones import seeded
from relatum.config.methods import DeepClusterOptions
from relatum.config.settings import check
from relatum.distributed import current
from relatum.errors import InputError
from relatum.features import clustering
from relatum.objectives.base import EpochContext, Metrics, Objective, accuracy, mlp_head, single
from relatum.objectives.batch import ViewsLike


class DeepCluster(Objective):
    """Cross-entropy against pseudo-labels from k-means on PCA-whitened, L2-normalised features of clean images.

    The pseudo-labels and the weights of the clusters are buffers: a checkpoint in mid-epoch holds all that a resume
    needs, and nothing is clustered again before the next epoch.

    Args:
        backbone: any module that maps (N, C, H, W) to (N, d).
        num_features: d.
        num_images: N.
        num_classes: sets the number of clusters, 10 × classes, unless `clusters` does. It is a count; no label is read.
        clusters: the number of clusters; 100 where there are neither clusters nor classes given.
        hidden: hidden units of the head.
        reset: what each epoch reinitialises: the `head` (the paper), or its `last` layer (the authors' code).
        class_weights: weigh each cluster by 1 − its share of the images (the authors' code).
    """

    needs = ("num_images", "num_classes")
    min_images = 2  # the head's batch-norm needs two rows
    pseudo_labels: Tensor
    cluster_weights: Tensor

    def __init__(
        self,
        backbone: nn.Module,
        num_features: int,
        *,
        num_images: int,
        num_classes: int = 0,
        clusters: int | None = DeepClusterOptions.clusters,
        hidden: int = DeepClusterOptions.hidden,
        reset: str = DeepClusterOptions.reset,
        class_weights: bool = DeepClusterOptions.class_weights,
    ) -> None:
        super().__init__(backbone, num_features)
        options = check(DeepClusterOptions(clusters=clusters, hidden=hidden, reset=reset, class_weights=class_weights))
        if options.clusters is not None and options.clusters > num_images:
            raise InputError(f"objective.clusters = {options.clusters} is more than the {num_images} images.")
        self.clusters = options.clusters or min(10 * num_classes if num_classes else 100, num_images)
        self.hidden, self.reset, self.class_weights = options.hidden, options.reset, options.class_weights
        self.head = mlp_head(num_features, self.hidden, self.clusters)
        self.register_buffer("pseudo_labels", torch.full((num_images,), -1))
        self.register_buffer("cluster_weights", torch.ones(self.clusters))

    def forward(self, batch: ViewsLike) -> tuple[Tensor, Metrics]:
        """Cross-entropy over all K·M views, and the share of clusters recognised."""
        batch = self.as_batch(batch)
        if batch.indices is None:
            raise ValueError("DeepCluster looks up pseudo-labels by sample number: pass a Batch with `indices`.")
        targets = self.pseudo_labels[batch.indices.to(self.pseudo_labels.device)].repeat(batch.views.shape[0])
        if targets.device.type == "cpu" and bool((targets < 0).any()):  # elsewhere the host would wait
            raise ValueError("DeepCluster has no pseudo-labels yet: call start_epoch before the first step.")
        targets = self.gather(targets, batch)
        logits = single(self.head(self.encode(batch)))
        weights = self.cluster_weights.to(logits.dtype) if self.class_weights else None
        return F.cross_entropy(logits, targets, weights), {"accuracy": accuracy(logits, targets)}

    def start_epoch(self, context: EpochContext) -> Iterable[nn.Parameter]:
        """Cluster the clean images and reinitialise the head.

        In data-parallel training the first process clusters for all: each has other batch-norm statistics.
        """
        began = time.perf_counter()
        context.print(f"epoch {context.epoch + 1}: clustering the training images")
        previous = self.pseudo_labels.clone().cpu()
        world = current()
        if world.rank == 0:
            self.pseudo_labels.copy_(self.cluster(context))
        if world.size > 1:
            distributed.broadcast(self.pseudo_labels, 0)
        labels = self.pseudo_labels.cpu()
        sizes = torch.bincount(labels, minlength=self.clusters)
        self.cluster_weights.copy_(1 - sizes / len(labels))
        known = "" if int(previous.min()) < 0 else f", NMI {clustering.mutual_information(previous, labels):.2f}"
        context.print(
            f"{int((sizes > 0).sum())} clusters of {len(labels)} images,"
            f" {int(sizes.min())} to {int(sizes.max())} in each{known}, {time.perf_counter() - began:.1f} s"
        )
        return self.renew(context.seed, context.epoch)

    def cluster(self, context: EpochContext) -> Tensor:
        """The cluster of each clean image, (N,)."""
        features = context.features()
        if len(features) != len(self.pseudo_labels):
            raise ValueError(f"{len(features)} features for {len(self.pseudo_labels)} images: one is needed for each.")
        return clustering.kmeans(clustering.prepare(features), self.clusters, context.seed, context.epoch)[1]

    def renew(self, seed: int, epoch: int) -> list[nn.Parameter]:
        """New weights for the head, or its last layer, from (seed, epoch) alone; the parameters stay in place.

        The last layer is reset as in the authors' code: weights from N(0, 0.01), bias 0, and the optimiser keeps its
        state, so no parameter is returned.
        """
        with seeded(rng.CLUSTER, seed, epoch):
            if self.reset == "last":
                last = cast(nn.Linear, self.head[-1])
                nn.init.normal_(last.weight, 0.0, 0.01)
                nn.init.zeros_(last.bias)
                return []
            fresh = mlp_head(self.num_features, self.hidden, self.clusters)
        self.head.load_state_dict(fresh.state_dict())  # copies in place: the optimiser still holds the same parameters
        return list(self.head.parameters())
