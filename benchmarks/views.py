"""Views per second compared with a Pillow chain (and kornia and torchvision if installed), at 32 and 96 pixels.

    python benchmarks/views.py

Reads CIFAR-10 if it is in the data root, else `shapes`, and prints one JSON document.
"""

import json

from relatum.bench import real_images
from relatum.bench.views import measure

if __name__ == "__main__":
    results = [
        measure(real_images(32).images, views=32, batch_size=64, side=32),
        measure(real_images(96).images, views=25, batch_size=16, side=96, plain_views=128),
    ]
    print(json.dumps(results, indent=2))
