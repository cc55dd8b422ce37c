from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from relatum.data import spill


@pytest.fixture
def mapped(tmp_path: Path) -> np.ndarray:
    np.save(tmp_path / "x.npy", np.random.default_rng(0).integers(0, 256, (50, 4, 4, 3), dtype=np.uint8))
    return np.load(tmp_path / "x.npy", mmap_mode="r")


def test_neighbours_are_not_copied(mapped: np.ndarray) -> None:
    part = spill.take(mapped, np.arange(10, 30))
    assert np.shares_memory(part, mapped)
    assert np.array_equal(part, mapped[10:30])


def test_a_small_part_is_in_memory(mapped: np.ndarray) -> None:
    indices = np.array([3, 1, 49, 1])
    part = spill.take(mapped, indices)
    assert not isinstance(part, np.memmap)
    assert np.array_equal(part, mapped[indices])
    assert spill.take(mapped, np.array([], np.int64)).shape == (0, 4, 4, 3)
    assert np.array_equal(spill.take(mapped, np.array([-1])), mapped[[-1]])


def test_a_large_part_is_on_disk(mapped: np.ndarray, own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spill, "_LARGE", 100)
    monkeypatch.setattr(spill, "_CHUNK", 7)
    indices = np.arange(0, 50, 2)
    part = spill.take(mapped, indices)
    assert isinstance(part, np.memmap)
    assert np.array_equal(part, mapped[indices])
    assert list(own_cache.iterdir()) == []  # nothing stays behind
    assert not isinstance(spill.take(np.array(mapped), indices), np.memmap)
