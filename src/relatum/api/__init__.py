"""The public functions. The command line calls them; both use the same names. torch is imported when it is needed."""

from relatum.api.collections import cluster, duplicates, outliers, select
from relatum.api.evaluating import embed, evaluate, report, search
from relatum.api.exchange import export, import_weights
from relatum.api.exploring import explore
from relatum.api.paper import reproduce
from relatum.api.pretraining import pretrain
from relatum.api.runs import Run

__all__ = [
    "Run",
    "cluster",
    "duplicates",
    "embed",
    "evaluate",
    "explore",
    "export",
    "import_weights",
    "outliers",
    "pretrain",
    "report",
    "reproduce",
    "search",
    "select",
]
