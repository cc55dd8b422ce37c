"""Self-supervised relational reasoning: tell "same image" from "different image" over pairs of views."""

from __future__ import annotations

import warnings

from torch import Tensor, nn

from relatum import relation, rng
from relatum.backbones import feature_size
from relatum.backbones.library import gives_logits
from relatum.config import Recipe
from relatum.config.methods import RelationalOptions
from relatum.config.settings import check
from relatum.errors import InputError
from relatum.objectives.base import Metrics, Objective
from relatum.objectives.batch import Batch, ViewsLike


class RelationalReasoning(Objective):
    """The paper's method: K views, a relation head over their pairs, focal cross-entropy.

    Args:
        backbone: any module that maps (N, C, H, W) to (N, d).
        num_features: d; by default `backbone.num_features`, or what a pass over two blank images gives.
        aggregation: cat, sum, mean or max.
        head: `relation`, or the ablations `dot` and `encoder`.
        negatives: `roll`, as in the authors' code, or `random`, as in the paper's pseudo-code.
        negatives_per_positive: negative pairs for each positive one; fewer in a mini-batch with fewer other images.
        gamma: focal exponent; 0 keeps the factor 1/2.
        focal: False is plain binary cross-entropy.
        hidden: hidden units of the head.
        avoid_collisions: with labels in the batch, never pair two images of one class as negatives.
        kernels: which implementation runs the pairs: auto, numba, torch or reference.

    Example:
        >>> objective = RelationalReasoning(my_network)
        >>> loss, metrics = objective(views)  # views: (K, M, C, H, W), or a list of K tensors (M, C, H, W)
    """

    needs = ("kernels",)
    min_views = 2  # a pair has two different views
    min_images = 2  # a single image has no negatives

    def __init__(
        self,
        backbone: nn.Module,
        num_features: int | None = None,
        *,
        aggregation: str = RelationalOptions.aggregation,
        head: str = RelationalOptions.head,
        negatives: str = RelationalOptions.negatives,
        negatives_per_positive: int = RelationalOptions.negatives_per_positive,
        gamma: float = RelationalOptions.gamma,
        focal: bool = RelationalOptions.focal,
        hidden: int = RelationalOptions.hidden,
        avoid_collisions: bool = RelationalOptions.avoid_collisions,
        kernels: str = "auto",
    ) -> None:
        if not isinstance(backbone, nn.Module):
            raise TypeError(
                f"the backbone is an nn.Module, not {backbone!r}; relatum.backbones.build makes one by name."
            )
        num_features = feature_size(backbone) if num_features is None else num_features
        if gives_logits(backbone):
            warnings.warn(
                "the backbone ends in a classifier of 1,000 classes: its logits are not a representation. Build it "
                'without one, for example timm.create_model("resnet18", num_classes=0), or replace its last layer '
                "by torch.nn.Identity().",
                stacklevel=2,
            )
        super().__init__(backbone, num_features)
        options = check(
            RelationalOptions(
                aggregation=aggregation,
                head=head,
                negatives=negatives,
                negatives_per_positive=negatives_per_positive,
                gamma=gamma,
                focal=focal,
                hidden=hidden,
                avoid_collisions=avoid_collisions,
            )
        )
        self.relation = relation.make_head(
            options.head, num_features, hidden=options.hidden, aggregation=options.aggregation
        )
        self.negatives, self.negatives_per_positive = options.negatives, options.negatives_per_positive
        self.gamma, self.focal = options.gamma, options.focal
        self.avoid_collisions = options.avoid_collisions
        self.kernels = "auto" if kernels == "numba" else kernels  # `max` and the ablations have no numba kernel

    @classmethod
    def check(cls, recipe: Recipe) -> None:
        """Check that labels are visible if collisions are to be avoided."""
        super().check(recipe)
        if recipe.objective.avoid_collisions and not recipe.data.labels:
            raise InputError("objective.avoid_collisions=true needs labels: add --labels FRACTION.")

    def forward(self, batch: ViewsLike) -> tuple[Tensor, Metrics]:
        """The loss over all pairs, M(K² − K) in the paper, and the accuracies on all, positive and negative pairs."""
        batch = self.as_batch(batch)
        pairs = self.pairs(batch)
        result = relation.shared_loss(
            self.relation,
            self.encode(batch),
            pairs,
            self.world,
            gamma=self.gamma,
            focal=self.focal,
            backend=self.kernels,
        )
        metrics = {
            "accuracy": result.accuracy,
            "positive_accuracy": result.positive_accuracy,
            "negative_accuracy": result.negative_accuracy,
        }
        return result.loss, metrics

    def pairs(self, batch: Batch) -> relation.Pairs:
        """The pairs of this batch."""
        views, images, ratio = batch.views.shape[0], batch.num_images, self.negatives_per_positive
        labels = None
        if self.avoid_collisions and batch.labels is not None:
            labels = self.gather(batch.labels, batch).cpu().numpy()
        if self.negatives == "roll":
            return relation.roll_pairs(views, images, labels, ratio)
        key = int(rng.key(rng.NEGATIVE, batch.seed, batch.epoch, batch.step))
        return relation.random_pairs(views, images, key, labels, ratio)

    def score(self, z_i: Tensor, z_j: Tensor, *, symmetric: bool = False) -> Tensor:
        """The relation score in [0, 1] of pairs of representations, with the head in eval mode.

        With `cat` it is not symmetric in its arguments, although the paper states so (property ii); `symmetric`
        averages both orders.
        """
        return relation.score(self.relation, z_i, z_j, symmetric=symmetric)
