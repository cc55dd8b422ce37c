from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from relatum.paper import estimate
from relatum.paper.grid import Evaluation, Pretraining
from relatum.paper.measured import Results
from relatum.runs.folder import RunFolder
from relatum.system.durations import duration

RUN = Pretraining("relational", "cifar10", "conv4", 32, 200, 64, 1)


def test_seconds_of_a_run_grow_with_what_it_does() -> None:
    # 200 epochs x 50,000 images x (32 views x (44 + 2.7 us) + 992 pairs x 0.23 us + 4 ms / 64) and a start of 10 s
    per_image = 32 * 46.7e-6 + 992 * 0.23e-6 + 4e-3 / 64
    assert estimate.run_seconds(RUN) == pytest.approx(10 + 200 * 50_000 * per_image)
    half = dataclasses.replace(RUN, epochs=100)
    assert estimate.run_seconds(half) - 10 == pytest.approx((estimate.run_seconds(RUN) - 10) / 2)
    small = dataclasses.replace(RUN, limit_train=500)
    assert estimate.run_seconds(small) - 10 == pytest.approx((estimate.run_seconds(RUN) - 10) / 100)
    assert estimate.run_seconds(Pretraining("random", "shapes", "conv4", 1, 0, 1, 1)) == 10


@pytest.mark.parametrize(("data", "seconds"), [("cifar10", 1.7), ("cifar100", 9.0)])
def test_deepcluster_also_clusters_in_every_epoch(data: str, seconds: float) -> None:
    run = Pretraining("deepcluster", data, "conv4", 1, 200, 128, 1)
    more = estimate.run_seconds(run) - estimate.run_seconds(dataclasses.replace(run, method="rotation"))
    features = 50_000 * estimate.view_seconds("conv4", 32) / 3
    assert more / 200 == pytest.approx(features + seconds, rel=0.02)  # as `relatum.features.clustering` was measured


@pytest.mark.parametrize("protocol", ["linear", "finetune"])
def test_an_evaluation_of_fewer_images_costs_less(protocol: str) -> None:
    whole = Evaluation(RUN, protocol, "cifar10", epochs=100)
    few, all_ = (dataclasses.replace(whole, limit_train=n) for n in (500, 60_000))
    assert estimate.evaluation_seconds(few) < 0.5 * estimate.evaluation_seconds(whole)
    assert estimate.evaluation_seconds(all_) == estimate.evaluation_seconds(whole)


def test_a_supervised_run_s_own_score_costs_nothing() -> None:
    assert estimate.evaluation_seconds(Evaluation(RUN, "classifier", "cifar10")) == 0
    linear = estimate.evaluation_seconds(Evaluation(RUN, "linear", "cifar10", epochs=100))
    finetune = estimate.evaluation_seconds(Evaluation(RUN, "finetune", "cifar10", epochs=100))
    assert 0 < linear < finetune


def write_entry(folder: Path, run: Pretraining, seconds: float | None) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    document = {"seconds": seconds, "recipe": run.recipe().tables(), "evaluations": []}
    (folder / f"{run.id}.json").write_text(json.dumps(document))


def write_run(results: Results, run: Pretraining, seconds: float | None) -> None:
    """A run that was trained in the output folder, with its entry."""
    write_entry(results.out / "ledger", run, seconds)
    RunFolder(results.run_dir(run)).update_record(seconds=seconds)


def test_the_model_is_scaled_by_measured_seconds_of_this_machine(tmp_path: Path) -> None:
    out, other = tmp_path / "out", tmp_path / "results"
    results = Results(out, [other])
    write_entry(other, RUN, 50 * estimate.run_seconds(RUN))  # of another machine, or beside other work
    assert estimate.scale(results) == 1.0
    runs = [dataclasses.replace(RUN, seed=seed) for seed in (1, 2, 3)]
    for run, factor in zip(runs, (0.5, 0.6, 100.0), strict=True):
        write_run(results, run, factor * estimate.run_seconds(run))
    write_run(results, dataclasses.replace(RUN, seed=4), None)
    write_run(results, Pretraining("random", "shapes", "conv4", 1, 0, 1, 1), 1e6)  # not trained
    for seed in range(5, 15):  # weights from a ledger: the entry has the time of another machine, and the run has none
        write_entry(out / "ledger", dataclasses.replace(RUN, seed=seed), 50 * estimate.run_seconds(RUN))
    assert estimate.scale(results) == pytest.approx(0.6)
    linear = Evaluation(RUN, "linear", "cifar10", epochs=100)
    whole = estimate.run_seconds(RUN) + estimate.evaluation_seconds(linear)
    assert estimate.total([RUN], [linear], results) == pytest.approx(0.6 * whole)
    assert estimate.total([], [], results) == 0


def test_small_views_cost_a_quarter() -> None:
    large, small = (Pretraining("dino", "cifar10", "conv4", views, 100, 128, 1) for views in (4, 2))
    small = dataclasses.replace(small, set=(("views.small_number", "8"),))
    assert estimate.run_seconds(small) == pytest.approx(estimate.run_seconds(large))


@pytest.mark.parametrize(("seconds", "text"), [(40, "40 s"), (720, "12 min"), (19_800, "5.5 h"), (276_480, "3.2 days")])
def test_duration(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_what_is_no_time_of_this_model_is_left_out(tmp_path: Path) -> None:
    """The time is of the images without the held-out part; and an entry of another version may hold anything."""
    part = dataclasses.replace(RUN, val_fraction=0.5)
    recipe = part.recipe().tables()
    entry = {"id": "a", "recipe": recipe, "evaluations": [], "seconds": 2 * estimate.run_seconds(part)}
    (tmp_path / "ledger").mkdir()
    (tmp_path / "ledger" / "a.json").write_text(json.dumps(entry))
    for number, changes in enumerate(
        ({"seconds": "long"}, {"recipe": {**recipe, "views": 3}}, {"recipe": {"method": []}})
    ):
        (tmp_path / "ledger" / f"{number}.json").write_text(json.dumps({**entry, **changes}))
    for name in ("a", "0", "1", "2"):
        RunFolder(tmp_path / "runs" / name).update_record(seconds="long" if name == "0" else entry["seconds"])
    results = Results(tmp_path, [tmp_path / "ledger"])
    assert estimate.scale(results) == pytest.approx(2.0)
    assert results.seconds_here("0") is None
