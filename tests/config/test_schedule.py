from __future__ import annotations

import pytest

from relatum.config.schedule import step_decay


def test_the_rate_falls_tenfold_at_half_and_at_three_quarters() -> None:
    assert [step_decay(e, 100) for e in (0, 49, 50, 74, 75, 99)] == pytest.approx([1, 1, 0.1, 0.1, 0.01, 0.01])
    assert [step_decay(e, 3) for e in range(3)] == pytest.approx([1, 1, 0.1])  # 1.5 and 2.25 epochs
