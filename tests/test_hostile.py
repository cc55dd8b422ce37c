"""Files from strangers: nothing runs, memory and time are bounded, and what is said is one line."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import os
import re
import shutil
import struct
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file
from shard_maker import png, write_tar

import relatum
from relatum import api, backbones, config
from relatum.cli import main
from relatum.collection.index import index_file
from relatum.collection.indexing import build_index
from relatum.data import shards
from relatum.data.stream import index as shard_index
from relatum.data.stream.store import INDEX_FILE
from relatum.errors import RelatumError
from relatum.runs import checkpoint, ledger
from relatum.runs.folder import RunFolder
from relatum.runs.import_weights import import_weights
from relatum.runs.reading import read_run
from relatum.runs.weights import load_backbone, save_weights
from relatum.system.untrusted import parse_json, parse_toml, read_bounded

FACTS = {"backbone": "conv4", "num_features": 64, "side": 32, "mean": [0.5] * 3, "std": [0.25] * 3}
EVIL = "from pathlib import Path\nPath('ran').write_text('')\ndef make():\n    Path('ran').write_text('')\n"


@pytest.fixture(scope="module")
def trained(pictures: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    flags: dict[str, Any] = {"views": 2, "batch_size": 18, "epochs": 1, "seed": 1, "compile": "off", "threads": 1}
    return relatum.pretrain(pictures, out=tmp_path_factory.mktemp("trained") / "run", quiet=True, **flags).path


@pytest.fixture
def run(trained: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(trained, tmp_path / "run"))


def refused(function: Callable[[], Any], *, seconds: float = 30) -> str:
    """The one line that a function refuses its input with; it must come soon."""
    began = time.monotonic()
    with pytest.raises(RelatumError) as error:
        function()
    assert time.monotonic() - began < seconds
    (line,) = str(error.value).splitlines()
    return line


# ---------------------------------------------------------------------------------------------------------- checkpoints


def laughs() -> Any:
    value: Any = 1
    for _ in range(40):
        value = [value, value]
    return value


def mapped_laughs() -> Any:
    value: Any = {"k": 1}
    for _ in range(40):
        value = {"a": value, "b": value}
    return value


def endless() -> list[Any]:
    value: list[Any] = []
    value.append(value)
    return value


HEADER = {"optimizer": {}, "step": 1, "recipe": "", "info": {}, "format": 2, "digest": "x"}
CONTENTS: dict[str, tuple[Callable[[], Any], str]] = {
    "repeats a number": (lambda: torch.zeros(1).expand(2**33), "repeats its numbers"),
    "billion laughs": (laughs, "more than 1,000,000 values"),
    "billion laughs in mappings": (mapped_laughs, "more than 1,000,000 values"),
    "contains itself": (endless, "nested too deeply"),
    "sparse": (lambda: torch.eye(3).to_sparse(), "sparse, quantised or without content"),
    "without content": (lambda: torch.zeros(2**40, device="meta"), "sparse, quantised or without content"),
}


@pytest.mark.filterwarnings("ignore:Sparse invariant checks")
@pytest.mark.parametrize("kind", CONTENTS)
def test_a_checkpoint_of_a_kilobyte_takes_neither_memory_nor_time(kind: str, tmp_path: Path) -> None:
    make, reason = CONTENTS[kind]
    path = tmp_path / "x.ckpt"
    torch.save({**HEADER, "objective": {"backbone.x": make()}}, path)
    assert path.stat().st_size < 20_000
    assert reason in refused(lambda: checkpoint.load(path))
    torch.save({"backbone": {"x": torch.zeros(1)}, "head": make()}, path)
    assert reason in refused(lambda: import_weights(path, "conv4", tmp_path / "run"))


def with_pickle(path: Path, pickle: bytes, compression: int = zipfile.ZIP_STORED, name: str = "data.pkl") -> Path:
    """A checkpoint with this description of its tensors, in a member of this name."""
    buffer = io.BytesIO()
    torch.save({}, buffer)
    with zipfile.ZipFile(buffer) as good, zipfile.ZipFile(path, "w", compression) as file:
        for member in good.namelist():
            is_pickle = member.endswith("data.pkl")
            file.writestr(member.replace("data.pkl", name), pickle if is_pickle else good.read(member))
    return path


def test_instructions_that_fill_the_memory(tmp_path: Path) -> None:
    encode = b"\x80\x02c_codecs\nencode\nq\x00X\x08\x00\x00\x00aaaaaaaaX\x06\x00\x00\x00latin1\x86R"
    doubled = encode + b"q\x01h\x00h\x01X\x03\x00\x00\x00hex\x86R" * 31 + b"."  # 2³⁴ bytes
    assert "encodes texts" in refused(lambda: checkpoint.load(with_pickle(tmp_path / "x", doubled)))
    long = b"\x80\x02cbuiltins\nbytearray\nJ\xff\xff\xff\x7f\x85R."
    assert "bytearray" in refused(lambda: checkpoint.load(with_pickle(tmp_path / "x", long)))
    other_case = with_pickle(tmp_path / "x", long, name="data.PKL")  # torch finds it
    assert "bytearray" in refused(lambda: checkpoint.load(other_case))
    deep = b"\x80\x02}X\x06\x00\x00\x00digest" + b"]" * 50_000 + b"a" * 49_999 + b"s."
    assert "nested too deeply" in refused(lambda: checkpoint.load(with_pickle(tmp_path / "x", deep)))
    zeros = b"\x80\x02X" + (1 << 26).to_bytes(4, "little") + bytes(1 << 26) + b"."
    path = with_pickle(tmp_path / "x", zeros, zipfile.ZIP_DEFLATED)
    assert path.stat().st_size < 1 << 20
    assert "compressed" in refused(lambda: checkpoint.load(path))


def with_second_directory(path: Path, content: bytes, shown: bytes) -> Path:
    """An archive with two lists of members: torch reads the one whose offset is stated, zipfile the last one."""
    path = with_pickle(path, content, zipfile.ZIP_DEFLATED)
    real = path.read_bytes()
    size, start = struct.unpack("<II", real[-10:-2])
    other = with_pickle(path, shown).read_bytes()
    length, first = struct.unpack("<II", other[-10:-2])
    directory, moved, place = bytearray(other[first : first + length]), len(real) - 22, 0
    assert length == size
    after = moved + first  # where zipfile finds the last list, and what it adds to offsets
    while place < length:
        (offset,) = struct.unpack_from("<I", directory, place + 42)
        struct.pack_into("<I", directory, place + 42, (offset + moved - (after - start)) % 2**32)
        place += 46 + sum(struct.unpack_from("<HHH", directory, place + 28))
    path.write_bytes(real[:-22] + other[:first] + bytes(directory) + real[-22:])
    return path


def test_two_lists_of_members(tmp_path: Path) -> None:
    path = with_second_directory(tmp_path / "x", b"\x80\x02}X\x01\x00\x00\x00aK\x07s.", b"\x80\x02}.")
    assert torch.load(path, weights_only=True) == {"a": 7}  # it is compressed, which zipfile does not see
    assert "not where its end says" in refused(lambda: checkpoint.load(path))


def test_bytes_in_a_checkpoint_are_read(tmp_path: Path) -> None:
    """Which pickles store by a codec: the checks above must not refuse them."""
    checkpoint.save(tmp_path / "x", {"state": b"\x00\xff", "values": {"hexagon": [1, 2.5, "text", None, True]}})
    assert checkpoint.load(tmp_path / "x")["state"] == b"\x00\xff"


def test_a_checkpoint_of_before_torch_1_6_is_read(tmp_path: Path) -> None:
    state = backbones.build("conv4", seed=1).state_dict()
    torch.save({"backbone": state, "epoch": 3}, tmp_path / "x.tar", _use_new_zipfile_serialization=False)
    loaded = load_backbone(tmp_path / "x.tar", backbone="conv4").state_dict()
    assert all(torch.equal(loaded[name], value) for name, value in state.items())
    torch.save({"backbone": laughs()}, tmp_path / "x.tar", _use_new_zipfile_serialization=False)
    assert "more than" in refused(lambda: checkpoint.load(tmp_path / "x.tar"))


@pytest.mark.parametrize(
    "content",
    [
        {1: torch.zeros(1)},
        {"objective": {"backbone.x": 3}, "info": {}},
        {"objective": {"backbone.x": torch.zeros(1)}},
        {"objective": {}, "info": {"side": 10**9}},
        {"objective": {}, "info": {"std": [0, 0, 0]}},
    ],
    ids=["numbers as names", "no tensors", "no metadata", "large side", "no deviation"],
)
def test_a_checkpoint_of_another_form(content: dict[Any, Any], tmp_path: Path) -> None:
    torch.save(content, tmp_path / "x.ckpt")
    refused(lambda: load_backbone(tmp_path / "x.ckpt", backbone="conv4"))


@pytest.mark.parametrize(
    ("head", "reason"),
    [
        ([1, 2], "more than tensors"),
        ({1: torch.zeros(3)}, "more than tensors"),
        ({"linear1.weight": torch.zeros(())}, "takes 0 numbers"),
        ({"linear1.weight": torch.full((256, 128), float("nan"))}, "NaN"),
    ],
)
def test_a_relation_head_of_another_form(head: Any, reason: str, tmp_path: Path) -> None:
    torch.save({"backbone": backbones.build("conv4").state_dict(), "relation": head}, tmp_path / "x.tar")
    assert reason in refused(lambda: import_weights(tmp_path / "x.tar", "conv4", tmp_path / "run"))
    assert not (tmp_path / "run").exists()


# ---------------------------------------------------------------------------------------------------------------- texts

TOML = {
    "arrays": "a = " + "[" * 100_000 + "]" * 100_000,
    "inline tables": "a = " + "{b = " * 5000 + "1" + "}" * 5000,
    "a key of many parts": "a." * 50_000 + "b = 1",
    "decimal digits": "seed = 1" + "0" * 5000,
    "hexadecimal digits": "seed = 0x" + "f" * 50_000,
    "large": 'a = "' + "x" * 2_000_000 + '"',
}


@pytest.mark.parametrize("kind", TOML)
def test_no_recipe_stops_or_delays_a_command(kind: str, run: Path, pictures: Path) -> None:
    (run / "recipe.toml").write_text(TOML[kind])
    refused(lambda: config.read_toml(run / "recipe.toml"))
    refused(lambda: relatum.pretrain(pictures, recipe=run / "recipe.toml", out=run.parent / "new", quiet=True))
    began = time.monotonic()
    assert any("recipe.toml" in note for note in read_run(run).notes)
    assert RunFolder(run).is_run()  # by its record
    assert time.monotonic() - began < 20


def test_json_in_bounds() -> None:
    with pytest.raises(ValueError, match="nested too deeply"):
        parse_json("[" * 200_000)
    assert parse_json("[9223372036854775807, -5]") == [2**63 - 1, -5]
    assert parse_json("1" + "0" * 400) == float("inf")  # no number that fails when it is converted later
    assert parse_toml("a = 9223372036854775807")["a"] == 2**63 - 1


def links_and_pipes(place: Path) -> Iterator[str]:
    place.unlink()
    os.mkfifo(place)
    yield "a pipe"
    place.unlink()
    place.symlink_to("/dev/zero")
    yield "a device"
    place.unlink()


@pytest.mark.parametrize("name", ["recipe.toml", "run.json", "metrics.jsonl", "artifacts/views.npz"])
def test_pipes_and_devices_are_not_read(name: str, run: Path) -> None:
    for _ in links_and_pipes(run / name):
        began = time.monotonic()
        api.report([run], out=run.parent / "report.html")
        assert time.monotonic() - began < 20


def test_a_pipe_in_place_of_a_checkpoint(run: Path, pictures: Path) -> None:
    (run / "backbone.safetensors").unlink()
    for _ in links_and_pipes(run / "checkpoints" / "last.ckpt"):
        load_backbone(run)  # of the milestone


def test_a_pipe_in_place_of_weights(tmp_path: Path) -> None:
    """In a process of its own: safetensors would wait without giving other threads a chance."""
    os.mkfifo(tmp_path / "model.safetensors")
    code = f"import relatum; relatum.load_backbone({str(tmp_path)!r})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert "not a regular file" in done.stderr


def test_files_that_are_too_large(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(bytes(2 << 20))
    with pytest.raises(ValueError, match="larger than 1 MiB"):
        read_bounded(tmp_path / "x", 1 << 20)


def test_as_many_columns_as_rows(run: Path) -> None:
    """Twenty thousand of each would take 3 GB."""
    lines = (f'{{"step": {i}, "k{i}": 1}}\n' for i in range(20_000))
    (run / "metrics.jsonl").write_text("".join(lines))
    record = read_run(run)
    assert len(record.metrics) == 200
    assert any("columns" in note for note in record.notes)


# ------------------------------------------------------------------------------------------------------- code by a name


@pytest.fixture
def evil(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A module that leaves a mark; nothing may import it."""
    (tmp_path / "evil.py").write_text(EVIL)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    assert not (tmp_path / "ran").exists()


def test_no_file_names_code(evil: Path, run: Path, pictures: Path) -> None:
    state = load_file(run / "backbone.safetensors")
    save_weights(evil / "w.safetensors", state, {**FACTS, "backbone": "evil:make"})
    torch.save(
        {**HEADER, "objective": {f"backbone.{k}": v for k, v in state.items()}, "info": {"backbone": "evil:make"}},
        evil / "w.ckpt",
    )
    shutil.copy(evil / "w.safetensors", run / "backbone.safetensors")
    recipe = run / "recipe.toml"
    recipe.write_text(recipe.read_text().replace('"conv4"', '"evil:make"'))
    for source in (run, evil / "w.safetensors", evil / "w.ckpt"):
        refused(lambda source=source: load_backbone(source))
        refused(lambda source=source: relatum.embed(source, pictures))
        refused(lambda source=source: relatum.evaluate("knn", source, data=str(pictures), split="val"))
        refused(lambda source=source: relatum.search(source, pictures, next(pictures.rglob("*.png"))))
        refused(lambda source=source: relatum.duplicates(source, pictures))
        refused(lambda source=source: relatum.export(run=source, format="torch-export", out=evil / "x.pt2"))
    refused(lambda: relatum.pretrain(pictures, recipe=recipe, out=evil / "new", quiet=True))
    (run / "backbone.safetensors").unlink()
    refused(lambda: relatum.pretrain(out=run, resume=True, quiet=True))
    with pytest.raises(RelatumError):
        relatum.pretrain(pictures, init=str(evil / "w.ckpt"), backbone="resnet8", out=evil / "new", quiet=True)


def test_an_embedder_from_a_stranger(evil: Path, run: Path) -> None:
    """`fit` would import the backbone that its file names, and overwrite the run that it names."""
    folder = evil / "embedder"
    folder.mkdir()
    shutil.copy(run / "backbone.safetensors", folder / "backbone.safetensors")
    (folder / "embedder.json").write_text(json.dumps({"backbone": "evil:make", "out": str(run)}))
    assert "which is Python code" in refused(lambda: relatum.Embedder.load(folder))
    (folder / "embedder.json").write_text(json.dumps({"backbone": "conv4", "out": str(run)}))
    assert relatum.Embedder.load(folder).out is None
    for text in ("[" * 100_000, "[]", "{}x", '{"surprise": 1}'):
        (folder / "embedder.json").write_text(text)
        assert "contains no embedder" in refused(lambda: relatum.Embedder.load(folder))


# ------------------------------------------------------------------------------------------------- indexes and entries

INDEXES: dict[str, Callable[[dict[str, Any]], Any]] = {
    "infinite number": lambda d: d | {"images": 1e999},
    "large offsets": lambda d: d | {"firsts": [0, 10**30]},
    "no digests": lambda d: d | {"digests": []},
    "no folders": lambda d: d | {"folders": []},
    "sizes of texts": lambda d: d | {"sizes": ["x"]},
    "smaller shard": lambda d: d | {"sizes": [600]},
    "skipped numbers": lambda d: d | {"skipped": 5},
    "a list": lambda d: [d],
}


@pytest.mark.parametrize("kind", INDEXES)
def test_an_index_of_shards_from_a_stranger(kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "photos"
    folder.mkdir()
    for i in range(4):
        (folder / f"{i}.png").write_bytes(png(i))
    out = tmp_path / "shards"
    shards.write([f"{i}.png" for i in range(4)], lambda name: folder / name, out)
    document = json.loads((out / INDEX_FILE).read_text())
    (out / INDEX_FILE).write_text(json.dumps(INDEXES[kind](document)))
    assert len(relatum.data.load(out)) == 4
    assert "listed again" in " ".join(capsys.readouterr().err.split())


def test_an_image_of_two_gigabytes_in_an_index_of_shards(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It was read whole, by each thread, from a shard that takes no room on the disk."""
    for i in range(4):
        (tmp_path / f"{i}.png").write_bytes(png(i))
    out = tmp_path / "shards"
    shards.write([f"{i}.png" for i in range(4)], lambda name: tmp_path / name, out)
    document = json.loads((out / INDEX_FILE).read_text())
    os.truncate(out / document["shards"][0], 3 << 30)
    samples = np.fromfile(out / "relatum-index.samples", shard_index._SAMPLE)
    document["sizes"], samples["size"][1] = [3 << 30], 2 << 30
    samples.tofile(out / "relatum-index.samples")
    document["digests"][0] = shard_index._digest(out / "relatum-index.samples")
    (out / INDEX_FILE).write_text(json.dumps(document))
    images = relatum.data.load(out, storage="stream").images
    assert len({image.tobytes() for image in images}) == 4
    assert "listed again" in " ".join(capsys.readouterr().err.split())


def test_members_of_a_shard_do_not_leave_it(tmp_path: Path) -> None:
    write_tar(tmp_path / "s" / "0.tar", {"../../up.png": png(1), "/tmp/abs.png": png(2), "in.png": png(3)})
    before = sorted(tmp_path.rglob("*"))
    assert len(relatum.data.load(tmp_path / "s")) >= 1
    assert sorted(tmp_path.rglob("*")) == before


def test_an_index_of_a_collection_from_a_stranger(run: Path, pictures: Path) -> None:
    """Arrays of other shapes, a file that unpacks to gigabytes: computed again."""
    good = build_index(run, pictures, progress=False)
    place = index_file(run, pictures, "train")
    with np.load(place) as file:
        arrays = {name: file[name] for name in file.files}
    for change in (
        {"features": arrays["features"][:3]},
        {"signatures": arrays["signatures"][..., :1]},
        {"stamps": arrays["stamps"].astype(float)},
        {"features": np.full_like(arrays["features"], np.nan)},
        {"digests": np.arange(len(arrays["digests"]))},
        {"features": arrays["features"][:, :0]},
        {"times": arrays["times"] + 2**62},  # `explore` could not write its date
    ):
        np.savez(place, **{**arrays, **change})
        again = build_index(run, pictures, progress=False)
        np.testing.assert_array_equal(again.features, good.features)
    with zipfile.ZipFile(place, "w", zipfile.ZIP_DEFLATED) as archive, archive.open("features.npy", "w") as member:
        np.lib.format.write_array_header_1_0(member, {"descr": "|u1", "fortran_order": False, "shape": (300 * 2**20,)})
        for _ in range(300):
            member.write(bytes(2**20))
    again = build_index(run, pictures, progress=False)
    np.testing.assert_array_equal(again.features, good.features)


@pytest.mark.parametrize("name", ["features", "statistics"])
def test_rows_of_another_width_in_an_index_of_a_collection(
    name: str, run: Path, pictures: Path, tmp_path: Path
) -> None:
    """A new photograph was added to them, which ended with an internal error."""
    photos = shutil.copytree(pictures, tmp_path / "photos")
    build_index(run, photos, progress=False)
    place = index_file(run, photos, "train")
    with np.load(place) as file:
        arrays = {key: file[key] for key in file.files}
    np.savez(place, **{**arrays, name: arrays[name][:, :3]})
    Image.new("RGB", (40, 40), "red").save(photos / "new.png")
    index = build_index(run, photos, progress=False)
    assert len(index) == len(arrays["files"]) + 1
    assert getattr(index, name).shape[1] == arrays[name].shape[1]


@pytest.mark.parametrize(
    "change",
    [
        {"recipe": {"method": None}},
        {"recipe": {"data": {"name": None}}},
        {"recipe": []},
        {"evaluations": 5},
        {"commands": 5},
        {"id": "../../escaped"},
    ],
)
def test_a_ledger_entry_from_a_stranger(change: dict[str, Any], run: Path, tmp_path: Path) -> None:
    entry = {**ledger.collect(run), **change}
    (tmp_path / "ledger").mkdir()
    path = tmp_path / "ledger" / "x.json"
    path.write_text(json.dumps(entry))
    shutil.copy(run / "backbone.safetensors", path.with_suffix(".safetensors"))
    with contextlib.suppress(RelatumError):
        ledger.unpack(path, tmp_path / "runs")
    for found in ledger.read(tmp_path / "ledger"):
        _ = found.decisive, found.results
    path.with_suffix(".safetensors").unlink()
    refused(lambda: ledger.unpack(path, tmp_path / "other"))
    assert not list(tmp_path.parent.glob("escaped*"))


# --------------------------------------------------------------------------------------------------------- spreadsheets


def test_names_are_no_formulas(run: Path, tmp_path: Path) -> None:
    photos = tmp_path / "photos"
    for folder in ("=cmd", "plain"):
        (photos / folder).mkdir(parents=True)
        for i, name in enumerate(("=1+1.png", "+2.png", "-3.png", "@4.png")):
            Image.new("RGB", (32, 32), (i * 60, 90, 200)).save(photos / folder / name)
    relatum.embed(run, photos, out=tmp_path / "z.csv")
    relatum.embed(run, photos, out=tmp_path / "z.tsv")
    flat = Path(shutil.copytree(photos / "plain", tmp_path / "flat"))
    (flat / "5.png\n6.png").write_bytes((flat / "+2.png").read_bytes())
    relatum.select(run, flat, number=3, out=tmp_path / "s.csv")
    relatum.outliers(run, flat, out=tmp_path / "o.csv")
    relatum.select(run, flat, number=5, out=tmp_path / "s.txt")
    for name in ("z.csv", "z.metadata.tsv", "s.csv", "o.csv"):
        with (tmp_path / name).open(newline="") as file:
            rows = list(csv.DictReader(file, delimiter="\t" if name.endswith("tsv") else ","))
        assert rows
        for row in rows:
            assert not row["file"].startswith(("=", "+", "-", "@"))
            assert not row.get("label", "").startswith(("=", "+", "-", "@"))
            assert (photos / row["file"]).exists() or (flat / row["file"]).exists()
    assert (tmp_path / "s.txt").read_text().count("\n") == 5


@pytest.mark.parametrize(
    "command",
    ["duplicates", "outliers", "cluster --number 3", "select --number 20", "search"],
)
def test_names_are_one_line_of_text_on_the_terminal(
    command: str, run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A name may recolour the terminal, or contain a line end and then the name of any other file."""
    photos = tmp_path / "photos"
    photos.mkdir()
    for number in range(8):
        (photos / f"\x1b]0;title\x07\r{number}\n{number}.png").write_bytes(png(number // 2))
    name, *rest = command.split()
    query = [str(next(photos.iterdir()))] if name == "search" else []
    with pytest.raises(SystemExit) as end:
        main([name, str(run), str(photos), *query, *rest])
    shown = capsys.readouterr()
    assert end.value.code == 0
    assert "title" in shown.out
    assert not set(shown.out + shown.err) & set("\x1b\x07\r")
    assert not re.search(r"^\d\.png", shown.out, re.MULTILINE)


def with_tensor(path: Path, name: str, value: torch.Tensor, **facts: Any) -> Path:
    state = backbones.build("conv4").state_dict()
    save_file({**state, name: value}, path, metadata={"relatum": json.dumps({**FACTS, **facts})})
    return path


@pytest.mark.parametrize("kind", ["float64", "complex", "whole", "overflow", "negative"])
def test_weights_that_are_finite_in_the_file_alone(kind: str, run: Path, pictures: Path, tmp_path: Path) -> None:
    name, shape = "layer1.conv.weight", backbones.build("conv4").state_dict()["layer1.conv.weight"].shape
    value = {
        "float64": torch.full(shape, 1e300, dtype=torch.float64),  # infinite in float32
        "complex": torch.full(shape, 1 + 1j),
        "whole": torch.ones(shape, dtype=torch.int64),
        "overflow": torch.full(shape, 3e38),  # every weight is finite, and no representation is
    }.get(kind)
    if value is None:
        name, value = "layer1.bn.running_var", torch.full((8,), -5.0)
    path = with_tensor(tmp_path / "x.safetensors", name, value)
    for use in (
        lambda: relatum.embed(path, pictures, progress=False),
        lambda: relatum.search(path, pictures, next(pictures.rglob("*.png")), progress=False),
        lambda: api.duplicates(path, pictures, progress=False),
    ):
        assert re.search("infinite|has type|negative variance", refused(use))


def test_metadata_reaches_a_model_card_as_text(tmp_path: Path) -> None:
    tensor = backbones.build("conv4").state_dict()["layer1.conv.weight"]
    facts = {"dataset": "x\n---\n# <script>|`", "auto_map": {"AutoModel": "stranger--code"}, "model_type": "bert"}
    path = with_tensor(tmp_path / "x.safetensors", "layer1.conv.weight", tensor, **facts, odd=float("nan"))
    folder = api.export(path, format="huggingface", out=tmp_path / "hub")
    assert json.loads((folder / "config.json").read_text()).keys().isdisjoint({"auto_map", "odd"})
    assert json.loads((folder / "config.json").read_text())["model_type"] == "relatum-backbone"
    card = (folder / "README.md").read_text()
    assert "<script>" not in card
    assert card.count("\n---\n") == 1  # the end of the front matter
    long = with_tensor(tmp_path / "long.safetensors", "layer1.conv.weight", tensor, backbone="x" * 10_000)
    assert "backbone in the metadata is not a text of at most" in refused(lambda: load_backbone(long))


def test_weights_that_lost_their_metadata_are_not_normalised_otherwise(run: Path, tmp_path: Path) -> None:
    """One changed byte in the name of the metadata: the file then says nothing about mean, deviation and side."""
    content = (run / "backbone.safetensors").read_bytes()
    position = content.index(b'"relatum"') + 3
    (tmp_path / "w.safetensors").write_bytes(content[:position] + b"X" + content[position + 1 :])
    assert "w.safetensors" in refused(lambda: load_backbone(tmp_path / "w.safetensors", backbone="conv4"))
    save_file(load_file(run / "backbone.safetensors"), tmp_path / "plain.safetensors")  # of another program
    load_backbone(tmp_path / "plain.safetensors", backbone="conv4")
