"""`relatum bench`: relatum compared with a straightforward PyTorch implementation, timed in one process."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from relatum.errors import InputError, unknown

if TYPE_CHECKING:
    from relatum.data import ImageSet

BENCHES = ("views", "head", "step")


def run(what: str, **options: Any) -> dict[str, Any]:
    """Run one benchmark by its name; options that are None take its defaults."""
    if what not in BENCHES:
        raise unknown("benchmark", what, BENCHES)
    options = {name: value for name, value in options.items() if value is not None}
    for name in ("views", "batch_size", "side", "repeats"):
        least = 2 if what == "head" and name in ("views", "batch_size") else 1  # a pair has two views, or two images
        if options.get(name, least) < least:
            flag = f"--{name.replace('_', '-')} {options[name]}"
            raise InputError(f"{flag} is out of range: it must be at least {least}.")
    if what == "step":
        from relatum.bench.step import measure

        return measure(**options)
    sizes = {name: options[name] for name in ("views", "batch_size", "repeats") if name in options}
    if what == "views":
        from relatum.bench.views import measure as measure_views

        side = options.get("side", 32)
        return measure_views(real_images(side, options.get("root")).images, side=side, **sizes)
    from relatum.bench.head import measure as measure_head

    return measure_head(**sizes)


def real_images(side: int | None, root: Any = None) -> ImageSet:
    """CIFAR-10's training images if they are on disk, else `shapes`; with `side`, the first 2,048 of them, resized."""
    import numpy as np

    from relatum import data
    from relatum.data.loading import resized
    from relatum.data.sets.cifar import CIFAR10
    from relatum.data.sets.shapes import SHAPES

    try:
        images = data.load(CIFAR10.name, "train", root=root)
    except InputError:
        images = data.load(SHAPES.name, "train")
    if side is None or side == images.side:
        return images
    return resized(images.subset(np.arange(min(len(images), 2048))), side)


def spread(seconds: Sequence[float]) -> dict[str, float]:
    """Quartiles and extremes of measured times."""
    import numpy as np

    low, first, third, high = np.percentile(seconds, (0, 25, 75, 100)).tolist()
    return {"min": low, "q1": first, "q3": third, "max": high, "n": len(seconds)}
