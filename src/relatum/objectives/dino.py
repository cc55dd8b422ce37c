"""DINO (Caron et al. 2021): match the centred and sharpened output of a momentum teacher on another view.

Shape letters: K views, L ≥ K views with the small ones, M images, C prototypes. Row k·M + m is view k of image m.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from relatum.config.modern_methods import DINOOptions
from relatum.config.settings import check
from relatum.objectives.agreement import mean_cross_entropy
from relatum.objectives.base import Metrics, Objective, by_view, mlp_head
from relatum.objectives.batch import ViewsLike
from relatum.objectives.momentum import cosine_momentum, follow, frozen_copy
from relatum.objectives.prototypes import Prototypes


class DINO(Objective):
    """−Σ_c softmax((t_a − centre)/τ_t)_c log softmax(s_b/τ_s)_c, averaged over pairs of a teacher's and another view.

    The teacher sees the K views, the student also the small ones. The head is the paper's MLP, then an L2-normalised
    bottleneck and prototypes of unit length; the authors' has GELU and no batch-norm.

    Args:
        backbone: any module that maps (N, C, H, W) to (N, d).
        num_features: d.
        prototypes: C.
        temperature: τ_s.
        target_temperature: τ_t.
        center_momentum: momentum of the centre, a moving average of the teacher's outputs.
        momentum: of the teacher at the first step; it rises to 1 along a cosine.
        freeze_epochs: epochs at the start in which the prototypes are not trained.
        hidden: hidden units of the head.
        projection: size of the bottleneck.
        layers: linear layers of the head before the prototypes.
    """

    min_views = 2
    min_images = 2  # the head's batch-norm needs two rows
    uses_small_views = True
    center: Tensor

    def __init__(
        self,
        backbone: nn.Module,
        num_features: int,
        *,
        prototypes: int = DINOOptions.prototypes,
        temperature: float = DINOOptions.temperature,
        target_temperature: float = DINOOptions.target_temperature,
        center_momentum: float = DINOOptions.center_momentum,
        momentum: float = DINOOptions.momentum,
        freeze_epochs: int = DINOOptions.freeze_epochs,
        hidden: int = DINOOptions.hidden,
        projection: int = DINOOptions.projection,
        layers: int = DINOOptions.layers,
    ) -> None:
        super().__init__(backbone, num_features)
        options = check(
            DINOOptions(
                prototypes=prototypes,
                temperature=temperature,
                target_temperature=target_temperature,
                center_momentum=center_momentum,
                momentum=momentum,
                freeze_epochs=freeze_epochs,
                hidden=hidden,
                projection=projection,
                layers=layers,
            )
        )
        self.temperature, self.target_temperature = options.temperature, options.target_temperature
        self.center_momentum, self.momentum = options.center_momentum, options.momentum
        self.freeze_epochs, self.skips_parameters = options.freeze_epochs, options.freeze_epochs > 0
        self.head = mlp_head(num_features, options.hidden, options.projection, options.layers)
        self.prototypes = Prototypes(options.projection, options.prototypes)
        self.chance_loss = math.log(options.prototypes)
        self.target_backbone, self.target_head = frozen_copy(backbone), frozen_copy(self.head)
        self.target_prototypes = frozen_copy(self.prototypes)
        self.register_buffer("center", torch.zeros(options.prototypes))

    def encoders(self) -> list[nn.Module]:
        """The student's backbone and the teacher's."""
        return [self.backbone, self.target_backbone]

    def forward(self, batch: ViewsLike) -> tuple[Tensor, Metrics]:
        """The loss, and the entropy of the teacher's outputs: 0 or log C in the long run means collapse."""
        batch = self.as_batch(batch)
        frozen = batch.epoch < self.freeze_epochs
        student = self.prototypes(self.head(self.encode_all(batch)), frozen=frozen)
        log_p = F.log_softmax(student / self.temperature, dim=1)
        with torch.no_grad():
            teacher = self.target_prototypes(self.target_head(self.encode(batch, self.target_backbone)))
            targets = F.softmax((teacher - self.center) / self.target_temperature, dim=1)
            entropy = torch.special.entr(targets).sum(1).mean()
            if self.training:
                self.center.lerp_(teacher.mean(0).to(self.center.dtype), 1 - self.center_momentum)
        targets_KMC = by_view(targets, len(batch.views))
        loss = mean_cross_entropy(targets_KMC, by_view(log_p, batch.all_views))
        return loss, {"target_entropy": entropy}

    def after_step(self, step: int, total_steps: int) -> None:
        """The teacher follows the student."""
        momentum = cosine_momentum(self.momentum, step, total_steps)
        follow(self.target_backbone, self.backbone, momentum)
        follow(self.target_head, self.head, momentum)
        follow(self.target_prototypes, self.prototypes, momentum)
