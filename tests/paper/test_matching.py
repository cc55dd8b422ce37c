"""Which ledger entries and results count as done for a plan."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from relatum import config
from relatum.paper.cells import Plan, Request
from relatum.paper.grid import Evaluation, Pretraining
from relatum.paper.matching import find_result, is_result, matches
from relatum.paper.measured import DONE, MISSING, Results, score
from relatum.paper.plan import plan
from relatum.paper.scheduler import Outcome, execute, missing
from relatum.runs import ledger

RUN = Pretraining("relational", "cifar10", "conv4", 4, 100, 64, 1)


def entry(run: Pretraining, **recipe: object) -> ledger.Entry:
    tables = run.recipe().tables()
    for key, value in recipe.items():
        section, _, name = key.partition("__")
        tables[section][name] = value
    return ledger.Entry(Path("any-name.json"), {"recipe": tables, "evaluations": []})


def test_entries_match_by_what_decides_the_weights() -> None:
    assert matches(entry(RUN), RUN)
    assert matches(
        entry(RUN, run__threads=7, log__every_steps=1, data__fingerprint="abc", checkpoint__every_steps=3), RUN
    )
    for change in (
        *(
            {"seed": 2},
            {"views": 8},
            {"epochs": 200},
            {"batch_size": 32},
            {"data": "cifar100"},
            {"backbone": "resnet8"},
        ),
        *({"labels": 0.1}, {"val_fraction": 0.2}, {"limit_train": 99}, {"preset": "official"}, {"method": "simclr"}),
        {"set": (("objective.aggregation", "max"),)},
    ):
        other = dataclasses.replace(RUN, **change)
        assert matches(entry(other), other)
        assert not matches(entry(other), RUN), change
    for change in (
        *({"train__lr": 0.01}, {"data__side": 64}, {"data__split": "unlabeled"}, {"data__pad": 0}),
        *({"data__mean": [0.5, 0.5, 0.5]}, {"run__precision": "bf16-mixed"}, {"objective__gamma": 0.0}),
    ):
        assert not matches(entry(RUN, **change), RUN), change
    narrow = dataclasses.replace(RUN, method="deepinfomax", batch_size=128)
    assert matches(entry(narrow), narrow)
    assert not matches(entry(narrow, objective__locations=4), narrow)  # the planned recipe leaves that key out


@pytest.mark.parametrize("recipe", [{}, {"method": "relational"}, {"method": "random", "seed": "one"}])
def test_an_entry_without_a_whole_recipe_is_of_no_run(recipe: dict[str, object]) -> None:
    broken = ledger.Entry(Path("any.json"), {"recipe": recipe, "evaluations": []})
    assert not matches(broken, RUN)
    assert not matches(broken, Pretraining("random", "shapes", "conv4", 1, 0, 1, 1))


def test_an_entry_of_a_version_that_lacked_a_key_still_matches() -> None:
    old = entry(RUN)
    del old.document["recipe"]["train"]["clip_norm"]  # absent means its default, which does not clip
    assert matches(old, RUN)
    assert not matches(old, dataclasses.replace(RUN, set=(("train.clip_norm", "1.0"),)))


def test_a_data_parallel_run_fills_a_cell_only_if_it_trained_on_whole_mini_batches() -> None:
    assert matches(entry(RUN, run__devices=4), RUN)
    assert not matches(entry(RUN, train__sync="local"), RUN)
    older = entry(RUN, run__devices=2)
    del older.document["recipe"]["train"]["sync"]  # at that time every process had pairs and statistics of its own
    assert not matches(older, RUN)
    alone = entry(RUN, run__devices=1)
    del alone.document["recipe"]["train"]["sync"]
    assert matches(alone, RUN)


def test_a_key_that_an_older_entry_lacks_is_its_default() -> None:
    for preset, expected in (("paper", True), ("official", False)):  # the authors' code drops the last short batch
        run = Pretraining("deepinfomax", "cifar10", "conv4", 1, 200, 128, 1, preset)
        older = entry(run)
        del older.document["recipe"]["train"]["drop_last"]
        assert matches(older, run) is expected
        assert matches(entry(run), run)


def test_random_weights_match_whatever_data_they_were_made_with() -> None:
    planned = Pretraining("random", "shapes", "conv4", 1, 0, 1, 1)
    assert matches(entry(dataclasses.replace(planned, data="cifar10")), planned)
    assert not matches(entry(dataclasses.replace(planned, seed=2)), planned)
    assert not matches(entry(dataclasses.replace(planned, backbone="resnet8")), planned)


def said(evaluation: Evaluation) -> dict[str, object]:
    """The settings of that evaluation's result, as its file has them: None is left out."""
    return {k: v for k, v in evaluation.settings.items() if v is not None}


def test_results_match_by_protocol_dataset_split_tag_and_settings() -> None:
    wanted = Evaluation(RUN, "linear", "cifar10", "test", "", 100)
    good = {"protocol": "linear", "dataset": "cifar10", "split": "test", "settings": said(wanted)}
    assert is_result(good, wanted)
    for change in ({"protocol": "knn"}, {"dataset": "cifar100"}, {"split": "val"}, {"tag": "x"}, {"settings": {}}):
        assert not is_result({**good, **change}, wanted), change
    for change in (
        *({"epochs": 20}, {"epochs": None}, {"lr": 0.1}, {"batch_size": 64}, {"solver": "logistic"}),
        *({"seed": 2}, {"limit_train": 500}, {"val_fraction": 0.2}),
    ):
        assert not is_result({**good, "settings": {**said(wanted), **change}}, wanted), change
    assert is_result({**good, "settings": {**said(wanted), "feature_scaling": "none"}}, wanted)


@pytest.mark.parametrize(
    ("protocol", "change"),
    [
        ("finetune", {"backbone_lr": 1e-3}),
        ("finetune", {"preset": "official"}),
        ("finetune", {"cutout_area": 0.111}),
        ("finetune", {"limit_train": 100}),
        ("retrieval", {"queries_per_class": 20}),
        ("retrieval", {"gallery": "train"}),
        ("tsne", {"iterations": 250}),
        ("tsne", {"n_points": 10_000, "perplexity": 5.0}),
    ],
)
def test_other_protocols_match_by_their_settings(protocol: str, change: dict[str, object]) -> None:
    wanted = Evaluation(RUN, protocol, "cifar10")
    good = {"protocol": protocol, "dataset": "cifar10", "split": "test", "settings": said(wanted)}
    assert is_result(good, wanted)
    assert not is_result({**good, "settings": {**said(wanted), **change}}, wanted)


def test_a_map_of_few_points_has_a_smaller_perplexity() -> None:
    wanted = Evaluation(RUN, "tsne", "cifar10")
    few = {**said(wanted), "n_points": 31, "perplexity": 10.0}
    assert is_result({"protocol": "tsne", "dataset": "cifar10", "split": "test", "settings": few}, wanted)


# The paper's protocols: section 4 and the appendix.
PAPER_SETTINGS = {
    "linear": {"epochs": 100, "lr": 1e-3, "batch_size": 128, "solver": "adam"},
    "finetune": {
        "epochs": 100,  # appendix; the main text says 20
        "preset": "paper",
        "lr": 1e-3,
        "backbone_lr": 1e-4,
        "batch_size": 32,
        "weight_decay": 0.0,
        "schedule": "step",
        "augmentation": "finetune",
    },
    "retrieval": {"queries_per_class": 500, "gallery": "test", "seeds": 1, "backend": "exact"},
    "tsne": {"points": 10_000, "iterations": 1000, "perplexity": 30.0, "learning_rate": 200.0, "backend": "sklearn"},
}


@pytest.mark.parametrize("protocol", PAPER_SETTINGS)
@pytest.mark.parametrize(("dataset", "area"), [("cifar10", 0.25), ("cifar100", 0.0625), ("stl10", 0.111)])
def test_an_evaluation_s_settings_are_the_paper_s(protocol: str, dataset: str, area: float) -> None:
    expected = {**PAPER_SETTINGS[protocol], "seed": 1, "val_fraction": 0.0, "limit_train": None}
    expected |= {"cutout_area": area} if protocol == "finetune" else {}
    assert Evaluation(RUN, protocol, dataset).settings == expected


def test_the_committed_entries_of_random_weights_are_the_paper_s_cells() -> None:
    for kept in ledger.read(Path(__file__).parents[2] / "results"):
        run = Pretraining(
            "random", "shapes", kept.document["recipe"]["backbone"]["name"], 1, 0, 1, kept.document["seed"]
        )
        if kept.document["method"] == "random":
            assert matches(kept, run)
            assert find_result(kept, Evaluation(run, "linear", "cifar10", epochs=100)) is not None, kept.path


def test_cells_of_the_ledger_are_done_whatever_the_files_are_called(
    tmp_path: Path, run_stub: Callable[[Plan], tuple[Results, Outcome]]
) -> None:
    asked = plan(["linear-evaluation"], Request(("cifar10",), ("conv4",), ("relational", "random"), (1,)))
    results, _ = run_stub(asked)
    kept = tmp_path / "results"
    kept.mkdir()
    for number, path in enumerate(sorted((results.out / "ledger").glob("*.json"))):
        path.rename(kept / f"row-{number}.json")
    elsewhere = Results(tmp_path / "empty", [kept])
    assert [score(c, elsewhere).status for c in asked.tables[0].cells] == [DONE, DONE]
    assert [score(c, elsewhere).mean for c in asked.tables[0].cells] == [
        score(c, results).mean for c in asked.tables[0].cells
    ]


def test_kept_weights_are_evaluated_without_training_again(
    tmp_path: Path, trace: Path, stub: tuple[str, ...], run_stub: Callable[[Plan], tuple[Results, Outcome]]
) -> None:
    asked = plan(["linear-evaluation"], Request(("cifar10",), ("conv4",), ("relational",), (1,)))
    results, _ = run_stub(asked)
    kept = tmp_path / "results"
    kept.mkdir()
    run = asked.runs[0]
    (results.out / "ledger" / f"{run.id}.json").rename(kept / "a.json")
    (kept / "a.safetensors").write_bytes(b"weights")
    trace.write_text("")
    further = plan(["domain-transfer"], Request(("cifar10",), ("conv4",), ("relational",), (1,)))
    elsewhere = Results(tmp_path / "new", [kept])
    outcome = execute(further, elsewhere, command=stub)
    assert not outcome.failed
    assert [line.split()[0] for line in trace.read_text().splitlines()] == ["evaluate"]
    assert (elsewhere.run_dir(run) / "backbone.safetensors").read_bytes() == b"weights"
    merged = json.loads((tmp_path / "new" / "ledger" / f"{run.id}.json").read_text())
    assert merged["curve"] == json.loads((kept / "a.json").read_text())["curve"] != []
    assert [e["dataset"] for e in merged["evaluations"]] == ["cifar10", "cifar100"]
    assert [c.split()[1] for c in merged["commands"]] == ["pretrain", "evaluate", "evaluate"]
    assert config.read_toml(elsewhere.run_dir(run) / "recipe.toml")["views"]["number"] == 32


def test_random_weights_add_to_their_entry(
    tmp_path: Path, stub: tuple[str, ...], run_stub: Callable[[Plan], tuple[Results, Outcome]]
) -> None:
    """They are made again from their seed, and what was measured before stays."""
    request = Request(("cifar10",), ("conv4",), ("random",), (1,))
    results, _ = run_stub(plan(["linear-evaluation"], request))
    further = Results(tmp_path / "new", [results.out / "ledger"])
    assert not execute(plan(["domain-transfer"], request), further, command=stub).failed
    entry = next((tmp_path / "new" / "ledger").glob("*.json"))
    assert [e["dataset"] for e in json.loads(entry.read_text())["evaluations"]] == ["cifar10", "cifar100"]


def test_a_picture_is_not_done_by_the_ledger_alone(
    tmp_path: Path, trace: Path, stub: tuple[str, ...], run_stub: Callable[[Plan], tuple[Results, Outcome]]
) -> None:
    request = Request(backbones=("conv4",), methods=("relational",), seeds=(1,))
    asked, errors = plan(["retrieval"], request), plan(["retrieval-errors"], request)
    results, _ = run_stub(asked)
    assert score(asked.tables[0].cells[0], results).status == DONE
    elsewhere = Results(tmp_path / "new", [results.out / "ledger"])
    assert {score(c, elsewhere).status for c in errors.tables[0].cells} == {DONE}  # numbers are in the ledger
    assert score(asked.tables[0].cells[0], elsewhere).status == MISSING
    assert missing(errors, elsewhere) == []
    trace.write_text("")
    assert not execute(asked, elsewhere, command=stub).failed
    assert [line.split()[:2] for line in trace.read_text().splitlines()] == [["evaluate", "retrieval"]]
    assert score(asked.tables[0].cells[0], elsewhere).status == DONE
    elsewhere.artifact(asked.evaluations[0]).unlink()
    assert score(asked.tables[0].cells[0], elsewhere).status == MISSING
