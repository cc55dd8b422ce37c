"""One self-contained HTML page about one run or several: what people look at instead of reading logs. No torch here.

Order of reading: `runfolder` (what a run left behind) → `page` (what sections share) → `overview`, `scores`,
`embedding`, `retrieval`, `matrices`, `training`, `pictures`, `tables` (a section or two each) → `document`. `markup`
makes HTML that is escaped by construction; page.js, map.js and mapinput.js bring charts, matrices and the map to life;
nothing is ever fetched from anywhere.
"""

from relatum.report.document import build

__all__ = ["build"]
