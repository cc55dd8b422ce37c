"""The paper's values: sums of every row (means and ±) and hand-picked cells of each table, read off the paper."""

from __future__ import annotations

import math

import pytest

from relatum.errors import InputError
from relatum.paper import published

ROW_SUMS = {  # (sum of means, sum of ±) of every row, in order
    "main": [
        (366.57, 5.62),
        (62.57, 2.62),
        (196.70, 5.17),
        (246.73, 2.39),
        (220.31, 1.19),
        (310.90, 2.24),
        (328.13, 2.16),
    ],
    "linear-evaluation": [
        *[(372.50, 2.55), (88.26, 4.30), (151.90, 4.63), (208.33, 4.91)],
        *[(170.24, 1.26), (256.72, 2.21), (268.42, 2.09)],
    ],
    "slimagenet": [(33.94, 0.21), (0.79, 0.09), (7.25, 0.28), (14.32, 0.24), (15.81, 0.72)],
    "domain-transfer": [
        *[(116.16, 2.84), (78.83, 3.75), (122.40, 4.79), (139.12, 1.35)],
        *[(130.32, 0.55), (161.43, 1.60), (181.33, 1.26)],
    ],
    "grain": [
        (250.87, 2.26),
        (54.94, 1.82),
        (101.03, 5.78),
        (132.41, 1.55),
        (113.09, 1.03),
        (162.18, 1.38),
        (172.85, 2.69),
    ],
    "finetune": [
        *[(87.30, 0), (87.60, 0), (72.80, 0), (80.10, 0), (56.70, 0), (73.40, 0), (77.00, 0), (88.80, 0)],
        *[(141.86, 3.36), (147.37, 0.55), (167.06, 0.44), (152.48, 0.37), (178.75, 0.14), (179.71, 0.33)],
    ],
    "backbones-linear": [(591.37, 3.81), (143.26, 9.85), (359.92, 6.63), (439.19, 3.11), (447.13, 2.97)],
    "backbones-grain": [(525.54, 4.49), (99.90, 4.12), (273.11, 3.93), (340.60, 3.08), (359.19, 4.21)],
    "backbones-transfer": [(414.97, 4.05), (143.26, 9.85), (324.68, 3.22), (384.51, 3.87), (408.61, 2.62)],
    "augmentations": [(398.89, 2.66), (260.81, 4.49), (293.19, 2.71)],
    "semi-supervised-cifar10": [(90.87, 0.41), (496.99, 1.31)],
    "semi-supervised-cifar100": [(65.32, 0.22), (313.74, 2.38)],
    "aggregation": [(87.05, 0.92), (86.92, 1.54), (83.03, 2.41), (93.17, 0.98)],
    "head": [(216.65, 2.33), (208.23, 4.92), (282.91, 1.48)],
}

CELLS = [
    ("main", "simclr", "10-100", 36.20, 0.16),
    ("main", "supervised", "10-100", 33.98, 0.71),
    ("main", "simclr", "tiny-imagenet", 25.79, 0.35),
    ("main", "random", "stl10", None, None),
    ("main", "relational", "stl10", 89.67, 0.33),
    ("linear-evaluation", "random", "conv4-cifar10", 32.92, 1.88),
    ("linear-evaluation", "relational", "conv4-cifar10", 61.03, 0.23),
    ("linear-evaluation", "relational", "resnet32-cifar100", 46.17, 0.16),
    ("linear-evaluation", "simclr", "resnet32-tiny-imagenet", 25.79, 0.40),
    ("slimagenet", "relational", "slimagenet", 15.81, 0.72),
    ("domain-transfer", "simclr", "resnet32-10-100", 36.21, 0.16),
    ("domain-transfer", "deepcluster", "conv4-100-10-delta", 0.71, None),
    ("domain-transfer", "random", "conv4-10-100-delta", None, None),
    ("domain-transfer", "relational", "conv4-10-100", 31.84, 0.23),
    ("grain", "rotation", "resnet32-fine", 29.02, 0.19),
    ("grain", "simclr", "resnet32-coarse", 51.88, 0.48),
    ("finetune", "relational", "best", 90.04, None),
    ("finetune", "relational", "mean", 89.67, 0.33),
    ("finetune", "reported-invariant-info-clustering", "best", 88.80, None),
    ("backbones-linear", "random", "resnet56-cifar10", 13.53, 3.66),
    ("backbones-linear", "relational", "resnet56-cifar10", 77.51, 0.0),
    ("backbones-grain", "simclr", "resnet32-coarse", 51.87, 0.48),
    ("backbones-grain", "random", "resnet56-coarse", 6.88, 0.35),
    ("backbones-transfer", "relational", "resnet56-100-10", 68.66, 0.21),
    ("augmentations", "relational", "k2", 55.31, 0.58),
    ("augmentations", "relational", "k4", 58.05, 0.67),
    ("augmentations", "rotation", "k16", 52.85, 1.24),
    ("semi-supervised-cifar10", "relational", "100%", 90.66, 0.23),
    ("semi-supervised-cifar10", "supervised", "0%", None, None),
    ("semi-supervised-cifar100", "relational", "1%", 46.10, 0.29),
    ("aggregation", "cat", "cifar100", 32.36, 0.73),
    ("aggregation", "max", "cifar10", 56.45, 1.15),
    ("head", "dot", "100-10", 51.9, 0.50),
    ("head", "relation", "cifar10", 74.99, 0.07),
    ("retrieval-errors", "rotation", "top10", 47.7, None),
]


@pytest.mark.parametrize("name", ROW_SUMS)
def test_row_sums(name: str) -> None:
    rows = published.load(name).rows
    sums = [(sum(v.mean or 0 for v in r.values), sum(v.std or 0 for v in r.values)) for r in rows]
    assert [(round(m, 2), round(s, 2)) for m, s in sums] == ROW_SUMS[name]


@pytest.mark.parametrize(("name", "row", "column", "mean", "std"), CELLS)
def test_hand_picked_cells(name: str, row: str, column: str, mean: float | None, std: float | None) -> None:
    value = published.load(name).value(row, column)
    assert (value.mean, value.std) == (mean, std)


def test_every_name_loads_and_all_fourteen_tables_are_checked() -> None:
    for name in published.NAMES:
        assert published.load(name).title
    assert set(ROW_SUMS) == set(published.TABLES) - {"claims"}
    assert len(ROW_SUMS) == 14


def test_unknown_table_suggests_the_nearest() -> None:
    with pytest.raises(InputError, match="did you mean 'grain'"):
        published.load("grian")


def test_delta_columns_are_differences_of_the_paper_s_own_figures() -> None:
    transfer, linear = published.load("domain-transfer"), published.load("linear-evaluation")
    for row in transfer.rows:
        if row.key == "random":
            continue
        for backbone in ("conv4", "resnet32"):
            for arrow, home in (("10-100", "cifar100"), ("100-10", "cifar10")):
                moved = transfer.value(row.key, f"{backbone}-{arrow}").mean
                stayed = linear.value(row.key, f"{backbone}-{home}").mean
                delta = transfer.value(row.key, f"{backbone}-{arrow}-delta").mean
                assert moved is not None
                assert stayed is not None
                assert delta is not None
                # The table's own arithmetic is exact but for ±0.01, where it used figures before rounding.
                assert abs(moved - stayed - delta) < 0.0151, (row.key, backbone, arrow)


def test_depth_figure_is_the_difference_of_linear_evaluation() -> None:
    figure, linear = published.load("fig-depth"), published.load("linear-evaluation")
    for row in figure.rows:
        for column in figure.columns:
            deep, shallow = (linear.value(row.key, f"{b}-{column.key}").mean for b in ("resnet32", "conv4"))
            assert deep is not None
            assert shallow is not None
            assert figure.value(row.key, column.key).mean == pytest.approx(deep - shallow, abs=0.006)


def test_the_paper_s_std_is_the_sample_s() -> None:
    """With best 72.04 and mean 69.82 of three runs, a population ± of 3.36 is impossible; a sample's is possible."""
    best = published.load("finetune").value("supervised", "best").mean
    mean = published.load("finetune").value("supervised", "mean")
    assert best is not None
    assert mean.mean is not None
    assert mean.std is not None
    above = best - mean.mean
    largest = math.sqrt(2 * above**2 + (2 * above) ** 2)  # two seeds at the best, one far below
    assert largest / math.sqrt(3) < mean.std < largest / math.sqrt(2)
