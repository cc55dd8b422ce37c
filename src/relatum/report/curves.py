"""Training curves: loss, accuracy on positives and on negatives, speed, and whatever else a method logs."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from relatum.report.line_chart import Series, line_chart, series
from relatum.report.page import Page, Panel, Reason, Section
from relatum.runs import names
from relatum.runs.reading import RunRecord, is_number
from relatum.system.text import counted

TITLES = {
    "loss": "Loss",
    "positive_accuracy": "Accuracy on positives",
    "negative_accuracy": "Accuracy on negatives",
    "accuracy": "Accuracy",
    "knn_accuracy": "kNN accuracy during training",
    "feature_std": "Standard deviation of representations",
    "effective_dimension": "Effective dimension of representations",
    "views_per_second": "Views per second",
    "lr": "Learning rate",
}
PAIRED = ("positive_accuracy", "negative_accuracy")
SMOOTH = 25  # width of the median filter, in logged steps: speed is noisy, and its outliers are pauses


def training_curves(page: Page) -> Section:
    """The section: one chart per metric with all runs."""
    logged = [run for run in page.runs if run.metrics]
    x_label = "epoch" if all(_steps_per_epoch(run) for run in logged) else "step"
    charts: list[Panel] = []
    for metrics in _charts(page, logged):
        lines = [
            line for run in logged for name in metrics for line in _lines(page, run, name, x_label, len(metrics) > 1)
        ]
        if not lines:
            continue
        title = "Accuracy on pairs" if len(metrics) > 1 else TITLES.get(metrics[0], metrics[0].replace("_", " "))
        title += " (%)" if "accuracy" in metrics[0] else ""
        bounds = (0.0, max(float(line.y.max()) for line in lines)) if metrics[0] == "views_per_second" else None
        panel, data = line_chart(title, lines, x_label=x_label, bounds=bounds, legend=page.several)
        charts.append(panel)
        page.data["charts"].append(data)
    lead = "Lines are means over the logged steps; the bands span minimum and maximum."
    if any("effective_dimension" in run.metrics for run in logged):
        lead += (
            " Representations collapse, and the method learns nothing, if their standard deviation falls to 0 or their "
            "effective dimension (at most the number of features) to 1."
        )
    return Section("training", "Training", "Training curves", charts, lead, _reasons(page))


def _reasons(page: Page) -> list[Reason]:
    reasons = []
    for run in page.runs:
        diverged = int((~np.isfinite(run.metrics.get("loss", np.zeros(0)))).sum())
        if not run.metrics and run.method == "random":
            reasons.append((run, "No curves: random weights are not trained."))
        elif not run.metrics:
            reasons.append((run, f"No curves: no step was logged ({names.METRICS} is missing or empty)."))
        elif diverged:
            reasons.append((run, f"The loss was not a finite number at {counted(diverged, 'logged step')}."))
    return reasons


def _charts(page: Page, runs: list[RunRecord]) -> list[tuple[str, ...]]:
    """Which metrics share a chart, the usual ones first; a single run has positives and negatives on one."""
    logged = dict.fromkeys(name for run in runs for name in run.metrics if name not in ("step", "epoch"))
    metrics = [*(name for name in TITLES if name in logged), *(name for name in logged if name not in TITLES)]
    hidden = set()
    if all(name in run.metrics for run in runs for name in PAIRED):
        hidden.add("accuracy")  # the mean of the two
    if all(np.nanmax(run.metrics["lr"]) == np.nanmin(run.metrics["lr"]) for run in runs if "lr" in run.metrics):
        hidden.add("lr")
    metrics = [name for name in metrics if name not in hidden]
    charts: list[tuple[str, ...]] = [(name,) for name in metrics]
    pair = tuple(name for name in PAIRED if name in metrics)
    if page.several or len(pair) < 2:
        return charts
    return [pair if chart == pair[:1] else chart for chart in charts if chart != pair[1:]]


def _lines(page: Page, run: RunRecord, name: str, x_label: str, paired: bool) -> list[Series]:
    values = run.metrics.get(name)
    if values is None:
        return []
    if "accuracy" in name and np.nanmax(values, initial=0) <= 1.0001:  # logged as a fraction, shown in percent
        values = 100 * values
    if name == "views_per_second":
        values = _median(values)
    x = run.metrics["step"] / (_steps_per_epoch(run) if x_label == "epoch" else 1)
    if paired:
        label, colour = name.removesuffix("_accuracy") + "s", PAIRED.index(name)
    else:
        label, colour = (run.name if page.several else TITLES.get(name, name)), page.colour(run)
    line = series(label, colour, x, values)
    return [line] if line is not None else []


def _median(values: NDArray[np.float64]) -> NDArray[np.float64]:
    width = min(SMOOTH, max(1, len(values) // 8))
    if width < 3 or not np.isfinite(values).all():
        return values
    padded = np.pad(values, (width // 2, width - 1 - width // 2), mode="edge")
    return np.median(np.lib.stride_tricks.sliding_window_view(padded, width), axis=1)


def _steps_per_epoch(run: RunRecord) -> float:
    """From the run's steps and epochs, or from its images and mini-batch size; 0 if unknown."""
    total, epochs = run.info.get("total_steps"), run.setting("train.epochs")
    images, batch = run.info.get("images"), run.setting("train.batch_size")
    if is_number(total) and is_number(epochs) and total > 0 and epochs > 0:
        return float(total / epochs)
    if is_number(images) and is_number(batch) and images > 0 and batch > 0:
        return float(-(-images // batch))
    return 0.0
