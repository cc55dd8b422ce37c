"""Names and numbers as the page writes them, and templates that escape and clean every value."""

from __future__ import annotations

import pytest

from relatum.report.formatting import axis_number, clean, data_title, duration
from relatum.report.rendering import _environment


def test_templates_escape_and_clean_every_value() -> None:
    template = _environment().from_string('<p title="{{ text }}">{{ text }}{{ 2.5 }}</p>')
    assert (
        template.render(text='<b>&"\u202e') == '<p title="&lt;b&gt;&amp;&#34;\ufffd">&lt;b&gt;&amp;&#34;\ufffd2.5</p>'
    )
    assert clean("a\x00b\x7f\u202e\udc80\n") == "a\u2400b\u2421\ufffd\ufffd\n"


def test_json_for_a_script_cannot_end_it() -> None:
    template = _environment().from_string("{{ data|tojson }}")
    text = template.render(data={"a": "</script><!--&\u2028", "b": [1.5, None]})
    assert text == '{"a":"\\u003c/script\\u003e\\u003c!--\\u0026\\u2028","b":[1.5,null]}'
    with pytest.raises(ValueError, match="not JSON compliant"):
        template.render(data=float("nan"))


def test_unknown_durations_are_empty() -> None:
    assert [duration(value) for value in (None, -1, "long", float("nan"))] == [""] * 4
    assert duration(42.4) == "42 s"


def test_numbers() -> None:
    values = (0, 1234567, 25000, 0.05, 12.3456, 3e-5, 100.0)
    assert [axis_number(v) for v in values] == ["0", "1.23e+06", "25,000", "0.05", "12.35", "3e-05", "100"]
    assert data_title("cifar100-20-test-tag") == "CIFAR-100-20, test-tag"
    assert data_title("my-photos-test") == "my-photos-test"
