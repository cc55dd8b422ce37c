"""The recipe: its schema, its defaults and how it is put together. No torch here."""

from relatum.config.layers import Draft, defaults, draft, flatten, read_toml
from relatum.config.recipe import SECTIONS, TOP, Recipe, Train, Values, all_keys, seed

__all__ = [
    "SECTIONS",
    "TOP",
    "Draft",
    "Recipe",
    "Train",
    "Values",
    "all_keys",
    "defaults",
    "draft",
    "flatten",
    "read_toml",
    "seed",
]
