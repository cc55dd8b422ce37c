"""SimCLR (Chen et al. 2020) with the head, views and optimiser of the paper's comparison.

Shape letters: K views, M images, P size of the projection. Row k·M + m is view k of image m.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from relatum.config.methods import SimCLROptions
from relatum.config.settings import check
from relatum.objectives.base import Metrics, Objective, mlp_head, single
from relatum.objectives.batch import ViewsLike


class SimCLR(Objective):
    """Contrastive learning: a view must recognise the other views of its image among all views of the mini-batch.

    With K = 2 this is NT-Xent. With K > 2 every ordered pair of views (a, b) of one image is a positive, with the
    probability p(b | a) = exp(s_ab / t) / Σ_{c ≠ a} exp(s_ac / t) over all K·M − 1 other views, and the loss is the
    mean of −log p over the M·K(K − 1) positives (`nt-xent`), or −log of the mean of p (`log-mean`, the authors' code).

    Args:
        backbone: any module that maps (N, C, H, W) to (N, d).
        num_features: d.
        temperature: t.
        loss: `nt-xent` or `log-mean`.
        hidden: hidden units of the projection head.
        projection: size of the projection.
    """

    min_views = 2  # a positive is another view
    min_images = 2  # with one image there is nothing to tell apart

    def __init__(
        self,
        backbone: nn.Module,
        num_features: int,
        *,
        temperature: float = SimCLROptions.temperature,
        loss: str = SimCLROptions.loss,
        hidden: int = SimCLROptions.hidden,
        projection: int = SimCLROptions.projection,
    ) -> None:
        super().__init__(backbone, num_features)
        options = check(SimCLROptions(temperature=temperature, loss=loss, hidden=hidden, projection=projection))
        self.temperature, self.loss = options.temperature, options.loss
        self.head = mlp_head(num_features, options.hidden, options.projection)

    def forward(self, batch: ViewsLike) -> tuple[Tensor, Metrics]:
        """The contrastive loss, and the share of views whose nearest neighbour is another view of their image."""
        batch = self.as_batch(batch)
        projections = self.head(self.encode(batch))
        log_p, accuracy = log_probabilities(projections, batch.views.shape[0], self.temperature)
        loss = nt_xent(log_p) if self.loss == "nt-xent" else log_mean(log_p)
        return loss, {"accuracy": accuracy}


def log_probabilities(projections: Tensor, views: int, temperature: float) -> tuple[Tensor, Tensor]:
    """Log-probability of view l of an image given view k of it, (K, K, M), and how often the neighbour is of the image.

    One (K·M)² matrix of similarities serves all. In single precision at least, whatever autocast says.
    """
    with torch.autocast(projections.device.type, enabled=False):
        z = F.normalize(single(projections), dim=1) * temperature**-0.5  # so that products are similarities / t
        images = len(z) // views
        similarity = z @ z.T
        similarity.fill_diagonal_(-torch.inf)
        log_norm = similarity.logsumexp(1)
        z_KMP = z.view(views, images, -1)
        positives_KKM = torch.einsum("kmp,lmp->klm", z_KMP, z_KMP)
        with torch.no_grad():
            image = torch.arange(len(z), device=z.device) % images
            accuracy = (similarity.argmax(1) % images == image).float().mean()
        return positives_KKM - log_norm.view(views, 1, images), accuracy


def nt_xent(log_p_KKM: Tensor) -> Tensor:
    """The mean of −log p over all ordered pairs of two different views of one image."""
    views, _, images = log_p_KKM.shape
    return -log_p_KKM.masked_fill(_same_view(log_p_KKM), 0.0).sum() / (images * views * (views - 1))


def log_mean(log_p_KKM: Tensor) -> Tensor:
    """−log of the mean of p over the same pairs: the loss of the authors' code."""
    views, _, images = log_p_KKM.shape
    total = log_p_KKM.masked_fill(_same_view(log_p_KKM), -torch.inf).flatten().logsumexp(0)
    return torch.log(total.new_tensor(float(images * views * (views - 1)))) - total


def _same_view(log_p_KKM: Tensor) -> Tensor:
    return torch.eye(len(log_p_KKM), dtype=torch.bool, device=log_p_KKM.device)[:, :, None]
