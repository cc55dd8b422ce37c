"""Deep InfoMax (Hjelm et al. 2019), the local version with a prior (α = 0, β = 1, γ = 0.1).

The stem's map and the representation come from one pass. The discriminators are those of the authors' code: 1×1
convolutions 256-256-1 on [map, representation], and 512-128-1 for the prior.

Shape letters: N = K·M views, c channels of the map, L = H·W places of it, d features, h hidden channels.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from relatum import rng
from relatum.backbones.base import blank_images, evaluating
from relatum.config.methods import DeepInfoMaxOptions
from relatum.config.settings import check
from relatum.errors import InputError
from relatum.objectives.base import Metrics, Objective, single
from relatum.objectives.batch import Batch, ViewsLike

CACHE = 2**20  # floats of one hidden layer that are worked on at a time: 4 MB, the fastest of 2 to 32 MB on two cores


class DeepInfoMax(Objective):
    """Mutual information between the places of the first feature map and the representation, and a uniform prior.

    Local term: softplus(−T(M, y)) + softplus(T(M′, y)), the Jensen-Shannon estimator, where M′ is the map of the next
    image of the mini-batch. Prior term: the loss of a discriminator that tells y from uniform draws in [0, 1]^d.
    With `adversarial` that term reaches the encoder with its sign reversed: the discriminator minimises it, the encoder
    maximises it, which is the minimax game of Hjelm et al. in one loss. Without, both minimise it, as in the authors'
    code, so that the encoder is drawn away from the prior.

    The prior is matched by y itself, without a sigmoid: the backbones end in a mean of ReLUs, whose sigmoid would lie
    in [½, 1) and could not be uniform on [0, 1].

    Args:
        backbone: a module with `stem(x)`, the first feature map, and `body(map)`, the representation.
        num_features: d.
        beta: weight of the local term.
        gamma: weight of the prior term.
        adversarial: False is the authors' code.
        hidden: channels of the local discriminator.
        locations: how many places of the map a step looks at, drawn at random; None is all of them.
        side: of the views, in pixels.
    """

    needs = ("side",)
    min_images = 2  # the negatives are the maps of other images

    def __init__(
        self,
        backbone: nn.Module,
        num_features: int,
        *,
        beta: float = DeepInfoMaxOptions.beta,
        gamma: float = DeepInfoMaxOptions.gamma,
        adversarial: bool = DeepInfoMaxOptions.adversarial,
        hidden: int = DeepInfoMaxOptions.hidden,
        locations: int | None = DeepInfoMaxOptions.locations,
        side: int = 32,
    ) -> None:
        super().__init__(backbone, num_features)
        options = check(
            DeepInfoMaxOptions(beta=beta, gamma=gamma, adversarial=adversarial, hidden=hidden, locations=locations)
        )
        self.beta, self.gamma = options.beta, options.gamma
        self.adversarial, self.locations = options.adversarial, options.locations
        self.local = LocalDiscriminator(_map_channels(backbone, num_features, side), num_features, options.hidden)
        self.prior = nn.Sequential(
            nn.Linear(num_features, 512), nn.ReLU(), nn.Linear(512, 128), nn.ReLU(), nn.Linear(128, 1)
        )

    def forward(self, batch: ViewsLike) -> tuple[Tensor, Metrics]:
        """β · local + γ · prior, and the two terms."""
        batch = self.as_batch(batch)
        first_map = self.backbone.stem(batch.views.flatten(0, 1))  # type: ignore[operator]
        y = self.gather(self.backbone.body(first_map), batch)  # type: ignore[operator]
        # The local discriminator is nine tenths of a step: each process runs it on its own views only.
        matching, other = (self.world.own_rows(rows, len(batch.views)) for rows in (y, y.roll(1, 0)))
        share = self.world.size * len(matching) / len(y)
        local = share * local_loss(self.local, self.places(first_map, batch), matching, other)
        prior = prior_loss(self.prior, y, uniform_prior(y, batch), adversarial=self.adversarial)
        return self.beta * local + self.gamma * prior, {
            "local": self.world.mean(local.detach()),
            "prior": prior.detach(),
        }

    def places(self, first_map: Tensor, batch: Batch) -> Tensor:
        """The map as rows (N, L, c), of all places or of those drawn for this step (the same in every view)."""
        rows = first_map.flatten(2).transpose(1, 2)
        if self.locations is None or self.locations >= rows.shape[1]:
            return rows
        key = int(rng.key(rng.PRIOR, batch.seed, batch.epoch, batch.step, 1).astype(np.int64))
        places = np.sort(rng.permutation(rows.shape[1], key)[: self.locations])
        return rows[:, torch.from_numpy(places).to(rows.device)]

    def accelerate(self, compile: Callable[[nn.Module], Any]) -> None:
        """Nothing is compiled: the local discriminator takes nine tenths of a Conv-4 step, and it is large products."""


class LocalDiscriminator(nn.Module):
    """T(M, y): 1×1 convolutions h-h-1 with ReLUs on the map with y appended at each place.

    The first layer on [M, y] splits into a layer on M, once per place, and one on y, once per view; negatives reuse
    both, so that [M, y] and [M′, y] are never stored.
    """

    def __init__(self, channels: int, num_features: int, hidden: int) -> None:
        super().__init__()
        self.channels = channels
        self.linear1 = nn.Linear(channels + num_features, hidden)
        self.linear2 = nn.Linear(hidden, hidden)
        self.linear3 = nn.Linear(hidden, 1)

    def forward(self, map_NLc: Tensor, y: Tensor, other: Tensor) -> tuple[Tensor, Tensor]:
        """T of each place with its own y, and with the y of another image: (N, L) each."""
        weight = self.linear1.weight
        from_map = F.linear(map_NLc, weight[:, : self.channels], self.linear1.bias)
        with_y, with_other = (F.linear(v, weight[:, self.channels :])[:, None, :] for v in (y, other))
        return self._rest(from_map + with_y), self._rest(from_map + with_other)

    def _rest(self, hidden_NLh: Tensor) -> Tensor:
        return self.linear3(F.relu(self.linear2(F.relu(hidden_NLh)))).squeeze(-1)


def local_loss(discriminator: LocalDiscriminator, map_NLc: Tensor, y: Tensor, other: Tensor) -> Tensor:
    """The mean of softplus(−T(M, y)) + softplus(T(M′, y)) over all places of all views.

    Rolling y by one against M gives the same pairs as rolling M by one against y, (M_{n+1}, y_n), and is cheaper.
    As row k·M + m is of image m, the neighbour is always of another image.
    """
    apply: Any = _InChunks.apply
    loss: Tensor = apply(discriminator, map_NLc, y, other, *discriminator.parameters())
    return loss


def jensen_shannon(positive: Tensor, negative: Tensor) -> Tensor:
    """The sum of softplus(−T) over positives and of softplus(T) over negatives."""
    return F.softplus(-single(positive)).sum() + F.softplus(single(negative)).sum()


class _InChunks(torch.autograd.Function):
    """The local loss with its gradients in one sweep over chunks of views: what is kept is a chunk, not N·L·h floats.

    Nothing follows the loss but a sum, so the gradients can be taken at once. A step of Conv-4 with M = 128 at 32×32
    takes 0.5 GB and 0.9 s on two cores instead of 1.3 GB and 1.6 s, as a chunk stays in the cache.
    """

    @staticmethod
    def forward(  # type: ignore[override]
        ctx: Any, discriminator: LocalDiscriminator, map_NLc: Tensor, y: Tensor, other: Tensor, *parameters: Tensor
    ) -> Tensor:
        views, places = map_NLc.shape[:2]
        floats = CACHE if map_NLc.device.type == "cpu" else 64 * CACHE
        size = max(1, floats // (places * discriminator.linear1.out_features))
        inputs = (map_NLc, y, other)
        gradients = [torch.zeros_like(t) for t in (*inputs, *parameters)]
        total = single(y.new_zeros(()))
        for start in range(0, views, size):
            part = slice(start, start + size)
            with torch.enable_grad():
                leaves = [t[part].detach().requires_grad_() for t in inputs]
                # A sum: divided by N·L at the end, half-precision gradients do not underflow.
                loss = jensen_shannon(*discriminator(*leaves))
            total += loss.detach()
            if any(ctx.needs_input_grad):
                for number, gradient in enumerate(torch.autograd.grad(loss, (*leaves, *parameters))):
                    gradients[number][part if number < len(inputs) else slice(None)] += gradient
        ctx.save_for_backward(*gradients)
        ctx.count = max(1, views * places)  # a process may have no view of a short mini-batch
        return total / ctx.count

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, outer: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        return (None, *(gradient * (outer / ctx.count).to(gradient.dtype) for gradient in ctx.saved_tensors))


def prior_loss(discriminator: nn.Module, y: Tensor, prior: Tensor, *, adversarial: bool) -> Tensor:
    """−log D(prior) − log(1 − D(y)); with `adversarial` its gradient enters y with the sign reversed."""
    if adversarial:
        y = 2 * y.detach() - y  # the value is y, exactly; the gradient is that of -y
    return F.softplus(-single(discriminator(prior))).mean() + F.softplus(single(discriminator(y))).mean()


def uniform_prior(y: Tensor, batch: Batch) -> Tensor:
    """Uniform draws in [0, 1) of the shape of y: a pure function of (seed, epoch, step)."""
    keys = rng.key(rng.PRIOR, batch.seed, batch.epoch, batch.step, 0)
    return torch.from_numpy(rng.uniform(keys, np.arange(y.numel()).reshape(y.shape))).to(y.device, y.dtype)


def _map_channels(backbone: nn.Module, num_features: int, side: int) -> int:
    """The channels of the stem's map, from a pass over two blank images in eval mode."""
    name = type(backbone).__name__
    if not (callable(getattr(backbone, "stem", None)) and callable(getattr(backbone, "body", None))):
        raise InputError(
            f"Deep InfoMax compares the first feature map with the representation: {name} needs"
            " stem(x), which gives the map, and body(map), which gives the representation."
        )
    with torch.no_grad(), evaluating(backbone):
        first_map = backbone.stem(blank_images(backbone, side))  # type: ignore[operator]
        if first_map.ndim != 4:
            raise InputError(f"Deep InfoMax needs a map (N, c, H, W); {name}.stem gives {tuple(first_map.shape)}.")
        y = backbone.body(first_map)  # type: ignore[operator]
    if y.shape != (2, num_features):
        raise InputError(f"num_features is {num_features}, but {name}.body gives {tuple(y.shape[1:])} per view.")
    return int(first_map.shape[1])
