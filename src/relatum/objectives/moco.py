"""MoCo (He et al. 2020; Chen et al. 2020): contrastive learning against a queue of keys from a momentum encoder.

The authors compute keys on shuffled parts of the mini-batch, so that a query and its key have different batch
statistics. That is left out: statistics are those of the whole mini-batch, on any number of devices (docs/methods.md).

Shape letters: K views, M images, P size of the projection, Q keys in the queue. Row k·M + m is view k of image m.
"""

from __future__ import annotations

from itertools import permutations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from relatum.config.modern_methods import MoCoOptions
from relatum.config.settings import check
from relatum.objectives.base import Metrics, Objective, by_view, mlp_head, single
from relatum.objectives.batch import ViewsLike
from relatum.objectives.momentum import follow, frozen_copy


class MoCo(Objective):
    """−log softmax of q_a·k_b / t against q_a·n / t for all n in the queue, averaged over ordered pairs a ≠ b of views.

    With K = 2 this is the symmetric loss that the authors' CIFAR-10 demo offers as an option. The keys of all views
    enter the queue after the loss, the oldest ones leave it.

    Args:
        backbone: any module that maps (N, C, H, W) to (N, d).
        num_features: d.
        temperature: t.
        momentum: of the key encoder.
        queue: Q.
        hidden: hidden units of the projection head.
        projection: P.
    """

    min_views = 2
    min_images = 2  # the head's batch-norm needs two rows
    queue: Tensor
    position: Tensor

    def __init__(
        self,
        backbone: nn.Module,
        num_features: int,
        *,
        temperature: float = MoCoOptions.temperature,
        momentum: float = MoCoOptions.momentum,
        queue: int = MoCoOptions.queue,
        hidden: int = MoCoOptions.hidden,
        projection: int = MoCoOptions.projection,
    ) -> None:
        super().__init__(backbone, num_features)
        options = check(
            MoCoOptions(temperature=temperature, momentum=momentum, queue=queue, hidden=hidden, projection=projection)
        )
        self.temperature, self.momentum = options.temperature, options.momentum
        self.head = mlp_head(num_features, options.hidden, options.projection)
        self.target_backbone, self.target_head = frozen_copy(backbone), frozen_copy(self.head)
        self.register_buffer("queue", F.normalize(torch.randn(options.queue, options.projection), dim=1))
        self.register_buffer("position", torch.zeros((), dtype=torch.long))

    def encoders(self) -> list[nn.Module]:
        """The backbone and its moving average."""
        return [self.backbone, self.target_backbone]

    def forward(self, batch: ViewsLike) -> tuple[Tensor, Metrics]:
        """The loss, and how often the right key is nearer than every key in the queue."""
        batch = self.as_batch(batch)
        views = len(batch.views)
        queries = F.normalize(single(self.head(self.encode(batch))), dim=1)
        with torch.no_grad():
            keys = F.normalize(single(self.target_head(self.encode(batch, self.target_backbone))), dim=1)
        queue = self.queue.to(keys.dtype, copy=True)  # the queue changes before the backward pass
        loss, accuracy = moco_loss(by_view(queries, views), by_view(keys, views), queue, self.temperature)
        if self.training:
            enqueue(self.queue, self.position, keys)
        return loss, {"accuracy": accuracy}

    def after_step(self, step: int, total_steps: int) -> None:
        """The key encoder follows the query encoder."""
        follow(self.target_backbone, self.backbone, self.momentum)
        follow(self.target_head, self.head, self.momentum)


def moco_loss(queries_KMP: Tensor, keys_KMP: Tensor, queue_QP: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    """The loss over ordered pairs of views, and the share of pairs whose positive has the largest similarity."""
    with torch.autocast(queries_KMP.device.type, enabled=False):
        views = len(queries_KMP)
        positives_KKM = torch.einsum("amp,bmp->abm", queries_KMP, keys_KMP) / temperature
        negatives_KMQ = queries_KMP @ queue_QP.T / temperature
        log_sum_KKM = torch.logaddexp(positives_KKM, negatives_KMQ.logsumexp(2)[:, None])
        # Numbers of views, not a mask: on a GPU the host would wait for the number of elements that a mask selects.
        first, second = torch.tensor([*permutations(range(views), 2)], device=queries_KMP.device).T
        with torch.no_grad():
            accuracy = (positives_KKM > negatives_KMQ.amax(2)[:, None])[first, second].float().mean()
        return (log_sum_KKM - positives_KKM)[first, second].mean(), accuracy


@torch.no_grad()
def enqueue(queue_QP: Tensor, position: Tensor, keys_NP: Tensor) -> None:
    """Write keys into the ring from `position` on; of more than Q keys the last Q remain."""
    size, count = len(queue_QP), len(keys_NP)
    places = (position + torch.arange(count, device=queue_QP.device)) % size
    queue_QP[places[-size:]] = keys_NP[-size:].to(queue_QP.dtype)
    position.add_(count).remainder_(size)
