"""A hook of MkDocs: pages outside docs/ (README.md is the start page), and links between files of the repository.

The files are written for readers of the repository, whose links lead from file to file. Here each link to a file that
is a page becomes a link to that page, and a link to any other file (an example, a ledger entry) becomes its text.
Pictures outside docs/ are copied to the site.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
PAGES = {  # repository file -> page
    "README.md": "index.md",
    "results/README.md": "results.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "CHANGELOG.md": "changelog.md",
}
_LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s]+)\)")


def on_files(files: Files, config: Any) -> Files:
    """Add the pages that lie outside docs/, and their pictures."""
    for source, page in PAGES.items():
        files.append(File.generated(config, page, content=(ROOT / source).read_text("utf-8")))
    for picture in outside_pictures():
        files.append(File.generated(config, picture, abs_src_path=str(ROOT / picture)))
    return files


def outside_pictures() -> list[str]:
    """The pictures that the pages of `PAGES` show from outside docs/, as paths in the repository."""
    targets = {
        _file(image[3], source)
        for source in PAGES
        for image in _LINK.finditer((ROOT / source).read_text("utf-8"))
        if image[1] and "://" not in image[3]
    }
    return sorted(target for target in targets if not target.startswith("docs/"))


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Rewrite the links of a page, outside of code blocks. A page that is a tab of its own needs no list of pages."""
    name = page.file.src_uri
    if page.parent is None:
        page.meta.setdefault("hide", ["navigation"])
    source = next((file for file, target in PAGES.items() if target == name), f"docs/{name}")
    parts = re.split(r"(?ms)(^```.*?^```$|`[^`\n]+`)", markdown)
    return "".join(part if part.startswith("`") else rewrite(part, source) for part in parts)


def rewrite(text: str, source: str) -> str:
    """The text of a repository file with its links as the site needs them."""
    return _LINK.sub(lambda match: _link(match, source), text)


def _link(match: re.Match[str], source: str) -> str:
    image, title, target = match.groups()
    path, mark, anchor = target.partition("#")
    if "://" in target or not path:
        return match[0]
    file = _file(path, source)
    page = PAGES.get(file) or (file.removeprefix("docs/") if image or file.startswith("docs/") else None)
    if page is None or page.endswith((".py", ".json")):
        return title
    return f"{image}[{title}]({page}{mark}{anchor})"


def _file(path: str, source: str) -> str:
    """The repository file that a link in `source` names."""
    return posixpath.normpath(posixpath.join(posixpath.dirname(source), path))
