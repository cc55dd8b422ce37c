"""Benchmarks run and give the contract's fields; what they measure is checked on quiet cores, never by a test."""

from __future__ import annotations

import json
from typing import Any

import pytest

from relatum import bench, cli
from relatum.errors import InputError, command_line

SMALL: dict[str, Any] = {"views": 2, "batch_size": 4, "repeats": 1}


@pytest.mark.slow
def test_step_has_three_sides() -> None:
    actual = bench.run("step", backbone="conv4", steps=1, **SMALL)
    assert actual["overhead"] == pytest.approx(actual["ours_seconds"] / actual["bare_seconds"])
    assert actual["speedup"] == pytest.approx(actual["plain_seconds"] / actual["ours_seconds"])
    assert (actual["views"], actual["batch_size"], actual["backbone"], actual["what"]) == (2, 4, "conv4", "step")
    other = bench.run("step", method="supervised", batch_size=4, repeats=1, steps=1, side=64)
    assert other["plain_seconds"] is None
    assert other["side"] == 64


@pytest.mark.parametrize("what", ["views", "head"])
def test_the_others_have_the_fields_of_the_contract(what: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        cli.main(["bench", what, "--views", "2", "--batch-size", "4", "--repeats", "1", "--json"])
    assert not caught.value.code
    actual = json.loads(capsys.readouterr().out)
    assert {
        "what",
        "method",
        "views",
        "batch_size",
        "side",
        "backbone",
        "ours_seconds",
        "plain_seconds",
        "speedup",
    } <= actual.keys()
    assert actual["what"] == what
    assert actual["ours_seconds"] > 0
    if what == "head":
        assert {"extra_bytes_ours", "extra_bytes_plain"} <= actual.keys()


def test_an_unknown_benchmark() -> None:
    with pytest.raises(InputError, match="did you mean 'head'"):
        bench.run("haed")


@pytest.mark.parametrize(
    ("what", "option"), [("views", "repeats"), ("step", "batch_size"), ("views", "side"), ("head", "views")]
)
def test_impossible_sizes_are_refused(what: str, option: str) -> None:
    """They were unexpected errors of the libraries, after the first implementation had been measured."""
    with command_line(), pytest.raises(InputError, match=f"--{option.replace('_', '-')} 0 is out of range"):
        bench.run(what, **{option: 0})
    with pytest.raises(InputError, match="at least 2"):
        bench.run("head", batch_size=1)


def test_random_weights_have_no_step() -> None:
    """Before, the bare backbone was compiled for a minute, and the first step ended with an internal error."""
    with pytest.raises(InputError, match="'random' is not trained"):
        bench.run("step", method="random", batch_size=4)
