"""One self-contained HTML page about one or several runs. No torch here.

`runs.reading` reads the run folders; `overview`, `comparison`, `embedding_map`, `nearest_images`, `confusion`,
`curves`, `views_and_pairs` and `result_tables` prepare plain data, a section or two each; `document` renders it with
the Jinja templates in `templates/` (autoescape on). page.js, map.js and mapinput.js add the interaction. The page
loads nothing from anywhere.
"""

from relatum.report.document import build

__all__ = ["build"]
