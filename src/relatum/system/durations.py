"""Durations as text."""

from __future__ import annotations


def duration(seconds: float) -> str:
    """Seconds as text: `40 s`, `12 min`, `5.5 h`, `3.2 days`."""
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    if seconds < 90 * 60:
        return f"{round(seconds / 60)} min"
    if seconds < 48 * 3600:
        return f"{seconds / 3600:.1f} h"
    return f"{seconds / 86400:.1f} days"
