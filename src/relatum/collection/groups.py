"""Groups of files for the colours of a map: by folder, and by date."""

from __future__ import annotations

import datetime
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

OTHER = "other"
_LARGEST = 9  # number of groups with a separate colour; all smaller groups share one more
_DEPTH = 4  # levels of folders that are looked at


def folder_groups(files: Sequence[str]) -> list[str]:
    """The folder of each file, cut to the first level that tells files apart; `.` for the top folder."""
    parents = [Path(file).parent.parts for file in files]
    depth = 1
    while depth < _DEPTH and len({p[:depth] for p in parents}) == 1 and any(len(p) > depth for p in parents):
        depth += 1
    return ["/".join(parts[:depth]) or "." for parts in parents]


def date_groups(times: NDArray[np.int64]) -> list[str]:
    """The day, month or year of each time (seconds since 1970): the finest that gives few enough groups."""
    days = [day(time) for time in times]
    for length in (10, 7):
        if len({text[:length] for text in days}) <= _LARGEST + 1:
            return [text[:length] for text in days]
    return [text[:4] for text in days]


def day(time: int) -> str:
    """The day of a time, as 2024-05-31."""
    return datetime.datetime.fromtimestamp(int(time), datetime.UTC).strftime("%Y-%m-%d")


def largest_groups(labels: Sequence[str]) -> list[str]:
    """The names of the groups, the largest first; `other` at the end stands for all groups without a colour."""
    counts = Counter(labels)
    names = [name for name, _ in sorted(counts.items(), key=lambda item: (-item[1], item[0]))]
    return names if len(names) <= _LARGEST + 1 else [*names[:_LARGEST], OTHER]
