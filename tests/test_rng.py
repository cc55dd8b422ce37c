from __future__ import annotations

import numpy as np

from relatum import rng


def test_a_draw_depends_on_its_keys_alone() -> None:
    together = rng.key(rng.VIEW, 1, 2, np.arange(100)[None, :], np.arange(4)[:, None])
    alone = rng.key(rng.VIEW, 1, 2, 57, 3)
    assert together.shape == (4, 100)
    assert together[3, 57] == alone
    np.testing.assert_array_equal(
        rng.uniform(together, np.arange(5))[3, 57], rng.uniform(np.asarray(alone), np.arange(5))
    )


def test_names_do_not_collide() -> None:
    keys = rng.key(
        rng.VIEW, np.arange(4)[:, None, None, None], np.arange(5)[:, None, None], np.arange(500)[:, None], np.arange(8)
    )
    assert len(np.unique(keys)) == keys.size
    assert rng.key(1, 2) != rng.key(2, 1)
    assert rng.key(0) != rng.key(0, 0)
    assert rng.key(rng.ORDER, -1) != rng.key(rng.ORDER, 1)  # seeds may be negative


def test_uniform_numbers_are_uniform() -> None:
    numbers = rng.uniform(rng.key(3, np.arange(50_000)), np.arange(4))
    assert numbers.min() >= 0.0
    assert numbers.max() < 1.0
    counts = np.histogram(numbers, 100, (0, 1))[0]
    expected = numbers.size / 100
    chi2 = ((counts - expected) ** 2 / expected).sum()
    assert chi2 < 190  # 99 degrees of freedom; a fair generator exceeds it once in 10^7
    correlation = np.corrcoef(numbers.T)[np.triu_indices(4, 1)]
    assert np.abs(correlation).max() < 6 / np.sqrt(50_000)


def test_permutations() -> None:
    first, second = rng.permutation(1000, rng.ORDER, 1, 0), rng.permutation(1000, rng.ORDER, 1, 1)
    np.testing.assert_array_equal(np.sort(first), np.arange(1000))
    assert (first == second).mean() < 0.02
    np.testing.assert_array_equal(first, rng.permutation(1000, rng.ORDER, 1, 0))


def test_golden_values() -> None:
    """Published runs depend on these bits: they must never change."""
    assert int(rng.key(rng.VIEW, 1, 0, 0, 0)) == 816_801_535_745_774_882
    assert float(rng.uniform(rng.key(rng.VIEW, 1, 0, 0, 0), 0)[0]) == 0.31047103560973854
