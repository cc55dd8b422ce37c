"""Templates, styles and scripts as one self-contained HTML page that works offline and runs no other script."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import resources
from typing import Any

import jinja2

from relatum.report import formatting


def render_page(
    template: str,
    *,
    scripts: Sequence[str],
    styles: Sequence[str],
    data: Mapping[str, Any],
    version: str,
    **context: Any,
) -> str:
    """Render a page whose template extends `base.html`.

    Args:
        template: file name in `templates`.
        scripts: names of the page's scripts; the page's security policy allows no other.
        styles: names of its style sheets.
        data: what the scripts read, as JSON.
        version: the version of relatum that writes the page.
        context: variables of the template.
    """
    script = "".join(asset(name) for name in scripts)
    digest = base64.b64encode(hashlib.sha256(script.encode("utf-8")).digest()).decode("ascii")
    policy = f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
    style = "".join(asset(name) for name in styles)
    variables = {**context, "script": script, "policy": policy, "style": style, "data": data, "version": version}
    return render(template, **variables)


def render(template: str, **context: Any) -> str:
    """Render a template of this package."""
    return _environment().get_template(template).render(context)


@cache
def _environment() -> jinja2.Environment:
    """Templates with autoescape; every value is also cleaned of characters that must not be displayed."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("relatum.report"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_clean,
    )
    environment.policies["json.dumps_kwargs"] = {"allow_nan": False, "separators": (",", ":")}
    environment.filters |= {"count": formatting.count, "data_title": formatting.data_title}
    return environment


def _clean(value: Any) -> Any:
    keep = hasattr(value, "__html__") or isinstance(value, int | float | jinja2.Undefined)
    return value if keep else formatting.clean(value)


def asset(name: str) -> str:
    """The text of a script or style sheet of this package."""
    return resources.files("relatum.report").joinpath(name).read_text("utf-8").replace("\r\n", "\n")
