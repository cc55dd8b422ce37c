"""`Views` in a training loop of one's own: one image, a DataLoader, and a whole mini-batch."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset

import relatum
from relatum import views
from relatum.data import read_images
from relatum.errors import InputError
from relatum.views import Views

PIXELS = np.random.default_rng(0).integers(0, 256, (5, 20, 24, 3), dtype=np.uint8)


class Pictures(Dataset[tuple[list[torch.Tensor], int]]):
    def __init__(self, transform: Views) -> None:
        self.transform = transform

    def __len__(self) -> int:
        return len(PIXELS)

    def __getitem__(self, index: int) -> tuple[list[torch.Tensor], int]:
        return self.transform(Image.fromarray(PIXELS[index])), index


def test_an_image_becomes_k_views() -> None:
    transform = Views(number=3, side=16)
    built = transform(Image.fromarray(PIXELS[0]))
    assert [view.shape for view in built] == [(3, 16, 16)] * 3
    assert built[0].dtype == torch.float32
    assert not torch.equal(built[0], built[1])


@pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning")  # on a machine with one core
@pytest.mark.parametrize("workers", [0, 2])
def test_a_data_loader_gives_what_an_objective_takes(workers: int) -> None:
    torch.manual_seed(0)
    loader = DataLoader(Pictures(Views(number=2, side=16, backend="torch")), batch_size=5, num_workers=workers)
    batch, _ = next(iter(loader))
    assert [view.shape for view in batch] == [(5, 3, 16, 16)] * 2
    objective = relatum.RelationalReasoning(torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.Flatten(1)), 784)
    loss, _ = objective(batch)
    stacked, _ = objective(torch.stack(batch))
    assert torch.equal(loss, stacked)
    again, _ = next(iter(loader))
    assert not torch.equal(batch[0], again[0])  # another epoch, other views


def test_draws_follow_torchs_generator() -> None:
    transform = Views(number=2, side=16)
    first, second = (torch.stack(transform(PIXELS[0])) for _ in range(2))
    torch.manual_seed(3)
    third = torch.stack(transform(PIXELS[0]))
    torch.manual_seed(3)
    assert torch.equal(torch.stack(transform(PIXELS[0])), third)
    assert not torch.equal(first, second)


def test_a_mini_batch_is_made_as_in_training() -> None:
    transform = Views("relational", number=4, side=12, mean=(0.4, 0.5, 0.6), std=(0.2, 0.3, 0.4), seed=7)
    built = transform.batch(PIXELS, indices=[9, 8, 7, 6, 5], epoch=2)
    params = views.sample(
        views.POLICIES["relational"],
        seed=7, epoch=2, indices=np.array([9, 8, 7, 6, 5]), views=4, height=20, width=24, pad=2, side=12,
    )  # fmt: skip
    expected = views.make_views(
        PIXELS, np.tile(np.arange(5), 4), params, side=12, mean=(0.4, 0.5, 0.6), std=(0.2, 0.3, 0.4)
    )
    assert torch.equal(built, expected.reshape(4, 5, 3, 12, 12))
    part = transform.batch(PIXELS[2:3], indices=[7], epoch=2)
    assert torch.equal(part[:, 0], built[:, 2])  # whatever the mini-batch around it
    assert torch.allclose(transform.batch(torch.from_numpy(PIXELS), indices=[9, 8, 7, 6, 5], epoch=2), built, atol=1e-4)


@pytest.mark.parametrize(
    ("image", "message"),
    [
        (PIXELS.astype(np.float32), r"uint8 pixels of shape \(M, H, W, 3\)"),
        (PIXELS[0], "24 × 20 pixels is not square"),
        (PIXELS[..., 0], r"not shape \(5, 20, 24\)"),
        ("photo.jpg", "not a str"),
        (PIXELS[0, :, :, 0], r"not shape \(20, 24\)"),
    ],
)
def test_bad_input_is_explained(image: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Views(number=2)(image)
    with pytest.raises(InputError, match="did you mean 'relational'"):
        Views("relationl")


def test_the_own_loop_of_the_readme_runs(tmp_path: Path) -> None:
    """The block in README.md under "your own backbone", on a folder of two classes."""
    text = (Path(__file__).parents[2] / "README.md").read_text("utf-8")
    block = next(part.split("```")[0] for part in text.split("```python\n") if "relatum.views.Views" in part)
    assert len(block.strip().splitlines()) <= 12
    for number, pixels in enumerate(PIXELS):
        (tmp_path / "photos").mkdir(exist_ok=True)
        Image.fromarray(pixels).save(tmp_path / "photos" / f"{number}.png")
    import contextlib

    with contextlib.chdir(tmp_path):
        scope: dict[str, object] = {}
        exec(compile(block, "README.md", "exec"), scope)
    assert torch.isfinite(scope["loss"])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mean": (0.5,), "std": (0.25,)}, "mean = .* three numbers, for red"),  # memory behind the array was read
        ({"std": (0.25, 0.25)}, "std = .* three numbers above 0"),
        ({"std": (0.25, 0, 0.25)}, "std = .* three numbers above 0"),
        ({"mean": (0.5, 0.5, float("nan"))}, "mean = .* three numbers"),
        ({"side": 0}, "side = 0 is out of range"),
        ({"side": -1}, "side = -1 is out of range"),
        ({"side": 32.5}, "side = 32.5 is not a whole number"),
        ({"number": 2.5}, "number = 2.5 is not a whole number"),
        ({"number": True}, "number = True is not a whole number"),
        ({"number": 0}, "an image needs at least one view"),
        ({"pad": -1}, "pad = -1 is out of range"),
        ({"mean": 0.5}, "mean = 0.5 must be three numbers"),
        ({"seed": "a"}, "seed = 'a' is not a whole number"),
        ({"seed": 2**63}, "seed = .* is out of range"),
        ({"backend": "nmba"}, "did you mean 'numba'"),
    ],
)
def test_impossible_settings_are_refused_when_they_are_made(options: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Views(**options)  # type: ignore[arg-type]


def odd_pictures() -> dict[str, Image.Image]:
    rng = np.random.default_rng(1)
    colours, deep = rng.integers(0, 256, (16, 16, 4), np.uint8), rng.integers(0, 65536, (16, 16), np.uint16)
    turned = io.BytesIO()
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.fromarray(colours[..., :3]).save(turned, "PNG", exif=exif)
    return {
        "grey": Image.fromarray(colours[..., 0]),
        "16 bits": Image.fromarray(deep),
        "floats": Image.fromarray((deep / 65535).astype(np.float32)),
        "transparent": Image.fromarray(colours),
        "grey and transparent": Image.fromarray(colours[..., :2]),
        "palette": Image.fromarray(colours[..., :3]).convert("P"),
        "turned": Image.open(turned),
    }


@pytest.mark.parametrize("kind", odd_pictures())
def test_a_picture_has_the_colours_that_embed_sees(kind: str) -> None:
    picture = odd_pictures()[kind]
    view, *_ = Views("none", side=16)(picture)
    expected = read_images([picture], side=16).images[0]
    assert np.array_equal(np.rint((view.numpy() * 0.25 + 0.5) * 255), expected.transpose(2, 0, 1))


@pytest.mark.parametrize("indices", [[0, 1], [0.5, 1, 2, 3, 4], [[0, 1, 2, 3, 4]]])
def test_an_index_for_each_image(indices: list[object]) -> None:
    with pytest.raises(InputError, match="indices must be 5 whole numbers"):
        Views(side=16, seed=1).batch(PIXELS, indices=indices)


def test_no_images_give_no_views() -> None:
    assert Views(number=3, side=16)(PIXELS[:0]).shape == (3, 0, 3, 16, 16)
