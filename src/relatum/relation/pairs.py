"""The pairs of views to compare: a list of pairs is plain data, two index arrays and targets.

For every two views i < j, image n's view i meets its own view j (a positive) and another image's view j (a negative),
so P = M(K² - K); with R negatives for each positive, P = M(1 + R)(K² - K) / 2. Negatives come by rolling the
mini-batch, as in the paper's listing, or at random among the other images, as in its pseudo-code. Lists need no torch;
a rolled list depends on K, M and R alone and is computed once.

Shape letters: K views per image, M images, P pairs, R negatives for each positive. Row k * M + m of the features is
view k of image m.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from relatum import rng

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, eq=False)
class ByRow:
    """A list of pairs, sorted by left row and by right row (compressed sparse rows).

    Attributes:
        left_start: (rows + 1,) where the pairs of each left row start in the left order.
        left_partner: (P,) the right row of each pair, in the left order.
        right_start: (rows + 1,) where the pairs of each right row start in the right order.
        right_partner: (P,) the left row of each pair, in the right order.
        right_place: (P,) the place in the left order of each pair of the right order.
        targets: (P,) in the left order.
    """

    left_start: NDArray[np.int32]
    left_partner: NDArray[np.int32]
    right_start: NDArray[np.int32]
    right_partner: NDArray[np.int32]
    right_place: NDArray[np.int32]
    targets: NDArray[np.float32]

    @classmethod
    def of(cls, pairs: Pairs) -> ByRow:
        """Sort a list both ways; stable, so pairs keep the list's order within a row."""
        # numpy sorts 16-bit keys by radix: 0.3 ms for 63,488 pairs instead of 3.
        small = np.uint16 if pairs.rows <= 1 << 16 else np.int32
        left = np.argsort(pairs.left.astype(small), kind="stable")
        right = np.argsort(pairs.right.astype(small), kind="stable")
        place = np.empty(len(pairs), np.int32)
        place[left] = np.arange(len(pairs), dtype=np.int32)

        def start(rows: NDArray[np.int32]) -> NDArray[np.int32]:
            counts = np.bincount(rows, minlength=pairs.rows)
            return np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)

        return cls(
            start(pairs.left),
            pairs.right[left],
            start(pairs.right),
            pairs.left[right],
            place[right],
            pairs.targets[left],
        )


@dataclass(frozen=True, eq=False)
class Pairs:
    """A list of P pairs of rows. Treat it as constant: derived arrays are kept with it.

    Attributes:
        left: (P,) int32, the first row of each pair.
        right: (P,) int32, the second row.
        targets: (P,) float32, 1 where the two rows belong together and 0 where they do not.
        rows: number of rows of features (K * M).
    """

    left: NDArray[np.int32]
    right: NDArray[np.int32]
    targets: NDArray[np.float32]
    rows: int

    def __post_init__(self) -> None:
        for name, dtype in (("left", np.int32), ("right", np.int32), ("targets", np.float32)):
            object.__setattr__(self, name, np.ascontiguousarray(getattr(self, name), dtype=dtype))
        if not (self.left.ndim == 1 and self.left.shape == self.right.shape == self.targets.shape and len(self.left)):
            raise ValueError("left, right and targets must be three vectors of one length, with at least one pair")
        # The kernels index without bounds checks, so a bad index must stop here.
        if min(self.left.min(), self.right.min()) < 0 or max(self.left.max(), self.right.max()) >= self.rows:
            raise ValueError(f"a pair points outside the {self.rows} rows")
        if not ((self.targets == 0) | (self.targets == 1)).all():
            raise ValueError("targets must be 0 or 1")

    def __len__(self) -> int:
        return len(self.left)

    @cached_property
    def positives(self) -> NDArray[np.bool_]:
        """(P,) which pairs belong together."""
        return self.targets > 0.5

    @cached_property
    def num_positives(self) -> int:
        """How many pairs belong together."""
        return int(self.positives.sum())

    @cached_property
    def by_row(self) -> ByRow:
        """The list sorted by its left and by its right rows, for kernels that walk it row by row."""
        return ByRow.of(self)

    def part(self, number: int, parts: int) -> Pairs:
        """Every `parts`-th pair from `number` on; computed once for a list that is kept."""
        if (number, parts) not in self._parts:
            taken = slice(number, None, parts)
            self._parts[number, parts] = Pairs(self.left[taken], self.right[taken], self.targets[taken], self.rows)
        return self._parts[number, parts]

    @cached_property
    def _parts(self) -> dict[tuple[int, int], Pairs]:
        return {}

    @cached_property
    def _on_device(self) -> dict[str, Any]:
        return {}

    def tensors(self, device: torch.device | str = "cpu") -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """`(left, right, targets)` as int64, int64 and float32 tensors on a device; moved there once."""
        key = str(device)
        if key not in self._on_device:
            indices = [_send(a.astype(np.int64), device) for a in (self.left, self.right)]
            self._on_device[key] = (*indices, _send(self.targets, device))
        return self._on_device[key]  # type: ignore[no-any-return]

    def counts(self, device: torch.device | str = "cpu") -> torch.Tensor:
        """(2, rows) how often each row is the left and the right one of a pair; counted on the host and moved once."""
        key = f"counts {device}"
        if key not in self._on_device:
            sides = [np.bincount(side, minlength=self.rows) for side in (self.left, self.right)]
            self._on_device[key] = _send(np.stack(sides), device)
        return self._on_device[key]  # type: ignore[no-any-return]


def _send(array: NDArray[Any], device: torch.device | str) -> torch.Tensor:
    """An array as a tensor on a device. Pinned memory lets a GPU copy it while the host works on."""
    import torch

    tensor = torch.from_numpy(array)
    if torch.device(device).type == "cuda" and torch.cuda.is_available():
        return tensor.pin_memory().to(device, non_blocking=True)
    return tensor.to(device)


def roll_pairs(K: int, M: int, labels: ArrayLike | None = None, R: int = 1) -> Pairs:
    """Positives, and negatives by rolling the mini-batch by a shift that grows with each negative and wraps before M.

    Args:
        K: views per image.
        M: images in the mini-batch.
        labels: (M,) classes where known, -1 where not. A negative whose partner is known to share the class moves on
            to the next shift that does not collide; where every other image shares the class, it stays.
        R: negatives for each positive; at most M - 1 are used, so that none occurs twice (unless labels are given).
    """
    _check(K, M)
    R = min(R, M - 1)
    return _rolled(K, M, R) if labels is None else _listed(K, M, _roll_partners(K, M, R, _allowed(M, labels)))


def random_pairs(K: int, M: int, key: int, labels: ArrayLike | None = None, R: int = 1) -> Pairs:
    """Positives, and negatives whose partner is drawn uniformly among the other images: a pure function of `key`.

    Args:
        K: views per image.
        M: images in the mini-batch.
        key: the key of the random draws, such as `rng.torch_seed(rng.NEGATIVE, seed, epoch, step)`.
        labels: (M,) classes where known, -1 where not. A partner known to share the class is never drawn, unless
            every other image shares it.
        R: negatives for each positive, drawn independently; at most M - 1 are used.
    """
    _check(K, M)
    R = min(R, M - 1)
    draws = np.arange(K * (K - 1) // 2 * R * M, dtype=np.uint64)
    uniform = rng.uniform(rng.key(rng.NEGATIVE, key), draws).reshape(-1, R, M)
    if labels is None:
        other = (uniform * (M - 1)).astype(np.int64)
        return _listed(K, M, other + (other >= np.arange(M)))
    allowed = _allowed(M, labels)
    candidates = np.argsort(~allowed, axis=1, kind="stable")  # the allowed partners of each image first, in order
    ranks = (uniform * allowed.sum(axis=1)).astype(np.int64)
    return _listed(K, M, candidates[np.arange(M), ranks])


@lru_cache(maxsize=16)
def _rolled(K: int, M: int, R: int) -> Pairs:
    return _listed(K, M, _roll_partners(K, M, R, None))


def _check(K: int, M: int) -> None:
    if K < 2:
        raise ValueError(f"relational reasoning compares views: K = {K} gives no pair, use at least 2 views per image")
    if M < 2:
        raise ValueError(
            f"a mini-batch of {M} image has no negatives: use at least 2 images, or drop the last short batch"
        )


def _roll_partners(K: int, M: int, R: int, allowed: NDArray[np.bool_] | None) -> NDArray[np.int64]:
    """(K(K-1)/2, R, M) the images that each image meets as negatives, for each i < j."""
    images = np.arange(M)
    # Counted from 0: shift s + 1 runs from 1 to M - 1.
    shifts = np.arange(K * (K - 1) // 2 * R).reshape(-1, R) % (M - 1)
    by_shift = (images - np.arange(1, M)[:, None]) % M  # (M-1, M) as torch.roll: position n receives n - shift
    if allowed is not None:
        free = allowed[images, by_shift]
        wait = np.full((M - 1, M), M)  # how many shifts further the next allowed partner is; at most once around
        for ahead in range(M - 2, -1, -1):
            wait[np.roll(free, -ahead, axis=0)] = ahead
        by_shift = by_shift[(np.arange(M - 1)[:, None] + wait) % (M - 1), images]
    return by_shift[shifts]


def _allowed(M: int, labels: ArrayLike) -> NDArray[np.bool_]:
    """(M, M) which images may be negatives of an image: those not known to share its class, or else any other."""
    known = np.asarray(labels)
    if known.shape != (M,):
        raise ValueError(f"labels must have shape ({M},), not {known.shape}")
    others = ~np.eye(M, dtype=bool)
    allowed = others & ~((known[:, None] == known) & (known[:, None] >= 0))
    return np.where(allowed.any(axis=1, keepdims=True), allowed, others)


def _listed(K: int, M: int, partners: NDArray[np.int64]) -> Pairs:
    """The list in the order of the paper's listing: for each i < j, M positives and then R times M negatives."""
    i, j = np.triu_indices(K, 1)
    others = np.concatenate([np.broadcast_to(np.arange(M), (len(i), 1, M)), partners], axis=1)  # (i < j, 1 + R, M)
    left = np.broadcast_to(i[:, None, None] * M + np.arange(M), others.shape)
    right = j[:, None, None] * M + others
    targets = np.broadcast_to((np.arange(others.shape[1]) == 0).astype(np.float32)[:, None], others.shape)
    return Pairs(left.ravel().astype(np.int32), right.ravel().astype(np.int32), targets.ravel(), K * M)
