"""Builds a recipe from layers of settings, each overriding the one before. No torch here.

Defaults of the paper for the method, preset, dataset and backbone; values that depend on this machine and the data
(`auto`); a recipe file; `--set key=value`; flags. A `Draft` keeps what the user asked for; `Draft.recipe(detected)`
returns the complete recipe, which the run folder stores.
"""

from __future__ import annotations

import sysconfig
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from relatum import registry
from relatum.config import conditions
from relatum.config.methods import METHODS
from relatum.config.recipe import TOP, BackboneName, Recipe, Values
from relatum.data import sets
from relatum.errors import InputError
from relatum.system.untrusted import MAX_RECIPE, parse_toml, read_bounded


def flatten(tables: Mapping[str, Any]) -> Values:
    """Nested TOML tables as dotted keys."""
    flat: Values = {}
    for key, value in tables.items():
        if isinstance(value, Mapping):
            flat.update({f"{key}.{name}": inner for name, inner in value.items()})
        else:
            flat[key] = value
    return flat


def defaults(method: str, preset: str, dataset: str, backbone: str) -> Values:
    """The settings of a preset for this condition: the paper's, those of the authors' code, or the fast ones."""
    row = registry.find(METHODS, "method", method)
    values: Values = {**row.defaults, **(row.official if preset == "official" else {})}
    if preset == "fast" and not conditions.has_preset(preset, method):
        raise InputError(f"{method} has no preset fast: use paper or official.")
    if row.trains:
        values |= conditions.values(preset, method, dataset, backbone)
    if dataset in sets.names():
        facts = sets.get(dataset)
        values |= {"data.side": facts.side, "data.mean": facts.mean, "data.std": facts.std, "data.pad": facts.pad}
        values["data.split"] = "train" if row.uses_labels else facts.pretrain_split
    return values


@dataclass(frozen=True)
class Draft:
    """The settings that the user gave, before defaults and `auto` are filled in.

    Attributes:
        values: all settings of the user, by dotted key.
        explicit: the keys given by flags and `--set`; a recipe file usually has many more.
    """

    values: Values
    explicit: frozenset[str] = frozenset()

    def get(self, key: str, default: Any = None) -> Any:
        """The user's value of `key`, or `default`."""
        return self.values.get(key, default)

    @cached_property
    def request(self) -> Recipe:
        """The user's settings with the paper's defaults, before data and machine are known."""
        return self.recipe()

    def recipe(self, detected: Mapping[str, Any] | None = None) -> Recipe:
        """The complete recipe; `detected` (machine, data) overrides the paper's defaults, the user overrides both."""
        get, detected = self.values.get, detected or {}
        method = str(get("method", TOP["method"]))
        preset = get("preset", detected.get("preset", TOP["preset"]))
        backbone = get("backbone.name", detected.get("backbone.name", BackboneName.name))
        base = defaults(method, preset, get("data.name", ""), backbone)
        untrained = {} if METHODS[method].trains else {"train.epochs": 0}
        values = {**base, **detected, **self.values, **untrained}
        if values.get("views.policy") == "finetune":
            values.setdefault("views.cutout_area", sets.cutout_area(str(get("data.name", ""))))
        return Recipe.from_values(values)


def draft(
    *, recipe_file: str | Path | None = None, sets: Iterable[str] = (), flags: Mapping[str, Any] | None = None
) -> Draft:
    """Collect the user's settings: a recipe file, `key=value` strings, then flags (None means not given)."""
    values: Values = {}
    if recipe_file is not None:
        recipe_file = find_recipe(recipe_file)
        values.update(flatten(read_toml(recipe_file)))
        detected = {"version", "data.images", "data.fingerprint"}  # facts of that run; this run determines them again
        if (flags or {}).get("data.name") not in (None, values.get("data.name")):
            detected |= {"views.cutout_area"}
            detected |= {f"data.{name}" for name in ("split", "side", "mean", "std", "pad", "storage")}
        values = {key: value for key, value in values.items() if key not in detected}
    explicit: Values = {}
    for text in sets:
        key, equals, value = text.partition("=")
        if not equals:
            raise InputError(f"--set {text!r} has no '='; write --set key=value, for example --set train.lr=0.001.")
        explicit[key.strip()] = value.strip()
    explicit.update({key: value for key, value in (flags or {}).items() if value is not None})
    if "backbone.name" in values and "backbone.name" not in explicit:
        registry.backbone_from_file(values["backbone.name"], recipe_file)
    result = Draft({**values, **explicit}, frozenset(explicit))
    try:
        _ = result.request  # an unknown key or a bad value is an error now, not after an hour of decoding
    except InputError as error:
        alone = {**values, "method": result.get("method", TOP["method"])}  # which decides what options there are
        if recipe_file is not None and _problem(alone) == str(error):
            raise InputError(f"{recipe_file}: {error}") from None
        raise
    return result


def _problem(values: Values) -> str | None:
    """The error of invalid settings, or None."""
    try:
        Draft(values).recipe()
    except InputError as error:
        return str(error)
    return None


def find_recipe(name: str | Path) -> Path:
    """The path of a recipe: a file, or one that comes with relatum by its name (`hour`), in the clone or the wheel."""
    path = Path(name)
    if path.is_file() or len(path.parts) > 1:
        return path
    schemes = (sysconfig.get_default_scheme(), sysconfig.get_preferred_scheme("user"))  # as pip installs, and --user
    installed = (Path(sysconfig.get_path("data", scheme)) / "share" / "relatum" / "recipes" for scheme in schemes)
    folders = (Path(__file__).parents[3] / "recipes", *installed)
    file = f"{path.name.removesuffix('.toml')}.toml"
    return next((folder / file for folder in folders if (folder / file).is_file()), path)


def read_toml(path: Path) -> dict[str, Any]:
    """A TOML file, or an error in one line."""
    try:
        return parse_toml(read_bounded(path, MAX_RECIPE).decode("utf-8-sig"))  # editors on Windows write a mark first
    except FileNotFoundError:
        raise InputError(f"no recipe at {path}.") from None
    except (OSError, ValueError) as error:
        raise InputError(f"{path} is not a readable TOML file: {error}") from None
