"""Groups that stand apart, on differences that are given."""

from __future__ import annotations

import pytest

from relatum.collection.isolated import isolated_groups


def test_a_pair_that_stands_apart_is_a_group() -> None:
    assert isolated_groups(4, {(0, 1): 0.1, (1, 2): 0.3, (2, 3): 0.4}, 0.18) == [([0, 1], 0.1)]


def test_neighbours_in_a_series_are_no_group() -> None:
    assert isolated_groups(6, {(i, i + 1): 0.05 + 0.01 * i for i in range(5)} | {(0, 5): 0.6}, 0.18) == []


def test_a_copy_of_an_image_of_a_series_is_found() -> None:
    links = {(0, 1): 0.08, (1, 2): 0.09, (2, 3): 0.1, (0, 3): 0.4, (1, 4): 0.02, (0, 4): 0.09}
    assert isolated_groups(5, links, 0.18) == [([1, 4], 0.02)]


def test_several_copies_are_one_group_and_exact_ones_always_are() -> None:
    links = {(0, 1): 0.02, (1, 2): 0.12, (0, 2): 0.15, (2, 3): 0.5, (4, 5): 0.0, (5, 6): 0.01, (4, 6): 0.5}
    assert isolated_groups(7, links, 0.18) == [([0, 1, 2], 0.12), ([4, 5], 0.0)]


@pytest.mark.parametrize("count", [0, 1, 3])
def test_without_links_there_are_no_groups(count: int) -> None:
    assert isolated_groups(count, {}, 0.18) == []


def test_pairs_that_are_no_copies_join_no_group_and_a_group_must_stand_apart_from_them() -> None:
    links = {(0, 1): 0.05, (1, 2): 0.06, (3, 4): 0.05, (4, 5): 0.2}
    assert isolated_groups(6, links, 0.18, {(0, 1)}) == [([3, 4], 0.05)]  # 1 is too near to 0, which is no copy
    assert isolated_groups(6, links, 0.18, {(4, 5)}) == [([0, 1, 2], 0.06), ([3, 4], 0.05)]
    assert isolated_groups(3, {(0, 1): 0.02, (0, 2): 0.03, (1, 2): 0.05}, 0.18, {(1, 2)}) == []
