"""The command line as people and scripts meet it: exit codes, one-line errors, one JSON document."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer
from PIL import Image

from relatum import cli, config, registry
from relatum.cli.app import app
from relatum.collection.duplicates import THRESHOLD
from relatum.config.methods import METHODS
from relatum.system import signals
from relatum.training import resolve


def run(*arguments: str, code: int = 0) -> None:
    """Run a command in this process and check its exit code."""
    with pytest.raises(SystemExit) as caught:
        cli.main(list(arguments))
    assert (caught.value.code or 0) == code


FAST = ("--views", "2", "--batch-size", "8", "--epochs", "1", "--compile", "off", "--threads", "1")


@pytest.fixture(scope="module")
def trained(pictures: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("cli") / "run"
    run("pretrain", str(pictures), "--out", str(out), "--val-fraction", "0.25", *FAST)
    return out


def test_help_and_version(capsys: pytest.CaptureFixture[str]) -> None:
    run("--help")
    text = capsys.readouterr().out
    for name in ("pretrain", "evaluate", "embed", "search", "report", "reproduce", "export", "import", "bench", "demo"):
        assert name in text
    run("--version")
    assert capsys.readouterr().out.startswith("relatum ")
    for name in ("pretrain", "evaluate", "data", "bench", "reproduce"):
        run(name, "--help")


@pytest.mark.parametrize("group", [(), ("data",)])
def test_a_group_of_commands_alone_shows_its_help(capsys: pytest.CaptureFixture[str], group: tuple[str, ...]) -> None:
    run(*group, code=2)
    assert capsys.readouterr().err.startswith("Usage: relatum")


@pytest.mark.parametrize(
    ("command", "hint"),
    [
        (("pretian", "x"), "did you mean 'pretrain'"),
        (("data", "gett"), "unknown command 'gett'; did you mean 'get'?\n"),
        (("pretrain", "cifr10"), "cifar10"),
        (("pretrain", "shapes", "--method", "relatonal"), "did you mean 'relational'"),
        (("pretrain", "shapes", "--backbone", "conv5"), "did you mean 'conv4'"),
        (("pretrain", "shapes", "--set", "train.lrr=1"), "did you mean 'train.lr'"),
        (("pretrain", "shapes", "--set", "views.policy=relatonal"), "relational"),
        (("pretrain", "shapes", "--veiws", "3"), "unknown option '--veiws'; did you mean '--views'?\n"),
        (("outliers", "run", "photos", "--number", "5"), "'--number'; `relatum outliers --help` lists the options.\n"),
        (("pretrain", "shapes", "--views", "many"), "'--views': it must be a valid integer.\n"),
        (("search", "run", "photos", "a.png", "--top", "0"), "'--top': it must be greater than or equal to 1.\n"),
        (("search", "run", "photos", "a.png", "--out", "sheet.xyz"), "sheet.xyz must end in .png"),
        (("explore", "cifar10"), "'cifar10' is a dataset, not a folder of images"),
        (("pretrain", "shapes", "--device", "gpu"), "run.device"),
        (("pretrain", "/no/such/folder"), "/no/such/folder"),
        (("pretrain",), "no data"),
        (("pretrain", "shapes", "--recipe", "/no/such.toml"), "no recipe"),
        (("pretrain", "shapes", "--seed", "1180591620717411303424"), "between 0 and 2**63 - 1"),
        (("pretrain", "shapes", "--set", "seed=1.7"), "not a whole number"),
        (("evaluate", "knn", "/no/such/run", "--data", "shapes", "--seed", "-1"), "seed = -1 is out of range"),
        (("pretrain", "shapes", "--method", "rotation", "--views", "3"), "--views 4"),
        (("list", "method"), "did you mean 'methods'"),
        (("list",), "methods|backbones"),
        (("evaluate", "linaer", "/tmp", "--data", "shapes"), "did you mean 'linear'"),
        (("evaluate", "linear", "/no/such/run", "--data", "shapes"), "/no/such/run"),
        (("evaluate", "linear", "/no/such/run", "--data", "shapes", "--set", "x"), "has no '='"),
        (("reproduce", "linear-evalution", "--dry-run"), "linear-evaluation"),
        (("reproduce", "grain", "--dry-run", "--seeds", "one"), "whole numbers"),
        (("reproduce", "grain", "--dry-run", "--seeds", "1,1"), "lists 1 more than once"),
        (("reproduce", "grain", "--dry-run", "--seeds", ""), "--seeds is empty"),
        (("bench", "haed"), "did you mean 'head'"),
        (("export", "/no/such/run", "--format", "onx", "--out", "x"), "did you mean 'onnx'"),
        (("data", "get", "cifar"), "cifar10"),
    ],
)
def test_mistakes_end_with_2_and_one_or_two_lines(
    command: tuple[str, ...],
    hint: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    run(*command, code=2)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert hint in captured.err
    assert "Traceback" not in captured.err
    assert 1 <= len(captured.err.strip().splitlines()) <= 2
    assert not [path for path in tmp_path.rglob("*") if path.name != "runs"]  # bad input leaves nothing behind


def test_lists(capsys: pytest.CaptureFixture[str]) -> None:
    for what, known in (
        ("methods", METHODS),
        ("backbones", registry.BACKBONES),
        ("datasets", registry.DATASETS),
    ):
        run("list", what)
        text = capsys.readouterr().out
        assert [line.split()[0] for line in text.splitlines()] == list(known)
        run("list", what, "--json")
        assert [row["name"] for row in json.loads(capsys.readouterr().out)] == list(known)
    run("list", "tables", "--json")
    names = [row["name"] for row in json.loads(capsys.readouterr().out)]
    assert {"main", "linear-evaluation", "claims", "fig-depth", "tsne-super", "modern"} <= set(names)
    assert len(names) == 23
    run("list", "tables")
    assert "Number of augmentations (Table 10)\n" in capsys.readouterr().out


def test_data_info(pictures: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run("data", "info", str(pictures), "--json")
    actual = json.loads(capsys.readouterr().out)
    assert actual["classes"] in (["across", "down", "slanted"], 3)
    run("data", "info", str(pictures))
    assert "images" in capsys.readouterr().out


@pytest.mark.parametrize("protocol", ["linear", "knn"])
def test_evaluate_prints_one_document_and_writes_it(protocol: str, trained: Path, pictures: Path, capsys: Any) -> None:
    command = ("evaluate", protocol, str(trained), "--data", str(pictures), "--split", "val")
    run(*command, "--json")
    document = json.loads(capsys.readouterr().out)
    assert document["protocol"] == protocol
    assert 0 <= document["accuracy"] <= 100
    assert document["pretrain"]["method"] == "relational"
    assert (document["n_train"], document["n_test"]) == (27, 9)
    files = list((trained / "evaluations").glob(f"{protocol}-*-val.json"))
    assert [json.loads(path.read_text())["accuracy"] for path in files] == [document["accuracy"]]
    run(*command)
    assert "%" in capsys.readouterr().out


def test_embed_search_and_export(trained: Path, pictures: Path, tmp_path: Path, capsys: Any) -> None:
    run("embed", str(trained), str(pictures), "--out", str(tmp_path / "z.npz"))
    with np.load(tmp_path / "z.npz") as file:
        assert file["features"].shape == (36, 64)
    files = [str(path) for path in sorted((pictures / "down").iterdir())[:3]]  # as a shell expands *.png
    run("embed", str(trained), *files, "--out", str(tmp_path / "few.npz"))
    with np.load(tmp_path / "few.npz") as file:
        assert file["files"].tolist() == files
    query = next((pictures / "down").iterdir())
    capsys.readouterr()
    run("search", str(trained), str(pictures), str(query), "--top", "3", "--out", str(tmp_path / "sheet.png"), "--json")
    hits = json.loads(capsys.readouterr().out)
    assert len(hits) == 3
    assert Path(hits[0]["file"]).name == query.name  # an image is nearest to itself
    with Image.open(tmp_path / "sheet.png") as sheet:
        assert sheet.width > 32
    run("search", str(trained), str(pictures), str(query))
    for format in ("safetensors", "torch"):
        run("export", str(trained), "--format", format, "--out", str(tmp_path / f"weights.{format}"))
        again = tmp_path / f"again-{format}"
        run("import", str(tmp_path / f"weights.{format}"), "--backbone", "conv4", "--out", str(again))
        assert (again / "backbone.safetensors").exists()
    run("import", str(tmp_path / "weights.torch"), "--backbone", "conv4", "--out", str(again), code=2)
    run("evaluate", "knn", str(again), "--data", str(pictures), "--split", "val", "--set", "val_fraction=0.25")


def test_authors_checkpoint_is_imported_with_its_head(tmp_path: Path) -> None:
    import torch

    from relatum import backbones, relation

    head = relation.make_head("relation", 64, hidden=256, aggregation="cat")
    state = {"backbone": backbones.build("resnet8").state_dict(), "relation": head.state_dict(), "optimizer": {}}
    torch.save(state, tmp_path / "authors.tar")
    run("import", str(tmp_path / "authors.tar"), "--backbone", "resnet8", "--out", str(tmp_path / "run"))
    assert (tmp_path / "run" / "relation.safetensors").exists()
    from relatum.runs.folder import read_recipe

    assert read_recipe(tmp_path / "run").method == "relational"


def test_report_of_a_run(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run("report", str(trained))
    page = Path(capsys.readouterr().out.strip())
    assert page.read_text("utf-8").startswith("<!doctype html>") or "<html" in page.read_text("utf-8")[:200]


def test_broken_files_are_reported_and_skipped(
    pictures: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "photos"
    shutil.copytree(pictures, folder)
    (folder / "down" / "empty.jpg").write_bytes(b"")
    (folder / "down" / "text.jpg").write_text("not an image")
    good = (folder / "down" / "00.png").read_bytes()
    (folder / "down" / "cut.png").write_bytes(good[: len(good) // 2])
    (folder / "down" / "folder.png").mkdir()
    run("pretrain", str(folder), "--out", str(tmp_path / "run"), *FAST)
    assert "skipped 4 files that could not be read" in capsys.readouterr().err
    skipped = json.loads((tmp_path / "run" / "run.json").read_text())["skipped"]
    assert sorted(Path(item["path"]).name for item in skipped) == ["cut.png", "empty.jpg", "folder.png", "text.jpg"]
    assert all(item["reason"] for item in skipped)
    run("pretrain", str(folder), "--out", str(tmp_path / "strict"), "--strict", *FAST, code=2)


class Malicious:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return os.system, (f"touch {self.path}",)


def test_malicious_files_run_nothing(
    tmp_path: Path, trained: Path, pictures: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    touched = tmp_path / "touched"
    batch = tmp_path / "root" / "cifar-10-batches-py"
    batch.mkdir(parents=True)
    for name in (*(f"data_batch_{i}" for i in range(1, 6)), "test_batch", "batches.meta"):
        (batch / name).write_bytes(pickle.dumps(Malicious(touched), protocol=2))
    run("pretrain", "cifar10", "--root", str(tmp_path / "root"), "--out", str(tmp_path / "run"), code=2)
    assert len(capsys.readouterr().err.strip().splitlines()) == 1
    copy = tmp_path / "copy"
    shutil.copytree(trained, copy)
    (copy / "backbone.safetensors").unlink()
    for path in (copy / "checkpoints").iterdir():
        path.write_bytes(pickle.dumps(Malicious(touched)))
    capsys.readouterr()
    command = ("pretrain", str(pictures), "--out", str(copy), "--val-fraction", "0.25", "--resume", *FAST)
    run(*command, code=2)
    assert "contains code" in capsys.readouterr().err
    assert not touched.exists()


@pytest.mark.skipif(sys.platform == "win32", reason="the current folder cannot be deleted there")
def test_a_deleted_current_folder_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    """MKL, which torch loads, would end the process there with `FATAL ERROR: Cannot load libtorch_cpu.so`."""
    folder = tmp_path / "gone"
    folder.mkdir()
    monkeypatch.chdir(folder)
    folder.rmdir()
    run("list", "methods", code=2)
    assert "error: the current folder cannot be used (No such file or directory)" in capsys.readouterr().err


def test_unexpected_errors_are_one_line_unless_debugged(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    from relatum.cli import listing

    def fail(what: str) -> None:
        raise RuntimeError("the sky fell\nin two lines")

    monkeypatch.setattr(listing, "rows", fail)
    run("list", "methods", code=1)
    assert capsys.readouterr().err == "error: unexpected RuntimeError: the sky fell (--debug shows the traceback)\n"
    with pytest.raises(RuntimeError):
        cli.main(["list", "methods", "--debug"])
    monkeypatch.setattr(listing, "rows", lambda what: (_ for _ in ()).throw(KeyboardInterrupt))
    run("list", "methods", code=130)


def test_a_signal_in_the_body_of_a_class_is_a_stop(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    """Modules of relatum are imported while commands run; Python 3.11 gives a RuntimeError for what happens there."""
    from relatum.cli import listing

    class Attribute:
        def __set_name__(self, owner: type, name: str) -> None:
            raise signals.Stop(signal.SIGTERM)

    monkeypatch.setattr(listing, "rows", lambda what: type("Body", (), {"attribute": Attribute()}))
    run("list", "methods", code=143)
    assert capsys.readouterr().err == "stopped by SIGTERM.\n"


def test_the_installed_command_works_from_outside() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "relatum", "list", "methods", "--json"], capture_output=True, check=True
    )
    assert json.loads(done.stdout)[0]["name"] == "relational"


def test_onnx_export(trained: Path, pictures: Path, tmp_path: Path) -> None:
    pytest.importorskip("onnxscript", reason="needs the extra onnx")
    runtime = pytest.importorskip("onnxruntime", reason="needs the extra onnx")
    run("export", str(trained), "--format", "onnx", "--out", str(tmp_path / "net.onnx"))
    import torch

    from relatum import load_backbone

    x = torch.randn(5, 3, 32, 32)
    session = runtime.InferenceSession(str(tmp_path / "net.onnx"))
    got = session.run(None, {"images": x.numpy()})[0]
    np.testing.assert_allclose(got, load_backbone(trained)(x).numpy(), atol=1e-4)


def test_onnx_export_without_the_extra(trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    run("export", str(trained), "--format", "onnx", "--out", str(tmp_path / "net.onnx"), code=2)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (OSError(28, "No space left on device", "/full/disk"), "error: /full/disk: No space left on device.\n"),
        (OSError(28, "No space left on device"), "error: No space left on device.\n"),
        (EOFError("No data left in file"), "error: unexpected EOFError: No data left in file"),
        (MemoryError(), "error: out of memory.\n"),
    ],
)
def test_errors_of_the_system_are_one_line(
    error: Exception, line: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A full disk is named with its path; the end of a damaged file is not taken for an interrupt."""

    def fail(*arguments: Any, **keywords: Any) -> None:
        raise error

    monkeypatch.setattr("relatum.api.report", fail)
    run("report", "somewhere", code=1)
    assert capsys.readouterr().err.strip("\n").startswith(line.strip("\n"))


def test_a_failed_import_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    from relatum import backbones

    torch.save(backbones.build("conv4").state_dict(), tmp_path / "weights.pt")
    out = tmp_path / "run"

    def fail(self: Any, **changes: Any) -> None:
        raise OSError(28, "No space left on device", str(out / "run.json"))

    arguments = ("import", str(tmp_path / "weights.pt"), "--backbone", "conv4", "--out", str(out))
    with monkeypatch.context() as patch:
        patch.setattr("relatum.runs.folder.RunFolder.update_record", fail)
        run(*arguments, code=1)
    assert not out.exists()
    run(*arguments)
    assert (out / "recipe.toml").exists()


def test_one_text_in_place_of_a_list_is_one_value(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from relatum import api
    from relatum.errors import InputError

    with pytest.raises(InputError, match="unknown table 'claim'"):
        api.reproduce("claim", out=tmp_path, dry_run=True)
    with pytest.raises(InputError, match="cifar11"):
        api.reproduce("grain", datasets="cifar11", out=tmp_path, dry_run=True)
    with pytest.raises(InputError, match=r"train\.lrs"):
        api.pretrain("shapes", set="train.lrs=1")
    with pytest.raises(InputError, match="nothing-here"):
        api.report("nothing-here")
    with pytest.raises(InputError, match=r"data\.mean"):
        api.pretrain("shapes", set={"data.mean": "123"})


def test_absurd_numbers_of_threads_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    run("pretrain", "shapes", "--threads", "100000", "--out", "never", code=2)
    assert "run.threads = 100000 is out of range: it must be at most 1024" in capsys.readouterr().err


def test_the_help_shows_defaults_that_depend_on_the_data_or_the_method() -> None:
    command = [sys.executable, "-m", "relatum", "pretrain", "--help"]
    shown = " ".join(subprocess.run(command, capture_output=True, text=True, check=True).stdout.split())
    for default in ("runs/NAME", "relational", "conv4", "the paper's, 200", "all cores"):
        assert f"(default: {default}" in shown


def test_the_help_is_instant() -> None:
    """It takes 0.2 s of a slow processor; coloured help (rich) took twice that, numpy and torch take far more."""
    code = (
        "import sys; from relatum.cli import main\ntry: main(['--help'])\nexcept SystemExit: pass\n"
        "print(*{'rich', 'pydantic', 'numpy', 'PIL', 'numba', 'torch'} & set(sys.modules), sep=',', file=sys.stderr)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "explore " in result.stdout
    assert result.stderr == "\n"


def test_the_help_shows_the_first_sentence_of_each_command_in_full(capsys: pytest.CaptureFixture[str]) -> None:
    run("--help")
    shown = " ".join(capsys.readouterr().out.split())
    assert (
        "Train on a folder of photos, and write one page: a map, albums, near-duplicates, outliers and search" in shown
    )
    assert "..." not in shown.partition("Commands:")[2]


@pytest.mark.parametrize(
    ("command", "usage"),
    [
        ((), "relatum [OPTIONS] COMMAND [ARGS]..."),
        (("search",), "relatum search [OPTIONS] RUN GALLERY QUERY..."),
        (("list",), "relatum list [OPTIONS] {methods|backbones|datasets|tables}"),
        (("duplicates",), "relatum duplicates [OPTIONS] RUN DATA"),
        (("pretrain",), "relatum pretrain [OPTIONS] [DATA]"),
        (("data", "shard"), "relatum data shard [OPTIONS] FOLDER"),
    ],
)
def test_the_help_shows_no_types_of_arguments_and_flags(
    command: tuple[str, ...], usage: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The CLI library would write `{RUN}`, `<list[Path]>`, `<bool>` and `<int range>`."""
    run(*command, "--help")
    shown = capsys.readouterr().out
    assert f"Usage: {usage}\n" in "\n".join(line.strip() for line in shown.splitlines())
    for text in ("<bool>", "list[", "range>", "{RUN}"):
        assert text not in shown


def test_the_defaults_in_the_help_of_pretrain_are_those_of_the_recipe() -> None:
    """The help is text, because the command line does not import the recipe before a command runs."""
    recipe = config.draft(flags={"data.name": "cifar10"}).request
    baseline = config.draft(flags={"data.name": "cifar10", "method": "simclr"}).request
    folder_k = resolve.FOLDER_K
    defaults = {
        "method": recipe.method,
        "backbone": f"{recipe.backbone.name}; a ResNet for a folder on a GPU",
        "views": f"the paper's, {recipe.views.number}; for a folder {folder_k['cpu']}, on a GPU {folder_k['gpu']}",
        "batch_size": f"{recipe.train.batch_size} for relational, {baseline.train.batch_size} for other methods",
        "epochs": f"the paper's, {recipe.train.epochs}",
        "seed": str(recipe.seed),
        "preset": f"{recipe.preset}; fast for a folder",
        "device": recipe.run.device,
        "precision": recipe.run.precision,
        "compile": recipe.run.compile,
        "val_fraction": f"{recipe.data.val_fraction:g}",
    }
    options = {option.name: option.help for option in typer.main.get_command(app).commands["pretrain"].params}
    for name, default in defaults.items():
        assert options[name].endswith(f"(default: {default})"), name
    threshold = typer.main.get_command(app).commands["duplicates"].params
    assert f"(default: {THRESHOLD})" in next(option.help for option in threshold if option.name == "threshold")
