"""Counter-based randomness: every draw is a pure function of what it is for.

There is no generator state. The key of a draw is a tuple of integers (seed, epoch, sample index, view number, ...). It
is hashed to 64 bits, which become a uniform number. Any step can be computed alone, a resumed run needs no random
state, views do not change if they are prepared ahead, and they do not depend on the number of processes.

The hash is the finaliser of SplitMix64 (Steele, Lea & Flood 2014, with Stafford's variant 13), applied once per
integer of the key.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX2 = np.uint64(0x94D049BB133111EB)

# The purpose of a draw: the first integer of every key, so that no two purposes share random numbers.
ORDER, VIEW, NEGATIVE, SUBSET, WEIGHTS, CLUSTER, SOURCE, QUERY, PROBE, SHAPES, PRIOR, STREAM, DROPOUT = range(13)


def _mix(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    x = (x ^ (x >> np.uint64(30))) * _MIX1
    x = (x ^ (x >> np.uint64(27))) * _MIX2
    return x ^ (x >> np.uint64(31))


def key(*name: ArrayLike) -> NDArray[np.uint64]:
    """Hash integers, broadcast against one another, to 64-bit keys."""
    state = np.uint64(0)
    with np.errstate(over="ignore"):
        result = np.asarray(state)
        for part in name:
            part64 = np.asarray(part).astype(np.int64).astype(np.uint64)
            result = _mix((result ^ part64) + _GOLDEN)
    return result


def bits(keys: NDArray[np.uint64], draws: ArrayLike) -> NDArray[np.uint64]:
    """The `draws`-th 64 random bits of each key; `draws` is broadcast against a new last axis of `keys`."""
    with np.errstate(over="ignore"):
        counter = (np.asarray(draws).astype(np.uint64) + np.uint64(1)) * _GOLDEN
        return _mix(keys[..., None] + counter)


def uniform(keys: NDArray[np.uint64], draws: ArrayLike) -> NDArray[np.float64]:
    """Uniform numbers in [0, 1) with 53 random bits; a new last axis of `keys` runs over `draws`."""
    return (bits(keys, draws) >> np.uint64(11)).astype(np.float64) * 2.0**-53


def permutation(n: int, *name: ArrayLike) -> NDArray[np.int64]:
    """A permutation of range(n) for a key of integers: the order of hashed positions."""
    return np.argsort(key(*name, np.arange(n)), kind="stable")


def torch_seed(*name: ArrayLike) -> int:
    """A seed for a local `torch.Generator` (63 bits)."""
    return int(key(*name)) & 0x7FFF_FFFF_FFFF_FFFF
