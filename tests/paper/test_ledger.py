from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from relatum import config
from relatum.errors import InputError
from relatum.paper import ledger
from relatum.paper.grid import Evaluation, Pretraining
from relatum.paper.measured import DONE, MISSING, Results, score
from relatum.paper.plan import Plan, Request, plan
from relatum.paper.scheduler import Outcome, execute, missing
from relatum.runs.folder import read_recipe

RUN = Pretraining("relational", "cifar10", "conv4", 4, 100, 64, 1)


def entry(run: Pretraining, **recipe: object) -> ledger.Entry:
    tables = run.recipe().tables()
    for key, value in recipe.items():
        section, _, name = key.partition("__")
        tables[section][name] = value
    return ledger.Entry(Path("any-name.json"), {"recipe": tables, "evaluations": []})


def test_entries_match_by_what_decides_the_weights() -> None:
    assert entry(RUN).matches(RUN)
    assert entry(RUN, run__threads=7, log__every_steps=1, data__fingerprint="abc", checkpoint__every_steps=3).matches(
        RUN
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
        assert entry(other).matches(other)
        assert not entry(other).matches(RUN), change
    for change in (
        *({"train__lr": 0.01}, {"data__side": 64}, {"data__split": "unlabeled"}, {"data__pad": 0}),
        *({"data__mean": [0.5, 0.5, 0.5]}, {"run__precision": "bf16-mixed"}, {"objective__gamma": 0.0}),
    ):
        assert not entry(RUN, **change).matches(RUN), change
    narrow = dataclasses.replace(RUN, method="deepinfomax", batch_size=128)
    assert entry(narrow).matches(narrow)
    assert not entry(narrow, objective__locations=4).matches(narrow)  # the planned recipe leaves that key out


@pytest.mark.parametrize("recipe", [{}, {"method": "relational"}, {"method": "random", "seed": "one"}])
def test_an_entry_without_a_whole_recipe_is_of_no_run(recipe: dict[str, object]) -> None:
    broken = ledger.Entry(Path("any.json"), {"recipe": recipe, "evaluations": []})
    assert not broken.matches(RUN)
    assert not broken.matches(Pretraining("random", "shapes", "conv4", 1, 0, 1, 1))


def test_an_entry_of_a_version_that_lacked_a_key_still_matches() -> None:
    old = entry(RUN)
    del old.document["recipe"]["train"]["clip_norm"]  # absent means its default, which does not clip
    assert old.matches(RUN)
    assert not old.matches(dataclasses.replace(RUN, set=(("train.clip_norm", "1.0"),)))


def test_a_key_that_an_older_entry_lacks_is_its_default() -> None:
    for preset, matches in (("paper", True), ("official", False)):  # the authors' code drops the last short batch
        run = Pretraining("deepinfomax", "cifar10", "conv4", 1, 200, 128, 1, preset)
        older = entry(run)
        del older.document["recipe"]["train"]["drop_last"]
        assert older.matches(run) is matches
        assert entry(run).matches(run)


def test_random_weights_match_whatever_data_they_were_made_with() -> None:
    planned = Pretraining("random", "shapes", "conv4", 1, 0, 1, 1)
    assert entry(dataclasses.replace(planned, data="cifar10")).matches(planned)
    assert not entry(dataclasses.replace(planned, seed=2)).matches(planned)
    assert not entry(dataclasses.replace(planned, backbone="resnet8")).matches(planned)


def said(evaluation: Evaluation) -> dict[str, object]:
    """The settings of that evaluation's result, as its file has them: None is left out."""
    return {k: v for k, v in evaluation.settings.items() if v is not None}


def test_results_match_by_protocol_dataset_split_tag_and_settings() -> None:
    wanted = Evaluation(RUN, "linear", "cifar10", "test", "", 100)
    good = {"protocol": "linear", "dataset": "cifar10", "split": "test", "settings": said(wanted)}
    assert ledger.is_result(good, wanted)
    for change in ({"protocol": "knn"}, {"dataset": "cifar100"}, {"split": "val"}, {"tag": "x"}, {"settings": {}}):
        assert not ledger.is_result({**good, **change}, wanted), change
    for change in (
        *({"epochs": 20}, {"epochs": None}, {"lr": 0.1}, {"batch_size": 64}, {"solver": "logistic"}),
        *({"seed": 2}, {"limit_train": 500}, {"val_fraction": 0.2}),
    ):
        assert not ledger.is_result({**good, "settings": {**said(wanted), **change}}, wanted), change
    assert ledger.is_result({**good, "settings": {**said(wanted), "feature_scaling": "none"}}, wanted)


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
    assert ledger.is_result(good, wanted)
    assert not ledger.is_result({**good, "settings": {**said(wanted), **change}}, wanted)


def test_a_map_of_few_points_has_a_smaller_perplexity() -> None:
    wanted = Evaluation(RUN, "tsne", "cifar10")
    few = {**said(wanted), "n_points": 31, "perplexity": 10.0}
    assert ledger.is_result({"protocol": "tsne", "dataset": "cifar10", "split": "test", "settings": few}, wanted)


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
            assert kept.matches(run)
            assert kept.result(Evaluation(run, "linear", "cifar10", epochs=100)) is not None, kept.path


def finished(folder: Path, run: Pretraining = RUN) -> Path:
    (folder / "evaluations").mkdir(parents=True)
    (folder / "recipe.toml").write_text(run.recipe().to_toml())
    (folder / "backbone.safetensors").write_bytes(b"weights")
    rows = [{"step": i, "epoch": 0, "loss": 1 / 3 if i else float("nan")} for i in range(1000)]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows) + '{"step": 1000, "lo')
    record = {"seconds": 12.5, "commit": "abc", "machine": {"cpu": "x"}, "threads": 2, "version": "0.1.0"}
    (folder / "run.json").write_text(json.dumps(record))
    result = {
        "protocol": "linear",
        "dataset": "cifar10",
        "split": "test",
        "accuracy": 58.0,
        "settings": said(Evaluation(run, "linear", "cifar10", epochs=100)),
    }
    (folder / "evaluations" / "linear-cifar10-test.json").write_text(json.dumps(result))
    (folder / "evaluations" / "broken.json").write_text("{")
    return folder


def test_collect_keeps_what_a_reader_needs(tmp_path: Path) -> None:
    found = ledger.collect(finished(tmp_path / "run"), ["relatum pretrain cifar10"])
    assert (found["seconds"], found["commit"], found["threads"], found["seed"]) == (12.5, "abc", 2, 1)
    assert found["commands"] == ["relatum pretrain cifar10"]
    assert [e["accuracy"] for e in found["evaluations"]] == [58.0]
    steps = [p["step"] for p in found["curve"]]
    assert (len(steps), steps[0], steps[-1]) == (ledger.CURVE_POINTS, 0, 999)
    assert found["curve"][0]["loss"] is None  # JSON knows no NaN
    assert found["recipe"] == config.read_toml(tmp_path / "run" / "recipe.toml")
    path = ledger.write(tmp_path / "ledger", found)
    assert ledger.read(tmp_path / "ledger")[0].document == json.loads(path.read_text())


def test_an_unfinished_run_is_refused(tmp_path: Path) -> None:
    finished(tmp_path / "run")
    (tmp_path / "run" / "backbone.safetensors").unlink()
    with pytest.raises(InputError, match="holds no finished run"):
        ledger.collect(tmp_path / "run")


def test_reading_passes_over_other_files(tmp_path: Path) -> None:
    (tmp_path / "notes.json").write_text('{"recipe": "of a cake"}')
    (tmp_path / "broken.json").write_text("{")
    assert ledger.read(tmp_path) == []


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


def test_small_weights_are_kept_beside_the_entry_and_large_ones_are_not(tmp_path: Path) -> None:
    run = finished(tmp_path / "run")
    for size, kept in ((100_000, True), (2_000_000, False)):
        (run / "backbone.safetensors").write_bytes(b"w" * size)
        path = ledger.write(tmp_path / str(size), {**ledger.collect(run), "id": "entry"})
        ledger.keep_weights(run, path)
        assert path.with_suffix(".safetensors").exists() is kept
        assert [e.backbone is not None for e in ledger.read(path.parent)] == [kept]


def test_an_entry_is_unpacked_to_a_run_folder(tmp_path: Path) -> None:
    run = finished(tmp_path / "run")
    path = ledger.write(tmp_path / "ledger", {**ledger.collect(run, ["relatum pretrain this"]), "id": "entry"})
    with pytest.raises(InputError, match="keeps no weights; make them again: relatum pretrain this"):
        ledger.unpack(path, tmp_path / "runs")
    again = tmp_path / "runs" / "entry"
    again.mkdir(parents=True)
    (again / "backbone.safetensors").write_bytes(b"made again")
    assert ledger.unpack(path, tmp_path / "runs") == again
    (again / "backbone.safetensors").unlink()
    ledger.keep_weights(run, path)
    for name in (path, path.with_suffix(".safetensors")):
        folder = ledger.unpack(name, tmp_path / "runs")
        assert folder == tmp_path / "runs" / "entry"
        assert (folder / "backbone.safetensors").read_bytes() == (run / "backbone.safetensors").read_bytes()
        assert read_recipe(folder).seed == read_recipe(run).seed
    (folder / "backbone.safetensors").write_bytes(b"others")
    with pytest.raises(InputError, match="holds other weights"):
        ledger.unpack(path, tmp_path / "runs")
    (tmp_path / "bare.safetensors").write_bytes(b"w")
    with pytest.raises(InputError, match="relatum import"):
        ledger.unpack(tmp_path / "bare.safetensors", tmp_path / "runs")
