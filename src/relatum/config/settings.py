"""Typed, documented, validated settings: frozen dataclasses whose fields have a help text, a range and choices.

A recipe's sections and each method's own options are such dataclasses. One mechanism reads them from TOML or from
`key=value` text, checks type, range and choice at construction, and answers an unknown key with the nearest valid one.
"""

from __future__ import annotations

import dataclasses
import math
import types
import typing
from collections.abc import Mapping
from operator import ge, gt, le
from typing import Any, TypeVar

from relatum.errors import InputError, unknown

T = TypeVar("T")
_BITS = 63  # of a whole number without its sign, as TOML has them


def setting(
    default: Any,
    help: str,
    *,
    choices: tuple[str, ...] | None = None,
    ge: float | None = None,
    gt: float | None = None,
    le: float | None = None,
) -> Any:
    """A dataclass field with its documentation and its bounds."""
    metadata = {"help": help, "choices": choices, "ge": ge, "gt": gt, "le": le}
    return dataclasses.field(default=default, metadata=metadata)


def choices(cls: type, name: str) -> tuple[str, ...]:
    """The values that a field of choices accepts."""
    allowed = next(f.metadata["choices"] for f in dataclasses.fields(cls) if f.name == name)
    return tuple(allowed or ())


def check(settings: T) -> T:
    """The same settings, with every value checked; `build` checks those that are read from a recipe."""
    return build(type(settings), vars(settings))


def build(cls: type[T], values: Mapping[str, Any], where: str = "") -> T:
    """Build an instance of `cls` from a table of values, checking every one.

    Args:
        cls: a dataclass whose fields are declared with `setting`.
        values: keys and values as TOML gives them; text is converted to the field's type.
        where: the table's name, for messages (`train` in `train.lr`).

    Raises:
        InputError: a key is unknown (the message names the nearest one), or a value has the wrong type or range.
    """
    fields = {f.name: f for f in dataclasses.fields(cls)}  # type: ignore[arg-type]
    hints = typing.get_type_hints(cls)
    prefix = f"{where}." if where else ""
    checked = {}
    for name, value in values.items():
        if name not in fields:
            raise unknown("key", f"{prefix}{name}", [f"{prefix}{f}" for f in fields])
        checked[name] = _check(f"{prefix}{name}", value, hints[name], fields[name].metadata)
    return cls(**checked)


def _check(key: str, value: Any, hint: Any, rules: Mapping[str, Any]) -> Any:
    value = _convert(key, value, hint)
    choices = rules.get("choices")
    if choices and value not in choices:
        raise unknown(f"value for {key}:", str(value), choices)
    for number in value if isinstance(value, tuple) else (value,):
        if isinstance(number, bool) or not isinstance(number, int | float):
            continue
        for word, sign, fits in (("ge", "at least", ge), ("gt", "greater than", gt), ("le", "at most", le)):
            bound = rules.get(word)
            if bound is not None and not fits(number, bound):  # NaN fits nothing
                raise InputError(f"{key} = {number} is out of range: it must be {sign} {bound}.")
        if isinstance(number, float) and not math.isfinite(number):  # JSON files of results cannot hold it
            raise InputError(f"{key} = {number} is not a finite number.")
        if isinstance(number, int) and number.bit_length() > _BITS:  # a recipe with it could not be read again
            raise InputError(f"{key} = {number} is out of range: whole numbers lie within 64 bits.")
    return value


def _convert(key: str, value: Any, hint: Any) -> Any:
    """`value` as the type that the field declares; text comes from the command line."""
    options = typing.get_args(hint) if typing.get_origin(hint) in (types.UnionType, typing.Union) else (hint,)
    if type(None) in options and value in (None, "none", "auto"):
        return None
    wanted = next(o for o in options if o is not type(None))
    try:
        if typing.get_origin(wanted) is tuple:
            parts = value.strip("[]() ").split(",") if isinstance(value, str) else list(value)
            kinds = typing.get_args(wanted)
            kinds = kinds[:1] * len(parts) if Ellipsis in kinds else kinds
            if len(parts) != len(kinds):
                raise ValueError
            return tuple(_convert(key, p, k) for p, k in zip(parts, kinds, strict=True))
        if wanted is bool:
            return _boolean(value)
        if wanted is int:
            if isinstance(value, bool) or (isinstance(value, float) and not value.is_integer()):
                raise ValueError
            return int(value)
        if wanted is float:
            if isinstance(value, bool):
                raise ValueError
            return float(value)
        if wanted is str and not isinstance(value, str):
            raise ValueError
        return value
    except (ValueError, TypeError, AttributeError):
        kind = getattr(wanted, "__name__", str(wanted))
        if typing.get_origin(wanted) is tuple:
            raise InputError(f"{key} = {value!r} is not a list of {len(typing.get_args(wanted))} numbers.") from None
        kind = {"int": "a whole number", "float": "a number", "bool": "true or false", "str": "text"}.get(
            kind, f"{wanted}"
        )
        raise InputError(f"{key} = {value!r} is not {kind}.") from None


def _boolean(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    booleans = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}
    if isinstance(value, str) and value.lower() in booleans:
        return booleans[value.lower()]
    raise ValueError(value)


def table(settings: Any) -> dict[str, Any]:
    """The settings as a plain table that TOML can represent; None is left out. A plain table stays as it is."""
    if isinstance(settings, Mapping):
        return dict(settings)
    result = {}
    for f in dataclasses.fields(settings):
        value = getattr(settings, f.name)
        if value is not None:
            result[f.name] = list(value) if isinstance(value, tuple) else value
    return result
