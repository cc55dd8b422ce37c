"""HTML that is safe by construction: everything is text and is escaped, except what `el` itself made.

There is no template language and no place where a name from a folder or a file meets markup unescaped: a child that
is a plain `str` is escaped, a child that is `Html` was built here.
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterable
from typing import Any, Union

VOID = frozenset(("br", "img", "input", "meta", "link", "hr", "col"))
Child = Union["Html", str, int, float, None, Iterable["Child"]]

# Control characters would be invalid in HTML (NUL) or invisible: their pictures from U+2400 are neither.
_PICTURES = {code: 0x2400 + code for code in range(32)} | {0x7F: 0x2421, 0x2028: 0x2424, 0x2029: 0x2424}
# Undecodable bytes of file names, and marks that reverse text (`\u202egnp.exe` would read as `exe.png`).
_NOT_SHOWN = re.compile("[\ud800-\udfff\u202a-\u202e\u2066-\u2069]")


class Html(str):
    """Text that is markup already."""

    __slots__ = ()


def clean(text: object) -> str:
    """A name as text that can be shown: control characters as pictures, what cannot or must not be shown as U+FFFD."""
    return _NOT_SHOWN.sub("\ufffd", str(text).translate(_PICTURES))


def escape(child: Child) -> str:
    """Markup for a child: escaped unless it is `Html`; lists are joined, None is nothing."""
    if child is None:
        return ""
    if isinstance(child, Html):
        return child
    if isinstance(child, str | int | float):
        return html.escape(clean(child))
    return "".join(escape(part) for part in child)


def el(tag: str, *children: Child, **attributes: Any) -> Html:
    """An element. `class_` is class, `aria_label` aria-label; None and False leave it out, True leaves it bare."""
    text = [tag]
    for name, value in attributes.items():
        if value is None or value is False:
            continue
        name = name.rstrip("_").replace("_", "-")
        text.append(name if value is True else f'{name}="{html.escape(clean(value))}"')
    opening = f"<{' '.join(text)}>"
    return Html(opening if tag in VOID else f"{opening}{''.join(escape(child) for child in children)}</{tag}>")


def name_of(text: object) -> Html:
    """A name from outside: isolated, so that right-to-left marks in it cannot reorder what stands around it."""
    return el("bdi", clean(text))


def script_json(data: Any) -> str:
    """JSON that can stand inside a <script>: no `<`, `>` or `&`, and only ASCII (so no U+2028); NaN is an error."""
    text = json.dumps(data, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
