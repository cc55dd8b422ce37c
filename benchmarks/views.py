"""Views a second against a lean Pillow chain (and kornia, torchvision where installed), at 32 and 96 pixels.

    python benchmarks/views.py

reads CIFAR-10 if it is in the data root, else made-up images, and prints one JSON document.
"""

import json

import numpy as np

from relatum import registry
from relatum.bench.views import measure
from relatum.errors import RelatumError


def main() -> None:
    try:
        images = registry.resolve(registry.DATASETS["cifar10"].target)("cifar10", "train", root=None).images
    except (RelatumError, ImportError):
        images = None
    large = None if images is None else np.repeat(np.repeat(images[:512], 3, axis=1), 3, axis=2)
    results = [
        measure(views=32, batch_size=64, side=32, images=images),
        measure(views=25, batch_size=16, side=96, images=large, plain_views=128),
    ]
    print(json.dumps(results, indent=2))


if __name__ == "__main__":
    main()
