"""The figures of docs/how-it-works.md, made with the method itself: `python docs/figures.py`, about two minutes.

A small network is trained on the built-in images in a plain loop. `make docs` does not run it.
"""

from __future__ import annotations

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import torch
from numpy.typing import NDArray

import relatum
from relatum import backbones

PICTURES = Path(__file__).parent / "pictures"
STEPS, BATCH, K = 400, 64, 4
IMAGES = 8  # in the matrices of scores
BLUE, ORANGE = "#0077BB", "#EE7733"


def views_figure(pixels: NDArray[np.uint8]) -> None:
    """Four images and seven views of each."""
    views = relatum.views.Views("relational", number=7, seed=1)
    shown = (views(pixels[:4]) * 0.25 + 0.5).clip(0, 1).permute(1, 0, 3, 4, 2).numpy()
    figure, axes = plt.subplots(4, 8, figsize=(8, 4.2))
    for row in range(4):
        for column in range(8):
            axes[row, column].imshow(pixels[row] if column == 0 else shown[row, column - 1])
            axes[row, column].axis("off")
    axes[0, 0].set_title("image", fontsize=9)
    axes[0, 4].set_title("seven random views of it", fontsize=9)
    save(figure, "views.png")


def scores(
    objective: relatum.RelationalReasoning, network: torch.nn.Module, views: torch.Tensor
) -> NDArray[np.float32]:
    """The relation score of every ordered pair of views (K, M, ...), sorted by image."""
    network.eval()
    objective.eval()
    with torch.no_grad():
        z = network(views.transpose(0, 1).flatten(0, 1))
        n = len(z)
        matrix = objective.score(z.repeat_interleave(n, 0), z.repeat(n, 1)).reshape(n, n).numpy()
    network.train()
    objective.train()
    return matrix


def main() -> None:
    """Train, and draw the figures."""
    torch.manual_seed(1)
    PICTURES.mkdir(exist_ok=True)
    pixels = np.asarray(relatum.data.load("shapes").images)
    views_figure(pixels)
    network = backbones.build("conv4", seed=1)
    objective = relatum.RelationalReasoning(network)
    views = relatum.views.Views("relational", number=K, seed=1)
    few = views(pixels[-IMAGES:])
    before = scores(objective, network, few)
    optimizer = torch.optim.Adam(objective.parameters(), lr=1e-3)
    losses = []
    for step in range(STEPS):
        chosen = np.random.default_rng(step).choice(len(pixels) - IMAGES, BATCH, replace=False)
        loss, _ = objective(relatum.views.Views("relational", number=K, seed=step + 2)(pixels[chosen]))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    scores_figure(before, scores(objective, network, few))
    loss_figure(losses)


def scores_figure(before: NDArray[np.float32], after: NDArray[np.float32]) -> None:
    """The targets, and the scores before and after training, as matrices of pairs."""
    targets = np.kron(np.eye(IMAGES), np.ones((K, K)))
    figure, axes = plt.subplots(1, 3, figsize=(9, 3.3), layout="constrained")
    titles = ("target: same image?", "score before training", f"score after {STEPS} steps")
    for axis, matrix, title in zip(axes, (targets, before, after), titles, strict=True):
        drawn = axis.imshow(matrix, vmin=0, vmax=1, cmap="cividis")
        axis.set_title(title, fontsize=10)
        axis.set_xticks([])
        axis.set_yticks([])
        axis.set_xlabel(f"{K} views of each of {IMAGES} images", fontsize=8)
    figure.colorbar(drawn, ax=axes, shrink=0.8)
    save(figure, "scores.png")


def loss_figure(losses: list[float]) -> None:
    """The loss over the steps, and its mean over 20 steps."""
    figure, axis = plt.subplots(figsize=(6, 2.6), layout="constrained")
    axis.plot(losses, color=BLUE, alpha=0.3)
    axis.plot(np.arange(19, len(losses)), np.convolve(losses, np.ones(20) / 20, "valid"), color=ORANGE)
    axis.set_xlabel("step")
    axis.set_ylabel("focal loss")
    axis.spines[["top", "right"]].set_visible(False)
    save(figure, "loss.png")


def save(figure: plt.Figure, name: str) -> None:
    """Write a figure to docs/pictures."""
    figure.savefig(PICTURES / name, dpi=110, metadata={"Software": None})
    plt.close(figure)


if __name__ == "__main__":
    main()
