"""Weights from and for other tools: `export` and `import_weights`."""

from __future__ import annotations

from pathlib import Path

from relatum.api.runs import Run, StrPath


def export(run: StrPath, *, format: str, out: StrPath) -> Path:
    """Export a run's backbone for use with other tools.

    Args:
        run: run folder or weights file.
        format: `safetensors`, `torch` or `onnx`.
        out: output file.
    """
    from relatum.runs import exchange

    return exchange.export(Path(run), format, Path(out))


def import_weights(
    file: StrPath, *, backbone: str, out: StrPath, data: str = "cifar10", method: str | None = None
) -> Run:
    """Create a run folder from weights that were trained elsewhere.

    Args:
        file: the authors' `.tar` checkpoint, a state dict, or safetensors.
        backbone: backbone name.
        out: run folder to create.
        data: dataset that the weights were trained on.
        method: method that trained them; by default relational where the file has a relation head, else supervised.
    """
    from relatum.runs import exchange

    return Run(exchange.import_weights(Path(file), backbone, Path(out), data=data, method=method))
