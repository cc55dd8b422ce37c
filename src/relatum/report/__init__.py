"""One self-contained HTML page about one run or several: what people look at instead of reading logs. No torch here.

Order of reading: `runfolder` (what a run left behind) → `page` (what sections share) → `overview`, `scores`, `embedding`,
`retrieval`, `training`, `pictures`, `tables` (one section or two each) → `document`. `markup` makes HTML that is escaped by
construction; page.js brings the map, the charts and the matrices to life; nothing is ever fetched from anywhere.
"""

from relatum.report.document import build

__all__ = ["build"]
