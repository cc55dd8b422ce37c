"""Line charts: axes, long series, and what the template makes of them."""

from __future__ import annotations

import numpy as np
import pytest

from relatum.report.line_chart import line_chart, series, ticks
from relatum.report.rendering import render


@pytest.mark.parametrize(
    ("low", "high"), [(0, 1), (0.0486, 0.171), (62, 94), (0, 156400), (-3, 2), (5, 5), (0, 0), (1e-9, 2e-9)]
)
def test_ticks_cover_the_range_with_few_round_values(low: float, high: float) -> None:
    values = ticks(low, high)
    assert values[0] <= low
    assert values[-1] >= high
    assert 2 <= len(values) <= 8
    steps = np.diff(values)
    np.testing.assert_allclose(steps, steps[0], rtol=1e-6)


def test_long_series_keep_their_mean_and_their_extremes() -> None:
    x, y = np.arange(10_000.0), np.random.default_rng(0).normal(size=10_000)
    y[5_000] = 99.0
    line = series("a", 0, x, y)
    assert line is not None
    assert len(line.x) == 240
    assert line.high.max() == 99.0
    assert line.low.min() == y.min()
    assert abs(line.y.mean() - y.mean()) < 1e-2
    assert series("a", 0, x, np.full(10_000, np.nan)) is None


def test_a_chart_has_a_text_summary_and_a_table() -> None:
    line = series("loss", 0, np.array([1.0, 2.0, 3.0]), np.array([0.5, np.nan, 0.25]))
    assert line is not None
    panel, data = line_chart("Loss", [line], x_label="epoch")
    figure = render("chart.html", chart=panel)
    assert 'aria-label="Loss over epochs. loss: from 0.5 to 0.25."' in figure
    assert data["lines"][0]["y"] == [0.5, 0.25]
    assert figure.count("<polyline") == 1
    assert "<td>0.25</td>" in figure
