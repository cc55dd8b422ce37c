"""File names never reach a terminal as commands."""

from __future__ import annotations

from pathlib import Path

import pytest
from PIL import Image

from relatum import cli
from relatum.system.progress import Display, bar
from relatum.system.text import counted, distance_text, printable

NASTY = "a\x1b[31m\x07\x9b2J\u202e.png"


def test_control_characters_are_escaped_and_text_is_kept() -> None:
    assert printable(NASTY) == "a\\x1b[31m\\x07\\x9b2J\\u202e.png"
    assert printable("\udcff\r") == "\\udcff\\x0d"
    for text in ("plain", "two\nlines\tand a tab", "naïve – 图片 👩‍🚀"):
        assert printable(text) == text
    assert printable(Path("a\x1b")) == "a\\x1b"


def test_progress_lines_are_escaped(capsys: pytest.CaptureFixture[str]) -> None:
    display = Display()
    display.print(f"skipped {NASTY}")
    display.warn(f"skipped {NASTY}")
    with bar(NASTY, 2, patience=0) as advance:
        advance(1, NASTY)
    shown = capsys.readouterr().err
    assert "\\x1b[31m" in shown
    assert not {"\x1b", "\x07", "\x9b", "\u202e"} & set(shown)


def test_commands_print_escaped_file_names(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("one.png", "two.png"):
        Image.new("RGB", (32, 32)).save(tmp_path / name)
    (tmp_path / NASTY).write_bytes(b"no image")
    for arguments in (["data", "info", str(tmp_path)], ["embed", str(tmp_path / NASTY), "shapes", "--out", "x.npz"]):
        with pytest.raises(SystemExit):
            cli.main(arguments)
        shown = "".join(capsys.readouterr())
        assert "\\x1b[31m" in shown, arguments
        assert not {"\x1b", "\x07", "\x9b", "\u202e"} & set(shown), arguments


@pytest.mark.parametrize(("distance", "text"), [(2.34e-07, "0.00"), (0, "0.00"), (0.0123, "0.0123"), (4.5678, "4.57")])
def test_the_distance_of_equal_images_reads_zero(distance: float, text: str) -> None:
    assert distance_text(distance) == text


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ((1, "image"), "1 image"),
        ((0, "image"), "0 images"),
        ((1162, "image"), "1,162 images"),
        ((0.5, "minute"), "0.5 minutes"),
        ((1.0, "minute"), "1 minute"),
    ],
)
def test_a_number_and_its_noun_agree(arguments: tuple[float, str], text: str) -> None:
    assert counted(*arguments) == text
