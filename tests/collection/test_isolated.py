"""Groups that stand apart, on differences that are given."""

from __future__ import annotations

import itertools

import numpy as np
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


def test_images_that_differ_more_than_others_do_are_no_group() -> None:
    """0 and 2 are both near 1 but differ more than 2 and 3: an image outside must not make a group of them."""
    chain = {(0, 1): 0.05, (1, 2): 0.06, (0, 2): 0.5}
    assert isolated_groups(4, chain, 0.18) == isolated_groups(4, {**chain, (2, 3): 0.3}, 0.18) == []


def test_groups_agree_with_their_definition() -> None:
    generator = np.random.default_rng(0)
    for _ in range(300):
        pairs = [pair for pair in itertools.combinations(range(6), 2) if generator.random() < 0.7]
        links = {pair: float(generator.uniform(0, generator.choice([0.05, 0.6]))) for pair in pairs}
        no_copies = {pair for pair in pairs if generator.random() < 0.1}
        assert isolated_groups(6, links, 0.18, no_copies) == by_definition(6, links, 0.18, no_copies)


def by_definition(
    count: int, links: dict[tuple[int, int], float], threshold: float, no_copies: set[tuple[int, int]]
) -> list[tuple[list[int], float]]:
    """Every connected set of images at every length of a link, and the largest of those that are groups."""
    joining = {pair: length for pair, length in links.items() if pair not in no_copies}
    groups: dict[frozenset[int], float] = {}
    for height in sorted(length for length in joining.values() if length <= threshold):
        for start in range(count):
            members = {start}
            for _ in range(count):
                members |= {i for p, x in joining.items() if x <= height and members & set(p) for i in p}
            inside = [x for p, x in joining.items() if members >= set(p)]
            out = [x for p, x in links.items() if members & set(p) and (p in no_copies or not members >= set(p))]
            if len(members) > 1 and max(inside) <= min(2 * threshold, 0.4 * min(out, default=np.inf)):
                groups.setdefault(frozenset(members), height)
    largest = [(sorted(m), height) for m, height in groups.items() if not any(m < other for other in groups)]
    return sorted(largest)
