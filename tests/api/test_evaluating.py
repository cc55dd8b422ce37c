"""`evaluate`, `embed` and `search` from Python: a run, a path or a module; files, folders or images in memory."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

import relatum
from relatum.errors import InputError, command_line


@pytest.fixture(scope="module")
def run(pictures: Path, tmp_path_factory: pytest.TempPathFactory) -> relatum.Run:
    place = tmp_path_factory.mktemp("api") / "run"
    return relatum.pretrain(pictures, out=place, method="random", backbone="conv4", quiet=True)


class Tiny(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 5, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.conv(x).mean((2, 3))


def test_embed_gives_names_and_takes_images_in_any_form(run: relatum.Run, pictures: Path) -> None:
    z, files = relatum.embed(run, pictures, return_files=True, progress=False)
    assert len(files) == len(z) == 36
    paths = [pictures / file for file in files[:3]]
    pixels = [np.asarray(Image.open(path).convert("RGB")) for path in paths]
    tensors = [torch.from_numpy(p.copy()).permute(2, 0, 1) for p in pixels]
    for images in (paths, list(map(str, paths)), [Image.open(p) for p in paths], pixels, np.stack(pixels), tensors):
        np.testing.assert_allclose(relatum.embed(run, images, progress=False), z[:3], atol=1e-6)
    np.testing.assert_allclose(relatum.embed(run, torch.stack(tensors) / 255, progress=False), z[:3], atol=1e-6)
    one, names = relatum.embed(run.backbone(), paths[0], return_files=True, progress=False)
    np.testing.assert_allclose(one, z[:1], atol=1e-6)
    assert names == [str(paths[0])]
    assert relatum.embed(run, pixels, return_files=True, progress=False)[1] == ["0", "1", "2"]


def test_images_that_cannot_be_used_are_named(run: relatum.Run, tmp_path: Path) -> None:
    (tmp_path / "bad.png").write_bytes(b"no image")
    with pytest.raises(InputError, match=r"bad\.png cannot be read: not an image"):
        relatum.embed(run, [tmp_path / "bad.png"], progress=False)
    with pytest.raises(InputError, match=r"colours in \[0, 1\]"):
        relatum.embed(run, np.full((2, 8, 8, 3), 2.0), progress=False)
    with pytest.raises(InputError, match="the list is empty"):
        relatum.embed(run, [], progress=False)


def test_search_takes_one_query_and_a_module(run: relatum.Run, pictures: Path) -> None:
    files = relatum.embed(run, pictures, return_files=True, progress=False)[1]
    query = str(pictures / files[7])
    hits = relatum.search(run, pictures, query, top=2, progress=False)
    assert [hit.rank for hit in hits] == [1, 2]
    assert hits[0].file == files[7]
    assert relatum.search(run.backbone(), pictures, query, top=2, progress=False) == hits


def test_queries_may_be_in_memory(run: relatum.Run, pictures: Path, tmp_path: Path) -> None:
    files = relatum.embed(run, pictures, return_files=True, progress=False)[1]
    image = Image.open(pictures / files[7])
    pixels = np.asarray(image.convert("RGB"))
    for queries in (image, pixels, [image], torch.from_numpy(pixels.copy()).permute(2, 0, 1)):
        (hit,) = relatum.search(run, pictures, queries, top=1, out=tmp_path / "a.png", progress=False)
        assert (hit.query, hit.file, hit.is_query) == ("image 0", files[7], False)
    names = np.array([str(pictures / file) for file in files[:2]])  # as a column of a table
    assert [hit.file for hit in relatum.search(run, pictures, names, top=1, progress=False)] == files[:2]
    assert relatum.embed(run, names, progress=False).shape == (2, 64)
    with pytest.raises(InputError, match="image 0 is a tuple; pass images alone"):
        relatum.embed(run, [(image, 1)], progress=False)


def test_a_module_is_evaluated_without_a_run(run: relatum.Run, pictures: Path, tmp_path: Path) -> None:
    options = {"data": pictures, "split": "val", "settings": {"val_fraction": 0.25}, "progress": False}
    by_run = relatum.evaluate("knn", run, **options)
    by_module = relatum.evaluate("knn", run.backbone(), **options)
    assert by_module.accuracy == by_run.accuracy
    assert by_module.path is None
    known = ("method", "preset", "dataset", "side", "backbone")
    assert by_module.pretrain == {key: run.backbone().info[key] for key in known}
    network = Tiny()
    before = {name: value.clone() for name, value in network.state_dict().items()}
    result = relatum.evaluate("linear", network, epochs=1, **options)
    assert result.n_test == by_run.n_test
    assert result.pretrain == {"backbone": "object:Tiny"}  # nothing else is known
    assert network.training
    assert all(p.requires_grad for p in network.parameters())
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())


def test_a_run_with_a_module_needs_no_second_mention_of_it(pictures: Path, tmp_path: Path) -> None:
    flags = {"views": 2, "batch_size": 16, "epochs": 1, "compile": "off", "threads": 1, "quiet": True}
    run = relatum.pretrain(pictures, out=tmp_path / "run", backbone=Tiny(), **flags)
    assert relatum.embed(run, pictures, progress=False).shape == (36, 5)
    options = {"data": pictures, "split": "val", "settings": {"val_fraction": 0.25}, "progress": False}
    assert relatum.evaluate("knn", run, **options).accuracy is not None
    with pytest.raises(InputError, match="custom backbone of class Tiny: pass it as architecture="):
        relatum.embed(run.path, pictures, progress=False)
    other = Tiny()
    before = next(other.parameters()).clone()
    assert relatum.embed(run.path, pictures, architecture=other, progress=False).shape == (36, 5)
    assert all(p.requires_grad for p in other.parameters())  # the user's module stays as it was
    assert torch.equal(next(other.parameters()), before)


def test_a_module_that_was_trained_prepares_images_as_its_run(pictures: Path, tmp_path: Path) -> None:
    network = Tiny()
    flags = {"views": 2, "batch_size": 16, "epochs": 1, "compile": "off", "threads": 1, "quiet": True, "side": 40}
    run = relatum.pretrain(pictures, out=tmp_path / "run", backbone=network, **flags)
    by_run, by_module = (relatum.embed(source, pictures, progress=False) for source in (run, network))
    np.testing.assert_allclose(by_module, by_run, atol=1e-6)
    relatum.export(network, format="safetensors", out=tmp_path / "a.safetensors")
    assert relatum.load_backbone(tmp_path / "a.safetensors", backbone=Tiny()).info["side"] == 40


def test_on_the_command_line_a_custom_backbone_is_named_by_its_flag(pictures: Path, tmp_path: Path) -> None:
    flags = {"views": 2, "batch_size": 16, "epochs": 1, "compile": "off", "threads": 1, "quiet": True}
    run = relatum.pretrain(pictures, out=tmp_path / "run", backbone=Tiny(), **flags)
    with command_line(), pytest.raises(InputError, match="--backbone module:function, or use Python"):
        relatum.embed(run.path, pictures, progress=False)


def test_an_unfinished_run_is_mentioned(
    run: relatum.Run, pictures: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from shutil import copytree

    copytree(run.path, tmp_path / "run")
    (tmp_path / "run" / "backbone.safetensors").unlink()
    for use in ("embed", "search"):
        with pytest.raises(InputError, match="has no weights yet"):  # as after a run that has just started
            getattr(relatum, use)(tmp_path / "run", pictures, *([pictures] if use == "search" else []))
        assert "is not finished: its newest checkpoint" in capsys.readouterr().err


def test_labels_are_missed_before_an_image_is_decoded(
    run: relatum.Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from relatum.data import folder

    Image.new("RGB", (8, 8)).save(tmp_path / "a.png")
    monkeypatch.setattr(folder, "decode_files", lambda *arguments, **options: pytest.fail("an image was decoded"))
    with pytest.raises(InputError, match="has no labels, and linear evaluation needs them"):
        relatum.evaluate("linear", run, data=tmp_path, progress=False)


def test_metrics_are_a_table(pictures: Path, tmp_path: Path) -> None:
    run = relatum.pretrain(
        pictures, out=tmp_path / "run", views=2, batch_size=16, epochs=1, compile="off", threads=1, quiet=True
    )
    table = run.metrics
    assert [row["step"] for row in table] == [1, 3]
    assert table.column("loss").shape == (2,)
    assert table.to_numpy()["step"].tolist() == [1, 3]
    with pytest.raises(InputError, match="did you mean 'loss'"):
        table.column("los")
