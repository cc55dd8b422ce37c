from __future__ import annotations

from pathlib import Path

import pytest

from relatum import config
from relatum.paper import recipes
from relatum.paper.cells import Request
from relatum.paper.plan import plan
from relatum.paper.published import TABLES

FOLDER = Path(__file__).parents[2] / "recipes"
FAMILIES = {name: (members, tables) for name, members, tables in recipes.families()}


def test_the_folder_is_what_the_grid_says() -> None:
    assert {p.stem: p.read_text("utf-8") for p in FOLDER.glob("*.toml")} == {
        **{name: recipes.hour(name) for name in recipes.HOURS},
        **{name: recipes.to_toml(name, members, tables) for name, (members, tables) in FAMILIES.items()},
    }


@pytest.mark.parametrize("name", FAMILIES)
def test_a_file_is_its_family_s_first_run_in_full(name: str) -> None:
    run = FAMILIES[name][0][0]
    assert config.draft(recipe_file=FOLDER / f"{name}.toml").recipe() == run.recipe()


@pytest.mark.parametrize("name", FAMILIES)
def test_flags_on_top_of_a_file_give_every_run_of_its_family(name: str) -> None:
    for run in FAMILIES[name][0]:
        flags = {
            "data.name": run.data,
            "backbone.name": run.backbone,
            "views.number": run.views,
            "data.labels": run.labels,
        }
        sets = [f"{key}={value}" for key, value in run.set]
        assert config.draft(recipe_file=FOLDER / f"{name}.toml", sets=sets, flags=flags).recipe() == run.recipe()


def test_every_run_of_every_table_has_a_file() -> None:
    covered = {run for members, _ in FAMILIES.values() for run in members}
    for name in TABLES:
        assert set(plan([name], Request(seeds=(1,))).runs) <= covered
