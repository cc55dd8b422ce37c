from __future__ import annotations

import os
import stat
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from relatum import backbones, features
from relatum.data.imageset import ImageSet
from relatum.errors import InputError
from relatum.features.extract import function_hash


def images(n: int = 37, side: int = 16) -> ImageSet:
    pixels = np.random.default_rng(0).integers(0, 256, (n, side, side, 3)).astype(np.uint8)
    return ImageSet("toy", "train", pixels, None, (), (0.4, 0.5, 0.6), (0.2, 0.25, 0.3), 2)


@pytest.fixture
def backbone() -> nn.Module:
    return backbones.build("conv4", seed=3)


def test_equals_a_plain_pass_over_normalised_images(backbone: nn.Module) -> None:
    data = images()
    x = torch.from_numpy(data.images.astype(np.float32) / 255).permute(0, 3, 1, 2)
    x = (x - torch.tensor(data.mean).view(1, 3, 1, 1)) / torch.tensor(data.std).view(1, 3, 1, 1)
    with torch.no_grad():
        expected = backbone.eval()(x.contiguous()).numpy()
    z = features.extract(backbone, data, batch_size=10)
    assert z.dtype == np.float32
    assert z.shape == (37, 64)
    np.testing.assert_allclose(z, expected, atol=1e-5)


def test_same_bits_again(backbone: nn.Module) -> None:
    assert features.extract(backbone, images()).tobytes() == features.extract(backbone, images()).tobytes()


def test_modes_are_restored_each_by_itself_and_nothing_changes(backbone: nn.Module) -> None:
    backbone.train()
    backbone.layer1.eval()
    before, modes = features.state_hash(backbone), [m.training for m in backbone.modules()]
    features.extract(backbone, images())
    assert [m.training for m in backbone.modules()] == modes
    assert features.state_hash(backbone) == before


def test_modes_are_restored_after_an_error(backbone: nn.Module) -> None:
    class Broken(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            raise RuntimeError("broken")

    module = Broken().train()
    with pytest.raises(InputError, match="broken"):
        features.extract(module, images())
    assert module.training


def test_a_network_of_another_image_size_is_explained() -> None:
    """It was torch's error about the shapes of two matrices."""
    network = nn.Sequential(nn.Flatten(), nn.Linear(3 * 24 * 24, 5))
    with pytest.raises(InputError, match=r"16 × 16 pixels \(mat1 and mat2.*network.info"):
        features.extract(network, images())
    network.info = {"side": 16}  # type: ignore[assignment]  # stated: the network's own error tells more
    with pytest.raises(RuntimeError, match="mat1 and mat2"):
        features.extract(network, images())


def test_input_is_channels_last() -> None:
    x = features.normalise(images().images, (0.4, 0.5, 0.6), (0.2, 0.25, 0.3))
    assert x.is_contiguous(memory_format=torch.channels_last)


def test_read_only_memory_maps_are_streamed(backbone: nn.Module, tmp_path: Path) -> None:
    data = images()
    np.save(tmp_path / "images.npy", data.images)
    mapped = replace(data, images=np.load(tmp_path / "images.npy", mmap_mode="r"))
    np.testing.assert_array_equal(features.extract(backbone, mapped), features.extract(backbone, data))


def test_any_side(backbone: nn.Module) -> None:
    assert features.extract(backbone, images(5, side=48)).shape == (5, 64)


def test_no_images_and_no_vectors_are_refused(backbone: nn.Module) -> None:
    with pytest.raises(InputError, match="contains no images"):
        features.extract(backbone, images(0))
    with pytest.raises(InputError, match=r"\(N, d\)"):
        features.extract(nn.Conv2d(3, 4, 1), images(4))


@pytest.mark.parametrize(
    ("change", "given"),
    [
        (lambda z: (z, z), "a tuple"),
        (lambda z: {"features": z}, "a dict"),
        (lambda z: z.numpy(), "a ndarray"),
        (lambda z: z.mean(0, keepdim=True), r"shape \(1, 64\)"),
        (lambda z: torch.cat([z, z]), r"64\)"),
        (lambda z: z[:, :0], ", 0\\)"),
    ],
)
def test_a_module_must_give_one_row_of_numbers_for_each_image(
    backbone: nn.Module, change: Callable[[torch.Tensor], Any], given: str
) -> None:
    class Changed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.backbone = backbone

        def forward(self, x: torch.Tensor) -> Any:
            return change(self.backbone(x))

    for compute in (lambda: features.extract(Changed(), images(4)), lambda: function_hash(Changed(), 16)):
        with pytest.raises(InputError, match=rf"must give \(N, d\) representations; this one gives .*{given}"):
            compute()


def test_progress_shows_no_bar_for_short_work(backbone: nn.Module, capsys: pytest.CaptureFixture[str]) -> None:
    features.extract(backbone, images(), progress=True)
    assert capsys.readouterr() == ("", "")


def test_cache_is_used(backbone: nn.Module, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = features.cached(backbone, images(), tmp_path)
    assert len(list(tmp_path.iterdir())) == 1
    monkeypatch.setattr(features, "extract", lambda *a, **k: pytest.fail("computed again"))
    np.testing.assert_array_equal(features.cached(backbone, images(), tmp_path), first)


@pytest.mark.parametrize("change", ["weight", "buffer", "pixel", "mean", "std"])
def test_cache_is_never_stale(backbone: nn.Module, tmp_path: Path, change: str) -> None:
    data = images()
    features.cached(backbone, data, tmp_path)
    if change == "weight":
        with torch.no_grad():
            backbone.layer4.conv.weight[0, 0, 0, 0] += 1
    elif change == "buffer":
        backbone.layer4.bn.running_mean += 1
    elif change == "pixel":
        pixels = data.images.copy()
        pixels[17, 3, 3, 1] ^= 128
        data = replace(data, images=pixels)
    elif change == "mean":
        data = replace(data, mean=(0.5, 0.5, 0.6))
    else:
        data = replace(data, std=(0.3, 0.3, 0.3))
    np.testing.assert_array_equal(features.cached(backbone, data, tmp_path), features.extract(backbone, data))
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize("damage", [b"", b"\x93NUMPY\x01", b"no array at all"])
def test_broken_cache_file_is_computed_again(backbone: nn.Module, tmp_path: Path, damage: bytes) -> None:
    first = features.cached(backbone, images(), tmp_path)
    (file,) = tmp_path.iterdir()
    whole = file.read_bytes()
    file.write_bytes(damage)
    np.testing.assert_array_equal(features.cached(backbone, images(), tmp_path), first)
    assert file.read_bytes() == whole


def test_truncated_cache_file_is_computed_again(backbone: nn.Module, tmp_path: Path) -> None:
    first = features.cached(backbone, images(), tmp_path)
    (file,) = tmp_path.iterdir()
    file.write_bytes(file.read_bytes()[:-100])
    np.testing.assert_array_equal(features.cached(backbone, images(), tmp_path), first)


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="root may write anywhere")
def test_read_only_folder_still_gives_features(backbone: nn.Module, tmp_path: Path) -> None:
    tmp_path.chmod(stat.S_IRUSR | stat.S_IXUSR)
    assert features.cached(backbone, images(), tmp_path / "features").shape == (37, 64)


def test_damaged_features_are_computed_again_with_one_line(
    backbone: nn.Module, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A flipped byte, a truncated file and a header that promises terabytes never give other numbers."""
    data = images()
    expected = features.cached(backbone, data, tmp_path)
    (path,) = tmp_path.iterdir()
    np.testing.assert_array_equal(np.load(path), expected)  # still a plain .npy file
    good = path.read_bytes()
    flipped = bytearray(good)
    flipped[200] ^= 1
    huge = good.replace(b"(37, 64)", b"(37,1e9)").replace(b"1e9", b"9" * 12).replace(b" " * 9 + b"\n", b"\n")
    for damaged in (bytes(flipped), good[:-1], good[:300], b"", good[:-32], huge, good + b"x"):
        path.write_bytes(damaged)
        np.testing.assert_array_equal(features.cached(backbone, data, tmp_path, progress=True), expected)
        assert "damaged" in capsys.readouterr().err
        assert path.read_bytes() == good
    np.testing.assert_array_equal(features.cached(backbone, data, tmp_path, progress=True), expected)
    assert capsys.readouterr().err == ""


class Gated(nn.Module):
    """A network of the user, whose code is edited between two commands; the weights stay."""

    num_features = 4

    def __init__(self, activation: nn.Module) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 4, 3), activation, nn.AdaptiveAvgPool2d(1), nn.Flatten())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.body(x)  # type: ignore[no-any-return]


def test_representations_of_changed_code_are_not_taken_from_the_cache(tmp_path: Path) -> None:
    before, after = Gated(nn.ReLU()), Gated(nn.Tanh())
    after.load_state_dict(before.state_dict())
    kept = features.cached(before, images(), tmp_path)
    np.testing.assert_array_equal(features.cached(after, images(), tmp_path), features.extract(after, images()))
    assert len(list(tmp_path.iterdir())) == 2
    np.testing.assert_array_equal(features.cached(before, images(), tmp_path), kept)
    assert len(list(tmp_path.iterdir())) == 2  # and those of the same code are


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_weights_of_another_precision(dtype: torch.dtype) -> None:
    module = Gated(nn.ReLU())
    z = features.extract(module, images())
    other = features.extract(module.to(dtype), images())
    assert other.dtype == np.float32
    np.testing.assert_allclose(other, z, atol=0.02)
