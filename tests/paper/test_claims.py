from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from relatum.paper import claims, render
from relatum.paper.cells import Plan, Request
from relatum.paper.claims import CONTRADICTED, NOT_ENOUGH, SUPPORTED
from relatum.paper.grid import Evaluation, Scale
from relatum.paper.measured import Results
from relatum.paper.plan import plan

# What comes out on the paper's own tables. These five sentences do not hold to the letter.
NOT_TO_THE_LETTER = {
    "average-14": "order supported, margin contradicted: average margin over the best competitor +2.87",
    "grain-fine": "+2.93, +3.14",  # with Conv-4 the margin is larger in the coarse case
    "semi-supervised-bound": "-6.36",  # CIFAR-100 stays far from the bound
    "head": "order supported, margin contradicted: smallest loss 2.25",  # not -3
    "balance": "0.4 % positives",  # not 2 %
}


def judge(key: str, source: claims.Source) -> dict[str, str]:
    return claims.judge(claims.load()[key]["check"], source)


def test_every_claim_has_a_check_and_every_check_a_claim() -> None:
    assert len(claims.load()) == 24
    assert {c["check"]["kind"] for c in claims.load().values()} == set(claims.CHECKS)


def test_verdicts_on_the_paper_s_own_tables(tmp_path: Path) -> None:
    document = claims.document(Results(tmp_path), Request())
    for claim in document["claims"]:
        expected = CONTRADICTED if claim["key"] in NOT_TO_THE_LETTER else SUPPORTED
        assert claim["on_paper"]["verdict"] == expected, claim
        assert NOT_TO_THE_LETTER.get(claim["key"], "") in claim["on_paper"]["figures"]


def test_without_runs_only_what_can_be_counted_has_a_verdict(tmp_path: Path) -> None:
    document = claims.document(Results(tmp_path), Request())
    judged = {c["key"] for c in document["claims"] if c["ours"]["verdict"] != NOT_ENOUGH}
    assert judged == {"pairs", "balance", "parameters"}
    assert not document["complete"]


@pytest.mark.parametrize(
    ("key", "figures"),
    [
        ("average-14", "over the best but SimCLR +13.10; over RotationNet +13.57"),
        ("best-21-of-24", "best in 21 of 24"),
        ("gain-simclr", "-2.63, +1.11, +3.34"),
        ("gain-rotation", "+8.69, +11.22, +11.90"),
        ("pairs", "63,488 and 15,360 against 65,536"),
    ],
)
def test_figures_of_the_paper(key: str, figures: str) -> None:
    assert figures in judge(key, claims.from_paper())["figures"]


@pytest.mark.parametrize(
    ("accuracies", "verdict"),
    [
        ({"k2": 55.0, "k4": 58.0, "k16": 59.0}, SUPPORTED),
        ({"k2": 58.0, "k4": 55.0, "k8": 54.0}, CONTRADICTED),
        ({"k2": 55.0, "k4": 55.0, "k8": 55.0, "k16": 56.0}, CONTRADICTED),  # rank correlation 0.77
        ({"k2": 55.0, "k4": 58.0}, NOT_ENOUGH),  # any two points are perfectly correlated
    ],
)
def test_growth_with_k_is_judged_from_the_values_of_k_there_are(accuracies: dict[str, float], verdict: str) -> None:
    source = claims.Source(lambda name, row, column: accuracies.get(column) if row == "relational" else None)
    assert judge("growth-with-k", source)["verdict"] == verdict
    assert judge("growth-only-ours", source)["verdict"] == NOT_ENOUGH


def test_gains_with_k_are_compared_over_the_same_values_of_k() -> None:
    # The 90 at K = 16, where the other rows have nothing, would hide that supervised grows as ours does.
    rows = {
        "relational": {"k2": 50.0, "k4": 51.0, "k8": 52.0, "k32": 53.0},
        "rotation": {"k2": 50.0, "k4": 49.0, "k8": 50.0, "k32": 50.0},
        "supervised": {"k2": 67.0, "k4": 68.0, "k8": 69.0, "k16": 90.0, "k32": 70.0},
    }
    source = claims.Source(lambda name, row, column: rows[row].get(column))
    actual = judge("growth-only-ours", source)
    assert actual["verdict"] == CONTRADICTED
    assert "gain from K = 2 to K = 32: relational +3.00" in actual["figures"]
    assert "supervised +3.00, rank correlation +1.00" in actual["figures"]
    for k in ("k2", "k32"):
        lacking = claims.Source(lambda name, row, column, k=k: None if column == k else rows[row].get(column))
        assert judge("growth-only-ours", lacking)["verdict"] == NOT_ENOUGH


@pytest.mark.parametrize(
    ("values", "rank"),
    [([1, 2, 3], 1.0), ([3, 2, 1], -1.0), ([5, 5, 5], 0.0), ([1, 1, 2], 0.866), ([1, 3, 2, 4], 0.8)],
)
def test_rank_correlation_with_ties(values: list[float], rank: float) -> None:
    assert claims._spearman(values) == pytest.approx(rank, abs=1e-3)


@pytest.mark.parametrize(
    ("ours", "verdict", "figures"),
    [
        (60.0, SUPPORTED, ""),
        (52.0, CONTRADICTED, "order supported, margin contradicted: "),
        (40.0, CONTRADICTED, "order contradicted, margin contradicted: "),
    ],
)
def test_a_claimed_margin_is_judged_apart_from_the_order(ours: float, verdict: str, figures: str) -> None:
    source = claims.Source(lambda name, row, column: ours if row == "relational" else 50.0)
    actual = judge("linear-evaluation", source)
    assert actual["verdict"] == verdict
    assert actual["figures"].startswith(figures or "CIFAR-100")


def test_claims_read_our_runs_at_the_scale_that_is_asked_for(
    results_of: Callable[[Plan, Callable[[Evaluation], float]], Results],
) -> None:
    small = Request(methods=("relational",), seeds=(1,), scale=Scale(views=8))
    results = results_of(plan(["augmentations"], small), lambda e: 50.0 + e.run.views)
    verdicts = {c["key"]: c["ours"]["verdict"] for c in claims.document(results, small)["claims"]}
    assert verdicts["growth-with-k"] == SUPPORTED
    assert verdicts["aggregation"] == NOT_ENOUGH


def test_claims_as_markdown_and_csv(tmp_path: Path) -> None:
    document = claims.document(Results(tmp_path), Request(scale=Scale(views=4)))
    text = render.to_markdown(document)
    assert "with K = 4" in text
    assert "**not enough runs yet**" in text
    assert len(render.to_csv(document).splitlines()) == 1 + len(claims.load())
