"""Every file of a run folder and of the caches: emptied, cut, and with single changed bytes. Nothing wrong is silent.

What reads a file gives the same result as before, or an error of one line, or a line that names the file. A few places
per file in the default suite, many in the slow one; `RELATUM_PLACES=500` changes how many.
"""

from __future__ import annotations

import dataclasses
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from shard_maker import png

import relatum
from relatum import api
from relatum.data import shards
from relatum.data.stream.blocks import BlockCache
from relatum.errors import RelatumError
from relatum.runs import checkpoint, ledger
from relatum.runs.folder import RunFolder
from relatum.runs.results import Result
from relatum.runs.weights import load_backbone, load_weights

FLAGS: dict[str, Any] = {"views": 2, "batch_size": 14, "epochs": 2, "seed": 1, "compile": "off", "threads": 1}
Reader = Callable[[], Any]


@dataclasses.dataclass
class Place:
    """A copy of everything, with what reads each file."""

    root: Path
    photos: Path

    @property
    def run(self) -> Path:
        return self.root / "run"

    def readers(self, name: str, *, all: bool = True) -> dict[str, Reader]:
        """What reads the file of this name, by a title: all readers, or without the report if there are others."""
        path, run = self.root / name, self.run
        if name.startswith("run/"):
            readers = self._of_run(path, run)
            return readers if all or len(readers) == 1 else {k: v for k, v in readers.items() if k != "report"}
        if name.startswith("cache/folders"):
            return {"load": lambda: _arrays(relatum.data.load(self.photos))}
        if name.startswith(("cache/shards", "shards/")):
            return {"load": lambda: _arrays(relatum.data.load(self.root / "shards"))}
        if name.startswith("cache/blocks"):
            return {"read": lambda: read_blocks(self.root / "cache")}
        assert name.startswith("ledger/"), name
        return {"read": lambda: [dict(entry.document) for entry in ledger.read(self.root / "ledger")] or ["left out"]}

    def _of_run(self, path: Path, run: Path) -> dict[str, Reader]:
        readers: dict[str, Reader] = {"report": lambda: _page(run)}
        if path.suffix == ".ckpt":
            readers["load"] = lambda: repr(checkpoint.load(path))
        elif path.name == "backbone.safetensors":
            readers["load"] = lambda: _state(load_backbone(run).state_dict())
            readers["info"] = lambda: load_backbone(run, backbone="conv4").info
        elif path.suffix == ".safetensors":
            readers["load"] = lambda: _state(load_weights(path)[0])
        elif path.parent.name == "features":
            readers["embed"] = lambda: relatum.embed(run, self.photos, progress=False).tobytes()
        elif path.parent.name == "index":
            readers["outliers"] = lambda: relatum.outliers(run, self.photos)
        elif path.parent.name == "evaluations":
            readers["result"] = lambda: Result.load(path).document()
            readers["ledger"] = lambda: ledger.collect(run)["evaluations"]
        elif path.name in ("recipe.toml", "run.json", "heldout.json"):
            readers["evaluate"] = lambda: _evaluated(run, self.photos)
            readers["ledger"] = lambda: {k: ledger.collect(run)[k] for k in ("recipe", "method", "seed")}
            readers["run"] = lambda: RunFolder(run).is_run()
        return readers


def _arrays(images: Any) -> Any:
    return images.images.tobytes(), None if images.labels is None else images.labels.tolist(), list(images.files)


def _state(state: Any) -> Any:
    return {name: value.numpy().tobytes() for name, value in state.items()}


def _page(run: Path) -> Any:
    out = run.parent / "page.html"
    api.report([run], out=out)
    return out.read_bytes()


def _evaluated(run: Path, photos: Path) -> Any:
    document = relatum.evaluate("knn", run, data=str(photos), split="val", tag="again").document()
    kept = {key: document[key] for key in ("accuracy", "n_train", "n_test", "pretrain")}
    (run / "evaluations" / f"knn-{photos.name}-val-again.json").unlink()
    known = ("status", "steps", "images", "version", "commit")  # of run.json; left out if it is damaged
    return {**kept, "pretrain": {key: value for key, value in kept["pretrain"].items() if key not in known}}


SOURCE = bytes(range(256)) * 4096


def read_blocks(cache: Path) -> bytes:
    """A megabyte through the cache of blocks."""
    before = os.environ["RELATUM_CACHE"]
    os.environ["RELATUM_CACHE"] = str(cache)
    try:
        blocks = BlockCache(1 << 21, lambda shard, start, size: SOURCE[start : start + size], "stamp", 1 << 18)
        return blocks.read(0, 100, len(SOURCE) - 100)
    finally:
        os.environ["RELATUM_CACHE"] = before


@pytest.fixture(scope="module")
def made(pictures: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """A run with everything that a run and the caches can have."""
    root = tmp_path_factory.mktemp("made")
    photos, cache, before = root / "photos", root / "cache", os.environ["RELATUM_CACHE"]
    shutil.copytree(pictures, photos)
    os.environ["RELATUM_CACHE"] = str(cache)
    try:
        run = relatum.pretrain(photos, out=root / "run", quiet=True, val_fraction=0.25, **FLAGS).path
        for protocol in ("knn", "linear", "retrieval", "tsne"):
            relatum.evaluate(protocol, run, data=str(photos), split="val", epochs=1 if protocol == "linear" else None)
        relatum.evaluate("finetune", run, data=str(photos), split="val", epochs=1, settings={"save": True})
        relatum.embed(run, photos, progress=False)
        relatum.outliers(run, photos)
        (root / "raw").mkdir()
        for i in range(6):
            (root / "raw" / f"{i}.png").write_bytes(png(i))
        shards.write([f"{i}.png" for i in range(6)], lambda name: root / "raw" / name, root / "shards")
        ledger.write(root / "ledger", ledger.collect(run))
        read_blocks(cache)
        yield Place(root, photos)
    finally:
        os.environ["RELATUM_CACHE"] = before


def files(root: Path) -> list[str]:
    """All files but pictures, tar files (which are data, with checksums of their own) and what is only written."""
    left_out = (".tar", ".png", ".html", ".lock")
    paths = (path for name in ("run", "cache", "shards", "ledger") for path in (root / name).rglob("*"))
    return sorted(
        str(path.relative_to(root))
        for path in paths
        if path.is_file() and path.stat().st_size and not path.name.endswith(left_out)
    )


def damages(content: bytes, places: int) -> Iterator[tuple[str, bytes]]:
    """Empty, cut at several lengths, and one byte changed at many places."""
    yield "empty", b""
    yield "cut", content[: len(content) // 2]
    if places > 2:
        yield "cut early", content[: len(content) // 10]
        yield "cut by one byte", content[:-1]
    draws = np.random.default_rng(len(content))
    header = draws.integers(0, min(len(content), 4000), places // 2)
    for position in [*np.linspace(0, len(content) - 1, places - places // 2).astype(int), *header]:
        mask = int(draws.integers(1, 256))
        yield (
            f"byte {position} ^ {mask}",
            content[:position] + bytes([content[position] ^ mask]) + content[position + 1 :],
        )


def outcome(read: Reader) -> Any:
    """The result, or the error's line."""
    try:
        return read()
    except RelatumError as error:
        return error


def sweep(
    made: Place, tmp_path: Path, places: int, capsys: pytest.CaptureFixture[str], names: list[str], *, all: bool
) -> int:
    work = Place(tmp_path / "work", made.photos)
    tried = 0
    for name in names:
        shutil.rmtree(work.root, ignore_errors=True)
        shutil.copytree(made.root, work.root, ignore=shutil.ignore_patterns("photos", "raw"))
        os.environ["RELATUM_CACHE"] = str(work.root / "cache")
        good = {title: read() for title, read in work.readers(name, all=all).items()}
        content = (made.root / name).read_bytes()
        for what, damaged in damages(content, places):
            for title, read in work.readers(name, all=all).items():
                (work.root / name).write_bytes(damaged)
                capsys.readouterr()
                result, told = outcome(read), " ".join(capsys.readouterr().err.split())
                tried += 1
                if isinstance(result, RelatumError):
                    assert 1 <= len(str(result).splitlines()) <= 2, result
                    continue
                if result == good[title]:
                    continue
                said = told + (result.decode("utf-8", "replace") if isinstance(result, bytes) else str(result))
                assert Path(name).name in said or "left out" in said, f"{name}, {what}, {title}: silent"
            if not (work.root / name).exists():  # a cache that was removed and made elsewhere
                (work.root / name).parent.mkdir(parents=True, exist_ok=True)
    return tried


@pytest.fixture
def own_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RELATUM_CACHE", os.environ["RELATUM_CACHE"])


def test_everything_is_there(made: Place) -> None:
    names = files(made.root)
    for part in (
        *("run/recipe.toml", "run/run.json", "run/metrics.jsonl", "run/heldout.json", "run/backbone.safetensors"),
        *("run/relation.safetensors", "run/checkpoints/last.ckpt", "run/checkpoints/previous.ckpt", "run/artifacts/"),
        *("run/evaluations/knn", "run/evaluations/retrieval", "run/features/", "run/index/", "run/finetuned/"),
        *("cache/folders/", "cache/blocks/", "shards/relatum-index", "ledger/"),
    ):
        assert any(name.startswith(part) for name in names), part


@pytest.mark.usefixtures("own_cache")
def test_no_damage_is_silent(made: Place, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = [name for name in files(made.root) if "milestone" not in name and "tsne" not in name]
    assert sweep(made, tmp_path, 2, capsys, names, all=False) > 100


@pytest.mark.slow
@pytest.mark.usefixtures("own_cache")
def test_no_damage_at_many_places_is_silent(made: Place, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    places = int(os.environ.get("RELATUM_PLACES", "60"))
    tried = sweep(made, tmp_path, places, capsys, files(made.root), all=True)
    assert tried > 60 * len(files(made.root))
