"""Your own training loop around relatum's objective, with relatum's fast views.

python examples/custom_loop.py
"""

from __future__ import annotations

import numpy as np
import torch

import relatum
from relatum import backbones, data, views


def main(steps: int = 20) -> list[float]:
    """Train for some steps and return the losses."""
    images = data.load("shapes", "train")
    objective = relatum.RelationalReasoning(backbones.build("conv4", seed=1), num_features=64)
    optimizer = torch.optim.Adam(objective.parameters(), 1e-3)
    generator = np.random.default_rng(1)
    losses = []
    for step in range(steps):
        selected = generator.integers(0, len(images), 32)
        params = views.sample(  # K = 8 views of each of 32 images: first the random parameters ...
            views.POLICIES["relational"],
            seed=1,
            epoch=step,
            indices=selected,
            views=8,
            height=32,
            width=32,
            pad=4,
            side=32,
        )
        batch = views.make_views(  # ... then the pixels
            images.images, np.tile(selected, 8), params, side=32, mean=images.mean, std=images.std
        )
        loss, metrics = objective(batch.reshape(8, 32, *batch.shape[1:]))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        if step % 5 == 4:
            print(f"step {step + 1}: loss {losses[-1]:.4f}, accuracy {metrics['accuracy']:.3f}")
    return losses


if __name__ == "__main__":
    main()
