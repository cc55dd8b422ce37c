"""The pixels of a step, on the device that computes its views: all images, or those of the step as bytes.

All images are available if they are in memory or in a memory map, or if they fit in GPU memory. Otherwise the bytes of
the step's images are copied to the GPU. Images of a stream are decoded in threads, some steps ahead.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from relatum.data.stream.images import StreamedImages, is_streamed

_BYTES = 64 << 20  # decoded pixels that may wait
_LEAST, _MOST = 2, 32  # steps that are decoded ahead
Numbers = NDArray[np.int64]


@dataclass(frozen=True)
class StepPixels:
    """The pixels that the views of a step are computed from.

    Attributes:
        rows: (R, H, W, 3) uint8, an array or a tensor on the device that makes the views.
        indices: (M,) the images of the mini-batch; not those that were drawn where these cannot be decoded.
        slots: (M,) the row of each image of the mini-batch.
        sources: (K, M) the row behind each view.
    """

    rows: Any
    indices: Numbers
    slots: Numbers
    sources: Numbers


class PixelSource:
    """Gives the pixels of any step.

    Args:
        images: (N, H, W, 3) uint8: an array, a memory map or a stream.
        sources: gives the images of a step, (M,), and the image behind each view, (K, M); a pure function.
        steps: the number of steps of the run: nothing is decoded beyond.
        device: where views are computed, if it is a GPU.
    """

    def __init__(
        self,
        images: NDArray[np.uint8] | StreamedImages,
        sources: Callable[[int], tuple[Numbers, Numbers]],
        steps: int,
        device: torch.device,
    ) -> None:
        self._images, self._sources, self._device = images, sources, device
        self._ahead = DecodedAhead(images, self._needed, steps) if is_streamed(images) else None
        self._all = self._everything()

    def get(self, step: int) -> StepPixels:
        """The pixels of a step."""
        indices, source_KM = self._sources(step)
        if self._all is not None:
            return StepPixels(self._all, indices, indices, source_KM)
        if self._ahead is not None:
            needed, rows, actual = self._ahead.get(step)
        else:
            needed = self._needed(step)
            rows, actual = self._images[needed], needed
        slots = np.searchsorted(needed, indices)
        return StepPixels(self._upload(rows), actual[slots], slots, np.searchsorted(needed, source_KM))

    def close(self) -> None:
        """Stop decoding ahead; any step can still be read."""
        if self._ahead is not None:
            self._ahead.close()

    def _needed(self, step: int) -> Numbers:
        indices, source_KM = self._sources(step)
        return np.unique(np.concatenate([indices, source_KM.reshape(-1)]))

    def _everything(self) -> Any:
        """All images where views are computed, or None: in the memory of a GPU if they take less than half of it."""
        if is_streamed(self._images):
            return None
        if self._device.type != "cuda":
            return self._images
        free, _ = torch.cuda.mem_get_info(self._device)
        if self._images.nbytes > free // 2:
            return None
        return torch.from_numpy(np.ascontiguousarray(self._images)).to(self._device)

    def _upload(self, rows: NDArray[np.uint8]) -> Any:
        if self._device.type != "cuda":
            return rows
        return torch.from_numpy(rows).pin_memory().to(self._device, non_blocking=True)


class DecodedAhead:
    """Decodes the images of a step of a stream and, in the background, of the steps after it.

    Args:
        images: the stream.
        needed: the images of a step, in rising order; a pure function.
        steps: the number of steps of the run.
    """

    def __init__(self, images: StreamedImages, needed: Callable[[int], Numbers], steps: int) -> None:
        self._images, self._needed, self._steps = images, needed, steps
        self._waiting: dict[int, Future[Any]] = {}
        self._last = -1
        # One thread asks for steps in turn; the stream's own threads decode the images of a step.
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="relatum-ahead")

    def get(self, step: int) -> tuple[Numbers, NDArray[np.uint8], Numbers]:
        """The images of a step, their pixels, and which images these pixels are of (see `StreamedImages.rows`)."""
        waiting = self._waiting.pop(step, None)
        needed, rows, actual = self._decode(step) if waiting is None else waiting.result()
        in_turn, self._last = step == self._last + 1, step
        if not in_turn:  # a single step, or the first one of a run
            return needed, rows, actual
        ahead = min(_MOST, max(_LEAST, _BYTES // max(1, rows.nbytes)))
        for other in [number for number in self._waiting if not step < number <= step + ahead]:
            self._waiting.pop(other).cancel()
        for number in range(step + 1, min(step + ahead + 1, self._steps)):
            if number not in self._waiting:
                self._waiting[number] = self._pool.submit(self._decode, number)
        return needed, rows, actual

    def close(self) -> None:
        """Cancel what waits, so that a process that stops does not decode it first."""
        while self._waiting:
            self._waiting.popitem()[1].cancel()

    def _decode(self, step: int) -> tuple[Numbers, NDArray[np.uint8], Numbers]:
        needed = self._needed(step)
        return (needed, *self._images.rows(needed))
