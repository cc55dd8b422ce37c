"""How the training went: loss, accuracy on positives and on negatives, speed, and whatever else a method logs."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from relatum.report.charts import Series, line_chart, series
from relatum.report.markup import Child, Html, el
from relatum.report.page import Page, filled
from relatum.report.runfolder import Run
from relatum.report.words import number

TITLES = {
    "loss": "Loss",
    "accuracy": "Accuracy",
    "positive_accuracy": "Accuracy on positives",
    "negative_accuracy": "Accuracy on negatives",
    "knn_accuracy": "kNN accuracy while training",
    "views_per_second": "Views per second",
    "lr": "Learning rate",
}
PAIRED = ("positive_accuracy", "negative_accuracy")
SMOOTH = 25  # median over so many logged steps: speed is noisy, and its outliers are pauses


def training(page: Page) -> Html | None:
    """The section: one chart per metric, all runs on it."""
    words = [(run, text) for run in page.runs for text in _words(run)]
    with_metrics = [run for run in page.runs if run.metrics]
    x_label = "epoch" if with_metrics and all(_steps_per_epoch(run) for run in with_metrics) else "step"
    charts: list[Child] = []
    for names in _charts(page, with_metrics):
        lines = [line for run in with_metrics for name in names for line in _line(page, run, name, x_label, len(names))]
        if not lines:
            continue
        title = "Accuracy on pairs" if len(names) > 1 else TITLES.get(names[0], names[0].replace("_", " "))
        unit = "%" if "accuracy" in names[0] else ""
        bounds = (0.0, max(float(line.y.max()) for line in lines)) if names[0] == "views_per_second" else None
        figure, data = line_chart(title, lines, x_label=x_label, unit=unit, bounds=bounds, keys=page.several)
        charts.append(figure)
        page.data["charts"].append(data)
    lead = "Lines are means of the logged steps; the bands behind them span the lowest to the highest."
    return filled(page, "training", "Training", words, el("div", charts, class_="charts") if charts else None, lead)


def _words(run: Run) -> list[str]:
    if not run.metrics:
        if run.setting("method") == "random":
            return ["No curves: random weights are not trained."]
        return ["No curves: no step was logged (metrics.jsonl is missing or empty)."]
    loss = run.metrics.get("loss")
    bad = 0 if loss is None else int((~np.isfinite(loss)).sum())
    return [f"The loss was not a finite number at {bad} logged step(s)."] if bad else []


def _charts(page: Page, runs: list[Run]) -> list[tuple[str, ...]]:
    """Which metrics stand on which chart, the usual ones first; a single run has positives and negatives on one."""
    logged = dict.fromkeys(name for run in runs for name in run.metrics)
    usual = ["loss", *PAIRED, "accuracy", "knn_accuracy", "views_per_second"]
    others = [name for name in logged if name not in usual and name not in ("step", "epoch", "lr")]
    names = [name for name in (*usual, *others) if name in logged]
    if any(name in logged for name in PAIRED):  # the overall accuracy of pairs is the mean of the two
        names = [name for name in names if name != "accuracy" or not _all_paired(runs)]
    if page.several:
        charts: list[tuple[str, ...]] = [(name,) for name in names]
    else:
        first = next((name for name in names if name in PAIRED), None)
        pair = tuple(name for name in PAIRED if name in names)
        charts = [pair if name == first else (name,) for name in names if name == first or name not in PAIRED]
    if any(np.nanmax(run.metrics["lr"]) > np.nanmin(run.metrics["lr"]) for run in runs if "lr" in run.metrics):
        charts.append(("lr",))
    return charts


def _all_paired(runs: list[Run]) -> bool:
    return all(name in run.metrics for run in runs for name in PAIRED)


def _line(page: Page, run: Run, name: str, x_label: str, together: int) -> list[Series]:
    values = run.metrics.get(name)
    if values is None:
        return []
    if "accuracy" in name and np.nanmax(values, initial=0) <= 1.0001:  # logged as a fraction, shown in percent
        values = 100 * values
    if name == "views_per_second":
        values = _median(values)
    x = run.metrics["step"] / (_steps_per_epoch(run) if x_label == "epoch" else 1)
    if together > 1:
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


def _steps_per_epoch(run: Run) -> float:
    """From the run's own record, or from the numbers of the last logged epoch; 0 where neither tells."""
    total, epochs = run.info.get("total_steps"), run.setting("train.epochs")
    if number(total) and number(epochs) and total > 0 and epochs > 0:
        return float(total / epochs)
    images, batch = run.info.get("images"), run.setting("train.batch_size")
    if number(images) and number(batch) and images > 0 and batch > 0:
        return float(-(-images // batch))
    return 0.0
