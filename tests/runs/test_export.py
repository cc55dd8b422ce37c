"""Exported backbones: other tools get the vectors that `relatum.embed` gives."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import relatum
from relatum.data.decode import to_square
from relatum.errors import InputError
from relatum.features.preprocess import Preprocess, Transform
from relatum.runs.weights import load_weights

SIZES = [(32, 32), (50, 41), (33, 90), (21, 26), (120, 127)]  # width and height, all below four times the side


def photo(size: tuple[int, int], seed: int = 0) -> Image.Image:
    """A picture with structure at several scales."""
    noise = np.random.default_rng(seed).integers(0, 256, (9, 7, 3), dtype=np.uint8)
    return Image.fromarray(noise).resize(size, Image.Resampling.BICUBIC)


@pytest.fixture(scope="module")
def run(pictures: Path, tmp_path_factory: pytest.TempPathFactory) -> relatum.Run:
    place = tmp_path_factory.mktemp("export") / "run"
    return relatum.pretrain(pictures, out=place, method="random", backbone="conv4", quiet=True)


@pytest.mark.parametrize("size", [*SIZES, (190, 150), (192, 193), (640, 481), (1001, 3), (333, 2000), (1921, 1080)])
def test_the_resize_inside_has_pillows_bits(size: tuple[int, int]) -> None:
    image = photo(size)
    inside = Preprocess(torch.nn.Identity(), Transform(32, (0, 0, 0), (1, 1, 1)))
    pixels = inside(torch.from_numpy(np.asarray(image).copy())[None])[0] * 255
    np.testing.assert_array_equal(pixels.round().byte().permute(1, 2, 0).numpy(), to_square(image, 32))


def test_the_transform_of_a_backbone_makes_its_input(run: relatum.Run, pictures: Path) -> None:
    backbone = run.backbone()
    z, files = relatum.embed(backbone, pictures, return_files=True, progress=False)
    x = backbone.transform(Image.open(pictures / files[3]))
    assert x.shape == (3, 32, 32)
    np.testing.assert_allclose(backbone(x[None])[0].numpy(), z[3], atol=1e-5)


def test_a_module_may_have_an_info_of_its_own(tmp_path: Path) -> None:
    class Described(torch.nn.Linear):
        def info(self) -> str:
            return "a layer"

    path = relatum.export(Described(3, 2), format="safetensors", out=tmp_path / "a.safetensors")
    assert load_weights(path)[1]["backbone"] == "object:Described"


def test_onnx_runtime_gives_the_vectors_of_embed(
    run: relatum.Run, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("onnxscript")
    runtime = pytest.importorskip("onnxruntime")
    relatum.export(run, format="onnx", out=tmp_path / "a.onnx", preprocess=True)
    assert "torchvision" not in capfd.readouterr().err
    session = runtime.InferenceSession(tmp_path / "a.onnx")
    properties = session.get_modelmeta().custom_metadata_map
    assert json.loads(properties["relatum"])["backbone"] == properties["backbone"] == "conv4"
    assert json.loads(properties["mean"]) == run.backbone().info["mean"]
    for number, size in enumerate(SIZES):
        photo(size, number).save(tmp_path / "photo.jpg")
        pixels = np.asarray(Image.open(tmp_path / "photo.jpg"))
        (vector,) = session.run(None, {"pixels": pixels[None]})
        np.testing.assert_allclose(vector, relatum.embed(run, tmp_path / "photo.jpg", progress=False), atol=1e-4)
    batch = np.stack([np.asarray(photo((50, 41), seed)) for seed in range(5)])
    (vectors,) = session.run(None, {"pixels": batch})
    np.testing.assert_allclose(vectors, relatum.embed(run, batch, progress=False), atol=1e-4)
    for size in ((300, 200), (2300, 1700)):
        photo(size).save(tmp_path / "large.jpg")  # the decoder reduces it, as relatum asks it to
        image = Image.open(tmp_path / "large.jpg")
        image.draft(None, (64, 64))
        (vector,) = session.run(None, {"pixels": np.asarray(image)[None]})
        np.testing.assert_allclose(vector, relatum.embed(run, tmp_path / "large.jpg", progress=False), atol=1e-4)
    large = np.asarray(photo((1200, 800)))  # Pillow averages blocks of it before it resizes
    (vector,) = session.run(None, {"pixels": large[None]})
    np.testing.assert_allclose(vector, relatum.embed(run, large[None], progress=False), atol=1e-4)


def test_onnx_without_preprocessing_takes_any_batch_and_size(run: relatum.Run, tmp_path: Path) -> None:
    pytest.importorskip("onnxscript")
    runtime = pytest.importorskip("onnxruntime")
    backbone = run.backbone()
    relatum.export(backbone, format="onnx", out=tmp_path / "a.onnx")
    session = runtime.InferenceSession(tmp_path / "a.onnx")
    assert "normalised" in session.get_modelmeta().custom_metadata_map["input"]
    assert session.get_inputs()[0].shape == ["batch", 3, "height", "width"]
    for shape in ((1, 3, 32, 32), (7, 3, 48, 40)):
        x = torch.randn(shape, generator=torch.Generator().manual_seed(0))
        (vectors,) = session.run(None, {"images": x.numpy()})
        np.testing.assert_allclose(vectors, backbone(x).numpy(), atol=1e-4)


class OneSize(torch.nn.Module):
    """A vision transformer's limits: positions are added to a fixed number of patches."""

    def __init__(self) -> None:
        super().__init__()
        self.patches, self.positions = torch.nn.Conv2d(3, 8, 8, 8), torch.nn.Parameter(torch.ones(1, 16, 8))
        self.info = {"side": 32}

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        torch._assert(x.shape[2] == 32, "height")
        return (self.patches(x).flatten(2).transpose(1, 2) + self.positions).relu().mean(1)


def test_a_network_of_one_size_is_exported_for_it(tmp_path: Path) -> None:
    module = OneSize()
    for format, name in (("torch-export", "a.pt2"), ("onnx", "a.onnx")):
        if format == "onnx":
            pytest.importorskip("onnxscript")
        relatum.export(module, format=format, out=tmp_path / name)
    if format == "onnx":
        session = pytest.importorskip("onnxruntime").InferenceSession(tmp_path / "a.onnx")
        assert session.get_inputs()[0].shape == ["batch", 3, 32, 32]
    extra: dict[str, Any] = {"relatum.json": ""}
    relatum.export(module, format="torch-export", out=tmp_path / "b.pt2")
    program = torch.export.load(tmp_path / "b.pt2", extra_files=extra)
    assert "(N, 3, 32, 32)" in json.loads(extra["relatum.json"])["input"]
    x = torch.randn(5, 3, 32, 32)
    torch.testing.assert_close(program.module()(x), module(x))
    images = np.random.default_rng(0).integers(0, 256, (3, 32, 32, 3), np.uint8)
    z = relatum.embed(program.module(), images, progress=False)  # relatum takes the program as a module
    np.testing.assert_allclose(z, relatum.embed(module, images, progress=False), atol=1e-5)


def test_code_that_cannot_be_exported_is_one_line(tmp_path: Path) -> None:
    class Branches(torch.nn.Flatten):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x if x.sum() > 0 else -x)

    with pytest.raises(InputError, match=r"cannot follow the code of this network \(.*safetensors"):
        relatum.export(Branches(), format="torch-export", out=tmp_path / "a.pt2")


def test_half_precision_is_exported_as_float32(run: relatum.Run, tmp_path: Path) -> None:
    """ONNX Runtime did not load the file of a network in half precision, whose graph mixed both types."""
    half = run.backbone().half()
    relatum.export(half, format="torch-export", out=tmp_path / "a.pt2")
    x = torch.randn(2, 3, 32, 32)
    program = torch.export.load(tmp_path / "a.pt2").module()
    torch.testing.assert_close(program(x), run.backbone()(x), atol=0.01, rtol=0.01)
    assert all(value.dtype == torch.float32 for value in program.parameters())
    assert next(half.parameters()).dtype == torch.float16


def test_a_torch_program_needs_no_relatum(run: relatum.Run, tmp_path: Path) -> None:
    relatum.export(run, format="torch-export", out=tmp_path / "a.pt2", preprocess=True)
    extra: dict[str, Any] = {"relatum.json": ""}
    program = torch.export.load(tmp_path / "a.pt2", extra_files=extra)
    assert json.loads(extra["relatum.json"])["preprocess"] is True
    batch = np.stack([np.asarray(photo((50, 41), seed)) for seed in range(3)])
    vectors = program.module()(torch.from_numpy(batch)).numpy()
    np.testing.assert_allclose(vectors, relatum.embed(run, batch, progress=False), atol=1e-4)


def test_a_hugging_face_folder_is_complete(run: relatum.Run, tmp_path: Path) -> None:
    folder = relatum.export(run, format="huggingface", out=tmp_path / "hub")
    assert {path.name for path in folder.iterdir()} == {"README.md", "config.json", "model.safetensors"}
    config = json.loads((folder / "config.json").read_text())
    assert config["model_type"] == "relatum-backbone"
    assert config["num_features"] == 64
    card = (folder / "README.md").read_text()
    assert card.startswith("---\nlibrary_name: relatum\n")
    assert "| side | 32 |" in card
    x = torch.randn(2, 3, 32, 32)
    for place in (folder, folder / "model.safetensors"):
        assert torch.equal(relatum.load_backbone(place)(x), run.backbone()(x))
    (photo_folder := tmp_path / "photos").mkdir()
    for number in range(3):
        photo((40, 40), number).save(photo_folder / f"{number}.png")
    relatum.embed(folder, photo_folder, progress=False)
    relatum.search(folder, photo_folder, photo_folder / "0.png", progress=False)
    assert len(list(folder.iterdir())) == 3  # nothing is kept in a folder that is uploaded
    relatum.export(run, format="huggingface", out=folder)  # an export may be repeated
    (folder / "mine.txt").touch()
    with pytest.raises(InputError, match="not a folder that an export wrote"):
        relatum.export(run, format="huggingface", out=folder)


def test_a_file_is_not_given_the_ending_of_another_format(tmp_path: Path) -> None:
    """A pickle called `a.safetensors` would be trusted."""
    for format, name in (("torch", "a.safetensors"), ("safetensors", "A.ONNX"), ("onnx", "a.pt2")):
        with pytest.raises(InputError, match="ending"):
            relatum.export("no run", format=format, out=tmp_path / name)
    assert not list(tmp_path.iterdir())


def test_weights_alone(run: relatum.Run, tmp_path: Path) -> None:
    state = run.backbone().state_dict()
    relatum.export(run.backbone(), format="torch", out=tmp_path / "a.pt")
    saved = torch.load(tmp_path / "a.pt", weights_only=True)
    assert all(torch.equal(saved[name], value) for name, value in state.items())
    relatum.export(run, format="safetensors", out=tmp_path / "a.safetensors")
    assert relatum.load_backbone(tmp_path / "a.safetensors").info == run.backbone().info
    with pytest.raises(InputError, match="preprocess=True is for torch-export and onnx"):
        relatum.export(run, format="torch", out=tmp_path / "b.pt", preprocess=True)
    with pytest.raises(InputError, match="did you mean 'onnx'"):
        relatum.export(run, format="onx", out=tmp_path / "b.onnx")
