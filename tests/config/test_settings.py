from __future__ import annotations

from dataclasses import dataclass

import pytest

from relatum import config
from relatum.config.settings import build, setting, table
from relatum.errors import InputError


@dataclass(frozen=True)
class Example:
    number: int = setting(3, "a whole number", ge=1, le=9)
    rate: float = setting(0.5, "a rate", gt=0)
    word: str = setting("a", "a word", choices=("a", "bee"))
    flag: bool = setting(False, "a flag")
    triple: tuple[float, float, float] | None = setting(None, "three numbers", gt=0)
    many: tuple[int, ...] = setting((), "some numbers")


def test_text_is_converted_to_the_declared_type() -> None:
    built = build(
        Example, {"number": "4", "rate": "1e-3", "flag": "yes", "triple": "[1, 2, 3]", "many": "1,2,3,4"}, "example"
    )
    assert built == Example(number=4, rate=1e-3, flag=True, triple=(1.0, 2.0, 3.0), many=(1, 2, 3, 4))


def test_values_as_toml_gives_them() -> None:
    built = build(Example, {"number": 4.0, "rate": 1, "flag": False, "triple": [0.1, 0.2, 0.3]}, "example")
    assert built.number == 4
    assert isinstance(built.number, int)
    assert built.rate == 1.0
    assert built.triple == (0.1, 0.2, 0.3)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"numbr": 1}, "did you mean 'example.number'"),
        ({"number": 0}, "at least 1"),
        ({"number": 10}, "at most 9"),
        ({"rate": 0}, "greater than 0"),
        ({"rate": float("nan")}, "greater than 0"),
        ({"number": 1.5}, "whole number"),
        ({"number": True}, "whole number"),
        ({"rate": "fast"}, "not a number"),
        ({"rate": False}, "not a number"),
        ({"flag": "perhaps"}, "true or false"),
        ({"word": "be"}, "did you mean 'bee'"),
        ({"word": 3}, "not text"),
        ({"triple": [1, 2]}, "example.triple"),
        ({"triple": 7}, "example.triple"),
        ({"triple": [1, 2, -3]}, "greater than 0"),
    ],
)
def test_errors_are_reported(values: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        build(Example, values, "example")


def test_none_and_auto_mean_not_set() -> None:
    assert build(Example, {"triple": "auto"}, "example").triple is None
    assert "triple" not in table(Example())


def test_table_is_plain() -> None:
    assert table(Example(triple=(1.0, 2.0, 3.0)))["triple"] == [1.0, 2.0, 3.0]


def test_numbers_that_a_file_could_not_hold_are_refused() -> None:
    """A recipe with a whole number beyond 64 bits was written and could not be read again. JSON has no infinity."""
    assert config.Recipe.from_values({"log.every_steps": 2**63 - 1}).log.every_steps == 2**63 - 1
    for key, value, message in (
        ("log.every_steps", 2**63, "within 64 bits"),
        ("log.every_steps", "1" + "0" * 30, "within 64 bits"),
        ("train.lr", float("inf"), "not a finite number"),
        ("train.warmup_epochs", "inf", "not a finite number"),
        ("data.mean", [0.5, float("nan"), 0.5], "not a finite number"),
    ):
        with pytest.raises(InputError, match=message):
            config.Recipe.from_values({key: value})
