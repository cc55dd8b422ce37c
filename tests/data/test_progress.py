from __future__ import annotations

import pytest

from relatum.data import progress
from relatum.data.progress import Bar


def test_short_work_shows_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    with Bar("quick", 3) as bar:
        for _ in range(3):
            bar.advance(1)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("bytes_", [False, True])
def test_long_work_shows_a_bar_on_standard_error(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, bytes_: bool
) -> None:
    monkeypatch.setattr(progress, "_QUIET_SECONDS", -1.0)
    with Bar("decoding [red]odd[/red]", 3000, start=1000, bytes=bytes_) as bar:
        bar.advance(500)
        bar.advance(1500)
    out, err = capfd.readouterr()
    assert out == ""
    assert "decoding [red]odd[/red]" in err
    assert ("3.0/3.0 kB" if bytes_ else "3000/3000") in err
