"""The whole method in one file: views, backbone, relation head, loss, training, linear evaluation. Plain PyTorch.

    python examples/one_file.py

It shows how little there is to relational reasoning; relatum does the same faster. The images are coloured bars,
upright or lying, on noise: colour says nothing about the class, so a learner must look at shape.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

K, M, SIDE, STEPS = 4, 32, 16, 150  # views per image, images per step, pixels, training steps


def make_images(n: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Images (n, 3, SIDE, SIDE) in [0, 1] and their classes."""
    images = torch.rand(n, 3, SIDE, SIDE, generator=generator) * 0.4
    labels = torch.randint(0, 2, (n,), generator=generator)
    for image, label in zip(images, labels, strict=True):
        y, x = torch.randint(2, SIDE - 5, (2,), generator=generator).tolist()
        colour = torch.rand(3, 1, 1, generator=generator) * 0.6 + 0.4
        if label == 0:
            image[:, 2:-2, x : x + 3] = colour
        else:
            image[:, y : y + 3, 2:-2] = colour
    return images, labels


def make_views(images: Tensor, generator: torch.Generator) -> Tensor:
    """A random view of each image: flip, shift, brightness, grayscale."""
    views = images.clone()
    for view in views:
        if torch.rand((), generator=generator) < 0.5:
            view.copy_(view.flip(2))
        shift = torch.randint(-3, 4, (2,), generator=generator).tolist()
        view.copy_(view.roll(shift, dims=(1, 2)))
        view.mul_(torch.rand((), generator=generator) * 1.6 + 0.2).clamp_(0, 1)
        if torch.rand((), generator=generator) < 0.2:
            view.copy_(view.mean(0, keepdim=True).expand_as(view))
    return views


class Backbone(nn.Sequential):
    """A small convolutional network: (N, 3, H, W) to (N, 32)."""

    def __init__(self) -> None:
        super().__init__(
            *(nn.Conv2d(3, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU(), nn.AvgPool2d(2)),
            *(nn.Conv2d(16, 32, 3, padding=1, bias=False), nn.BatchNorm2d(32), nn.ReLU()),
            *(nn.AdaptiveAvgPool2d(1), nn.Flatten()),
        )


def make_pairs(z_KMd: Tensor) -> tuple[Tensor, Tensor]:
    """All pairs of views, aggregated by concatenation, with their targets: 1 same image, 0 different image."""
    pairs, targets, shift = [], [], 1
    for i in range(K):
        for j in range(i + 1, K):
            pairs.append(torch.cat([z_KMd[i], z_KMd[j]], 1))  # intra-reasoning
            pairs.append(torch.cat([z_KMd[i], z_KMd[j].roll(shift, 0)], 1))  # inter-reasoning: the batch, rolled
            targets += [torch.ones(M), torch.zeros(M)]
            shift = shift % (M - 1) + 1  # never 0 and never M: no image meets itself
    return torch.cat(pairs), torch.cat(targets)


def focal_loss(logits: Tensor, targets: Tensor, gamma: float = 2.0) -> Tensor:
    """Binary cross-entropy, weighted by ½(1 − p_t)^γ: more for pairs that the head is unsure of."""
    p = torch.sigmoid(logits)
    unsure = targets * (1 - p) + (1 - targets) * p
    return (0.5 * unsure**gamma * F.binary_cross_entropy_with_logits(logits, targets, reduction="none")).mean()


def linear_evaluation(backbone: nn.Module, train: tuple[Tensor, Tensor], test: tuple[Tensor, Tensor]) -> float:
    """Accuracy in percent of a linear classifier on frozen features."""
    backbone.eval()
    with torch.no_grad():
        z_train, z_test = backbone(train[0]), backbone(test[0])
    classifier = nn.Linear(z_train.shape[1], 2)
    optimizer = torch.optim.Adam(classifier.parameters(), 1e-2)
    for _ in range(200):
        optimizer.zero_grad()
        F.cross_entropy(classifier(z_train), train[1]).backward()
        optimizer.step()
    return 100 * (classifier(z_test).argmax(1) == test[1]).float().mean().item()


def main() -> tuple[float, float]:
    """Train, and compare with the same backbone before training."""
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(0)
    train, test = make_images(512, generator), make_images(512, generator)
    backbone = Backbone()
    head = nn.Sequential(nn.Linear(64, 256), nn.BatchNorm1d(256), nn.LeakyReLU(), nn.Linear(256, 1))
    before = linear_evaluation(backbone, train, test)
    optimizer = torch.optim.Adam([*backbone.parameters(), *head.parameters()], 1e-3)
    backbone.train()
    for step in range(STEPS):
        selected = train[0][torch.randint(0, len(train[0]), (M,), generator=generator)]
        views = torch.stack([make_views(selected, generator) for _ in range(K)])
        z_KMd = backbone(views.flatten(0, 1)).unflatten(0, (K, M))  # one pass over all views
        pairs, targets = make_pairs(z_KMd)
        loss = focal_loss(head(pairs).squeeze(1), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 50 == 49:
            print(f"step {step + 1}: loss {loss.item():.4f}")
    after = linear_evaluation(backbone, train, test)
    print(f"linear accuracy: {before:.1f} % before, {after:.1f} % after learning without labels")
    return before, after


if __name__ == "__main__":
    main()
