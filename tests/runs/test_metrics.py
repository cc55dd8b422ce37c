"""Metrics: no gap and no repeated step after a resume; a damaged line is passed over."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from relatum.runs.metrics import MetricsWriter, parse_row, read_metrics, rows_digest


def test_metrics_are_cut_back_to_the_step(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    writer = MetricsWriter(path, 0)
    for step in (1, 5, 10, 15):
        writer.write({"step": step, "loss": 1 / step})
    writer.sync()
    writer.close()
    with path.open("a") as file:
        file.write('{"step": 20, "lo')  # killed in mid-line
    writer = MetricsWriter(path, 10)
    writer.write({"step": 15, "loss": 0.5})
    writer.close()
    assert [json.loads(line)["step"] for line in path.read_text().splitlines()] == [1, 5, 10, 15]


def test_lines_that_cannot_be_read_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    assert read_metrics(path) == []
    path.write_text('{"step": 1}\n[2]\n{"step": 3}\n{"step": 4, "lo')
    assert read_metrics(path) == [{"step": 1}, {"step": 3}]


def test_damaged_lines_are_counted_and_changed_ones_noticed(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    writer = MetricsWriter(path, 0)
    for step in (1, 2, 3):
        writer.write({"step": step, "loss": 0.5, "views_per_second": 9.0 * step})
    writer.close()
    whole, digest = path.read_bytes(), writer.digest
    for content, damaged, same in (
        (whole, 0, True),
        (whole + b'{"step": 4, "lo', 0, True),  # killed in mid-line, after the checkpoint
        (whole.replace(b"27.0", b"31.0"), 0, True),  # timings differ between repetitions
        (whole.replace(b'"step": 2', b'"step\xff: 2'), 1, False),
        (b"\x00" + whole, 1, False),
        (whole.replace(b"0.5", b"0.4", 1), 0, False),
        (whole[: len(whole) // 2], 0, False),
    ):
        path.write_bytes(content)
        writer = MetricsWriter(path, 3)
        writer.close()
        assert (writer.damaged, writer.digest == digest) == (damaged, same)
        assert rows_digest(read_metrics(path)) == writer.digest


def test_weights_and_biases_offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    writer = MetricsWriter(tmp_path / "metrics.jsonl", 0, wandb=True)
    writer.write({"step": 1, "loss": 0.5})
    writer.close()
    assert list((tmp_path / "wandb").glob("offline-run-*/*.wandb"))
    assert read_metrics(tmp_path / "metrics.jsonl") == [{"step": 1, "loss": 0.5}]


def test_a_line_that_is_written_in_parts(tmp_path: Path) -> None:
    """As on a disk that is nearly full, and gets room again."""

    class Slow:
        def __init__(self, file: Any) -> None:
            self.file = file

        def write(self, line: bytes) -> int:
            return self.file.write(line[:5])

        def close(self) -> None:
            self.file.close()

    writer = MetricsWriter(tmp_path / "metrics.jsonl", 0)
    writer._file = Slow(writer._file)  # type: ignore[assignment]
    writer.write({"step": 1, "loss": 0.25})
    writer.close()
    assert read_metrics(tmp_path / "metrics.jsonl") == [{"step": 1, "loss": 0.25}]


@pytest.mark.parametrize("step", ["NaN", "Infinity", "-1", "true", "null", '"7"'])
def test_a_step_is_a_number(step: str) -> None:
    """The display of `reproduce --executor ray` failed on others."""
    assert parse_row(f'{{"step": {step}, "loss": 1.0}}'.encode()) is None
