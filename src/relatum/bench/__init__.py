"""`relatum bench`: ours against the usual way, measured side by side in one run; medians, with the spread beside them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from relatum.errors import unknown

BENCHES = ("views", "head", "step")


def run(what: str, **options: Any) -> dict[str, Any]:
    """One benchmark by its name; options that are None are left to it."""
    if what not in BENCHES:
        raise unknown("benchmark", what, BENCHES)
    given = {name: value for name, value in options.items() if value is not None}
    if what == "step":
        from relatum.bench.step import measure

        return measure(**given)
    kept = {name: given[name] for name in ("views", "batch_size", "side", "repeats", "root") if name in given}
    if what == "views":
        from relatum.bench.views import measure as measure_views

        return measure_views(**kept)
    from relatum.bench.head import measure as measure_head

    return measure_head(**{name: value for name, value in kept.items() if name not in ("side", "root")})


def spread(seconds: Sequence[float]) -> dict[str, float]:
    """Quartiles and extremes of measured times."""
    import numpy as np

    low, first, third, high = np.percentile(seconds, (0, 25, 75, 100))
    return {"min": low, "q1": first, "q3": third, "max": high, "n": len(seconds)}
