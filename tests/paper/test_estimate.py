from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from relatum.paper import estimate
from relatum.paper.grid import Evaluation, Pretraining

RUN = Pretraining("relational", "cifar10", "conv4", 32, 200, 64, 1)


def cost(backbone: str, side: int) -> float:
    return 1e-4


def test_seconds_of_a_run_grow_with_what_it_does() -> None:
    # 200 epochs x 50,000 images x (32 views x (100 + 5 us) + 992 pairs x 0.6 us) and a start of 10 s
    assert estimate.run_seconds(RUN, cost) == pytest.approx(10 + 200 * 50_000 * (32 * 105e-6 + 992 * 0.6e-6))
    half = dataclasses.replace(RUN, epochs=100)
    assert estimate.run_seconds(half, cost) - 10 == pytest.approx((estimate.run_seconds(RUN, cost) - 10) / 2)
    small = dataclasses.replace(RUN, limit_train=500)
    assert estimate.run_seconds(small, cost) - 10 == pytest.approx((estimate.run_seconds(RUN, cost) - 10) / 100)
    assert estimate.run_seconds(Pretraining("random", "shapes", "conv4", 1, 0, 1, 1), cost) == 10


@pytest.mark.parametrize(("data", "seconds"), [("cifar10", 1.7), ("cifar100", 9.0)])
def test_deepcluster_also_clusters_in_every_epoch(data: str, seconds: float) -> None:
    run = Pretraining("deepcluster", data, "conv4", 1, 200, 128, 1)
    more = estimate.run_seconds(run, cost) - estimate.run_seconds(dataclasses.replace(run, method="rotation"), cost)
    features = 50_000 * cost("conv4", 32) / 3
    assert more / 200 == pytest.approx(features + seconds, rel=0.02)  # as `relatum.features.clustering` was measured


@pytest.mark.parametrize("protocol", ["linear", "finetune"])
def test_an_evaluation_of_fewer_images_costs_less(protocol: str) -> None:
    whole = Evaluation(RUN, protocol, "cifar10", epochs=100)
    few, all_ = (dataclasses.replace(whole, limit_train=n) for n in (500, 60_000))
    assert estimate.evaluation_seconds(few, cost) < 0.5 * estimate.evaluation_seconds(whole, cost)
    assert estimate.evaluation_seconds(all_, cost) == estimate.evaluation_seconds(whole, cost)


def test_a_supervised_run_s_own_score_costs_nothing() -> None:
    assert estimate.evaluation_seconds(Evaluation(RUN, "classifier", "cifar10"), cost) == 0
    linear = estimate.evaluation_seconds(Evaluation(RUN, "linear", "cifar10", epochs=100), cost)
    finetune = estimate.evaluation_seconds(Evaluation(RUN, "finetune", "cifar10", epochs=100), cost)
    assert 0 < linear < finetune


def test_a_measurement_is_made_once_for_a_number_of_threads_and_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []
    monkeypatch.setattr(estimate, "_measure", lambda backbone, side: calls.append((backbone, side)) or 0.5)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    path = tmp_path / "kept.json"
    assert [estimate.Measured(path)("conv4", 32), estimate.Measured(path)("conv4", 32)] == [0.5, 0.5]
    assert calls == [("conv4", 32)]
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    assert estimate.Measured(path)("conv4", 32) == pytest.approx(0.5 / 2**0.9)
    assert len(calls) == 2
    path.write_text("not json")
    assert estimate.Measured(path)("conv4", 64) == pytest.approx(0.5 / 2**0.9)


def test_where_nothing_can_be_measured_the_rough_model_serves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(backbone: str, side: int) -> float:
        raise ImportError

    monkeypatch.setattr(estimate, "_measure", fails)
    assert estimate.Measured(tmp_path / "kept.json")("resnet32", 32) == estimate.rough("resnet32", 32)


def test_a_real_measurement_is_plausible(tmp_path: Path) -> None:
    seconds = estimate.Measured(tmp_path / "kept.json")("conv4", 32)
    assert 1e-6 < seconds < 0.1


@pytest.mark.parametrize(
    ("seconds", "words"), [(40, "40 s"), (720, "12 min"), (19_800, "5.5 h"), (276_480, "3.2 days")]
)
def test_words(seconds: float, words: str) -> None:
    assert estimate.words(seconds) == words
