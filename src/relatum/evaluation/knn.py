"""k-nearest-neighbours: how good a representation is with no training at all (not in the paper)."""

from __future__ import annotations

from relatum.config.protocols import KNNSettings
from relatum.evaluation.linear import scores
from relatum.evaluation.task import OFFLINE, Outcome, Task
from relatum.features.knn import knn_predict


def run(task: Task) -> Outcome:
    """The protocol: training images vote on test images."""
    settings: KNNSettings = task.settings
    y, test_y = task.labels(task.train), task.labels(task.test)
    x, test_x = task.features(task.train), task.features(task.test)
    options = {name: getattr(settings, name) for name in ("k", "metric", "weighting", "temperature")}
    names = task.train.classes
    accuracy, per_class = scores(knn_predict(x, y, test_x, **options), test_y, names)
    details = {"per_class": per_class, "classes": list(names), "k": min(settings.k, len(x))}
    return Outcome(accuracy, details, dict(OFFLINE), n_train=len(x))
