from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest

from relatum import config
from relatum.config.methods import METHODS
from relatum.errors import InputError


def test_paper_defaults_per_condition() -> None:
    def of(**flags: str) -> config.Recipe:
        return config.draft(
            flags={"data.name": flags.pop("data"), **{k.replace("_", "."): v for k, v in flags.items()}}
        ).recipe()

    assert of(data="cifar10").views.number == 32
    assert of(data="cifar10").train.batch_size == 64
    assert of(data="tiny-imagenet", backbone_name="resnet32").views.number == 16
    assert of(data="tiny-imagenet", backbone_name="conv4").views.number == 32
    assert of(data="slimagenet", backbone_name="resnet32").views.number == 16
    stl = of(data="stl10", backbone_name="resnet34")
    assert (stl.views.number, stl.train.epochs, stl.data.split) == (25, 300, "unlabeled")
    assert of(data="stl10", method="supervised").data.split == "train"
    assert of(data="cifar10", method="random").train.epochs == 0
    supervised = of(data="cifar10", method="supervised").train
    assert (supervised.optimizer, supervised.lr, supervised.schedule, supervised.batch_size) == (
        "sgd",
        0.1,
        "step",
        128,
    )
    assert of(data="cifar10", method="deepinfomax").train.lr == 1e-4


def test_presets_differ_where_the_authors_code_does() -> None:
    paper = config.draft(flags={"data.name": "cifar10", "method": "simclr"}).recipe()
    official = config.draft(flags={"data.name": "cifar10", "method": "simclr", "preset": "official"}).recipe()
    assert paper.objective.loss == "nt-xent"
    assert official.objective.loss == "log-mean"


def test_layers_override_in_order(tmp_path: Path) -> None:
    file = tmp_path / "recipe.toml"
    file.write_text('seed = 7\n[data]\nname = "cifar10"\n[train]\nlr = 0.1\nepochs = 3\nbatch_size = 5\n')
    built = config.draft(
        recipe_file=file, sets=["train.lr=0.2", "train.epochs=4"], flags={"train.epochs": 9, "seed": None}
    )
    recipe = built.recipe({"train.lr": 0.9, "data.images": 12})
    assert (recipe.train.batch_size, recipe.train.lr, recipe.train.epochs, recipe.seed) == (5, 0.2, 9, 7)
    assert recipe.data.images == 12  # found, and not overridden


@pytest.mark.parametrize("method", METHODS)
def test_a_recipe_survives_the_trip_through_toml(method: str, tmp_path: Path) -> None:
    recipe = config.draft(flags={"data.name": "cifar100", "method": method}).recipe({"run.threads": 2})
    (tmp_path / "recipe.toml").write_text(recipe.to_toml())
    assert config.Recipe.from_values(config.flatten(config.read_toml(tmp_path / "recipe.toml"))) == recipe


@pytest.mark.parametrize("method", METHODS)
def test_a_key_that_an_older_recipe_lacks_has_its_default(method: str, tmp_path: Path) -> None:
    recipe = config.draft(flags={"data.name": "cifar100", "method": method}).recipe()
    lines = [line for line in recipe.to_toml().splitlines() if not line.startswith("drop_last")]
    assert len(lines) < len(recipe.to_toml().splitlines())
    (tmp_path / "recipe.toml").write_text("\n".join(lines))
    assert config.Recipe.from_values(config.flatten(config.read_toml(tmp_path / "recipe.toml"))) == recipe


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"sets": ["train.lrr=1"]}, "did you mean 'train.lr'"),
        ({"sets": ["objective.gama=1"]}, "did you mean 'objective.gamma'"),
        ({"sets": ["tain.lr=1"]}, "did you mean 'train.lr'"),
        ({"sets": ["train.lr"]}, "has no '='"),
        ({"flags": {"method": "relatonal"}}, "did you mean 'relational'"),
        ({"flags": {"preset": "papre"}}, "did you mean 'paper'"),
        ({"flags": {"seed": "one"}}, "seed"),
        ({"sets": ["objective.temperature=1"]}, "unknown key"),  # SimCLR's, not relational's
    ],
)
def test_mistakes_are_named(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        config.draft(**arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize("seed", [0, 1, "7", 2**63 - 1, 3.0])
def test_seeds(seed: object) -> None:
    assert config.draft(flags={"seed": seed}).recipe().seed == int(seed)  # type: ignore[call-overload]


@pytest.mark.parametrize(
    ("seed", "message"),
    [
        (-1, "seed = -1 is out of range"),
        (2**63, "between 0 and"),
        (2**70, "between 0 and"),
        ("1180591620717411303424", "between 0 and"),
        (1.7, "seed = 1.7 is not a whole number"),
        ("1.7", "not a whole number"),
        (True, "not a whole number"),
        (float("inf"), "not a whole number"),
        (float("nan"), "not a whole number"),
        (None, "not a whole number"),
    ],
)
def test_what_is_no_seed_is_refused(seed: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        config.Recipe.from_values({"seed": seed})


def test_files_that_are_no_recipes(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no recipe at"):
        config.read_toml(tmp_path / "nothing.toml")
    (tmp_path / "bad.toml").write_text("a = = 1")
    with pytest.raises(InputError, match="not a readable TOML"):
        config.read_toml(tmp_path / "bad.toml")


def test_every_key_is_reachable_and_documented() -> None:
    for method, row in METHODS.items():
        for kind in (*config.SECTIONS.values(), row.options):
            for field in fields(kind):
                assert field.metadata["help"], f"{method}: {field.name}"
        assert set(config.all_keys(method)) >= {"train.lr", "seed", "checkpoint.every_steps"}


def test_a_recipe_that_comes_with_relatum_is_found_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert config.draft(recipe_file="hour").values["preset"] == "fast"
    (tmp_path / "hour").write_text("preset = 'official'\n")
    assert config.draft(recipe_file="hour").values["preset"] == "official"  # a file of that name comes first
    (tmp_path / "hour").unlink()
    (tmp_path / "hour").mkdir()  # a run, for example
    assert config.draft(recipe_file="hour").values["preset"] == "fast"
    assert config.draft(recipe_file="hour.toml").values["preset"] == "fast"
    with pytest.raises(InputError, match=r"no recipe at hour\.json"):
        config.draft(recipe_file="hour.json")


def test_an_error_names_the_recipe_file_that_it_is_in(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text("[train]\nlearning = 3\n")
    with pytest.raises(InputError, match=r"mine\.toml: unknown key 'train\.learning'"):
        config.draft(recipe_file=file)
    file.write_text("[objective]\nmomentum = 0.9\n")  # an option of the method that the flag names
    with pytest.raises(InputError, match=r"^unknown key 'train\.learning'"):
        config.draft(recipe_file=file, sets=["train.learning=3"], flags={"method": "byol"})
