import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from relatum.relation.pairs import Pairs, random_pairs, roll_pairs

sizes = {"K": st.integers(2, 9), "M": st.integers(2, 12)}


def paper_listing(K, M):
    """The paper's listing, on row numbers in place of features."""
    rows = torch.arange(K * M)
    left, right, targets, shift = [], [], [], 1
    for index_1 in range(0, M * K, M):
        for index_2 in range(index_1 + M, M * K, M):
            left += [rows[index_1 : index_1 + M]] * 2
            right += [rows[index_2 : index_2 + M], torch.roll(rows[index_2 : index_2 + M], shifts=shift, dims=0)]
            targets += [torch.ones(M), torch.zeros(M)]
            shift += 1
            if shift >= M:
                shift = 1
    return torch.cat(left), torch.cat(right), torch.cat(targets)


@given(**sizes)
@settings(max_examples=30, deadline=None)
def test_rolled_pairs_are_those_of_the_papers_listing(K, M):
    pairs = roll_pairs(K, M)
    for ours, theirs in zip(pairs.tensors(), paper_listing(K, M), strict=True):
        assert torch.equal(ours, theirs.to(ours.dtype))


@given(**sizes, ratio=st.integers(1, 9), key=st.integers(0, 2**62), labelled=st.booleans(), data=st.data())
@settings(max_examples=60, deadline=None)
def test_count_targets_and_no_image_meets_itself_as_a_negative(K, M, ratio, key, labelled, data):
    labels = data.draw(st.lists(st.integers(-1, 2), min_size=M, max_size=M)) if labelled else None
    for pairs in (roll_pairs(K, M, labels, ratio), random_pairs(K, M, key, labels, ratio)):
        used = min(ratio, M - 1)
        assert len(pairs) == M * (1 + used) * (K * K - K) // 2
        assert pairs.rows == K * M
        assert pairs.num_positives * (1 + used) == len(pairs)
        same_image = pairs.left % M == pairs.right % M
        assert np.array_equal(same_image, pairs.positives)
        assert np.all(pairs.left // M < pairs.right // M)
        if labels is not None:
            known = np.array(labels)
            clash = (known[pairs.left % M] == known[pairs.right % M]) & (known[pairs.left % M] >= 0) & ~pairs.positives
            hopeless = np.array(
                [all(known[n] >= 0 and known[n] == x for i, x in enumerate(labels) if i != n) for n in range(M)]
            )
            assert np.array_equal(clash, hopeless[pairs.left % M] & ~pairs.positives)


@given(**sizes, ratio=st.integers(2, 9))
@settings(max_examples=30, deadline=None)
def test_rolled_negatives_of_one_pair_of_views_are_different_images(K, M, ratio):
    pairs = roll_pairs(K, M, R=ratio)
    negatives = np.stack([pairs.left, pairs.right], axis=1)[~pairs.positives]
    assert len(np.unique(negatives, axis=0)) == len(negatives)


def test_rolled_pairs_are_made_once_and_labels_without_classes_change_nothing():
    assert roll_pairs(4, 6) is roll_pairs(4, 6)
    for ours, again in (
        (roll_pairs(4, 6), roll_pairs(4, 6, [-1] * 6)),
        (random_pairs(4, 6, 9), random_pairs(4, 6, 9, [-1] * 6)),
    ):
        assert np.array_equal(ours.right, again.right)


def test_a_rolled_negative_that_collides_moves_on_to_the_next_shift():
    # One (i, j): shift 1 pairs n with n - 1. Image 1 and 0 share a class, so 1 moves on to shift 2, image 3.
    pairs = roll_pairs(2, 4, [5, 5, -1, -1])
    assert pairs.right[~pairs.positives].tolist() == [4 + 3, 4 + 3, 4 + 1, 4 + 2]


def test_random_partners_are_uniform_and_a_function_of_the_key():
    assert np.array_equal(random_pairs(5, 6, 3).right, random_pairs(5, 6, 3).right)
    assert not np.array_equal(random_pairs(5, 6, 3).right, random_pairs(5, 6, 4).right)
    K, M = 40, 5
    negatives = [p.right[~p.positives] % M for p in (random_pairs(K, M, key) for key in range(10))]
    images = np.tile(np.arange(M), len(np.concatenate(negatives)) // M)
    counts = np.zeros((M, M))
    np.add.at(counts, (images, np.concatenate(negatives)), 1)
    expected = counts.sum() / M / (M - 1)
    chi2 = ((counts[~np.eye(M, dtype=bool)] - expected) ** 2 / expected).sum()
    assert np.all(np.diag(counts) == 0)
    assert chi2 < 37.7  # 15 degrees of freedom: exceeded once in 1,000 keys by a fair draw


@pytest.mark.parametrize(
    ("K", "M", "word"), [(4, 1, "negatives"), (1, 4, "views"), (0, 4, "views"), (4, 0, "negatives")]
)
def test_too_few_views_or_images_are_refused(K, M, word):
    for make in (roll_pairs, lambda K, M: random_pairs(K, M, 1)):
        with pytest.raises(ValueError, match=word):
            make(K, M)


@pytest.mark.parametrize(
    ("left", "right", "targets"),
    [
        ([0, 5], [1, 2], [1, 0]),
        ([0, -1], [1, 2], [1, 0]),
        ([0], [1, 2], [1, 0]),
        ([], [], []),
        ([0, 1], [1, 2], [1, 0.5]),
    ],
)
def test_a_bad_list_is_refused(left, right, targets):
    with pytest.raises(ValueError, match=r"pair|vectors|targets"):
        Pairs(np.array(left, np.int32), np.array(right, np.int32), np.array(targets, np.float32), 4)


def test_labels_of_the_wrong_shape_are_refused():
    with pytest.raises(ValueError, match="labels"):
        roll_pairs(3, 4, [0, 1])


def test_sorted_by_row_both_ways():
    pairs = random_pairs(4, 7, 2)
    by_row = pairs.by_row
    for row in range(pairs.rows):
        mine = slice(by_row.left_start[row], by_row.left_start[row + 1])
        assert np.array_equal(by_row.left_partner[mine], pairs.right[pairs.left == row])
        assert np.array_equal(by_row.targets[mine], pairs.targets[pairs.left == row])
        mine = slice(by_row.right_start[row], by_row.right_start[row + 1])
        assert np.array_equal(by_row.right_partner[mine], pairs.left[pairs.right == row])
        assert np.all(by_row.left_partner[by_row.right_place[mine]] == row)
