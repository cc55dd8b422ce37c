"""Near-duplicates on images whose copies are known."""

from __future__ import annotations

from collections.abc import Sequence
from io import BytesIO

import numpy as np
import pytest
from PIL import Image, ImageDraw, ImageEnhance

import relatum
from relatum.collection.duplicates import near_duplicates
from relatum.collection.maps import maps
from relatum.collection.registration import DETAIL
from relatum.collection.signatures import describe
from relatum.data.decode import decode
from relatum.errors import InputError


def pictures(count: int, seed: int = 0) -> np.ndarray:
    """Smooth random pictures of 48 × 48: as different from one another as photographs, and as compressible."""
    coarse = np.random.default_rng(seed).integers(0, 256, (count, 6, 6, 3), dtype=np.uint8)
    return np.stack([np.asarray(Image.fromarray(c).resize((48, 48), Image.Resampling.BICUBIC)) for c in coarse])


def copy(image: np.ndarray, side: int, quality: int) -> np.ndarray:
    buffer = BytesIO()
    Image.fromarray(image).resize((side, side), Image.Resampling.LANCZOS).save(buffer, "JPEG", quality=quality)
    return decode(buffer, 48)


def icon(sign: str, colour: str = "gold") -> np.ndarray:
    """A page with a folded corner and a sign of a ninth of its width, as in a series of icons, on white."""
    image = Image.new("RGB", (192, 192), "white")
    draw = ImageDraw.Draw(image)
    draw.polygon([(32, 8), (136, 8), (168, 40), (168, 184), (32, 184)], fill="gainsboro", outline="dimgray", width=4)
    draw.polygon([(136, 8), (136, 40), (168, 40)], fill="darkgray")
    draw.rectangle((48, 60, 152, 120), fill=colour)
    if sign == "plus":
        draw.rectangle((130, 142, 138, 166), fill="green")
        draw.rectangle((122, 150, 146, 158), fill="green")
    elif sign == "dot":
        draw.ellipse((122, 142, 146, 166), fill="firebrick")
    return np.asarray(image.resize((96, 96), Image.Resampling.BICUBIC))


def test_copies_are_found_and_different_images_are_not() -> None:
    images = pictures(60)
    copies = np.stack([copy(images[i], side, quality) for i, side, quality in ((0, 24, 60), (1, 96, 30), (2, 48, 90))])
    everything = np.concatenate([images, copies])
    signatures, _ = describe(everything)
    groups = near_duplicates(signatures)
    assert {frozenset(group.members) for group in groups} == {
        frozenset({0, 60}),
        frozenset({1, 61}),
        frozenset({2, 62}),
    }
    assert not any(group.exact for group in groups)


def test_exact_copies_come_first_and_the_image_with_the_most_pixels_leads() -> None:
    images = pictures(8)
    everything = np.concatenate([images, images[:1], copy(images[3], 24, 60)[None], copy(images[3], 28, 60)[None]])
    signatures, _ = describe(everything)
    digests = [*"abcdefgh", "a", "x", "y"]
    sizes = [(32 * 32, 10)] * 9 + [(24 * 24, 99), (32 * 32, 20)]  # a small GIF or PNG copy may have the most bytes
    groups = near_duplicates(signatures, digests=digests, sizes=sizes)
    assert [group.members for group in groups] == [(0, 8), (10, 3, 9)]
    assert [group.exact for group in groups] == [True, False]


def test_blank_images_are_copies_only_if_their_bytes_agree() -> None:
    blank = np.full((3, 32, 32, 3), 255, np.uint8)
    signatures, _ = describe(blank)
    assert near_duplicates(signatures, digests=["a", "b", "c"]) == []
    assert [g.members for g in near_duplicates(signatures, digests=["a", "b", "a"])] == [(0, 2)]


@pytest.mark.parametrize("count", [0, 1])
def test_too_few_images_have_no_duplicates(count: int) -> None:
    signatures, _ = describe(pictures(1)[:count])
    assert near_duplicates(signatures, digests=["a"] * count) == []


def test_a_stricter_threshold_finds_fewer() -> None:
    images = pictures(20)
    everything = np.concatenate([images, copy(images[0], 24, 40)[None]])
    signatures, _ = describe(everything)
    assert near_duplicates(signatures, threshold=0.5)
    assert near_duplicates(signatures, threshold=0.001) == []


def found(images: np.ndarray, **options: object) -> set[frozenset[int]]:
    signatures, _ = describe(images)
    return {frozenset(group.members) for group in near_duplicates(signatures, **options)}  # type: ignore[arg-type]


def test_icons_of_a_series_are_not_copies_of_one_another() -> None:
    icons = np.stack([icon("none"), icon("plus"), icon("dot"), icon("none", "skyblue")])
    again = np.stack([copy(icons[i], 48, 80) for i in range(4)])
    # Decoded at 48 pixels like the copies, so that all can stand in one array.
    originals = np.stack([copy(image, 96, 95) for image in icons])
    pairs = {frozenset({i, i + 4}) for i in range(4)}
    assert found(np.concatenate([originals, again])) == pairs


def changed(image: np.ndarray, kind: str) -> np.ndarray:
    picture = Image.fromarray(image)
    if kind == "cropped":
        return np.asarray(picture.crop((2, 1, 47, 46)).resize((48, 48), Image.Resampling.BICUBIC))
    if kind == "brighter":
        return np.asarray(ImageEnhance.Brightness(picture).enhance(1.2))
    if kind == "darker":
        return np.asarray(ImageEnhance.Brightness(picture).enhance(0.8))
    return np.asarray(ImageEnhance.Contrast(picture).enhance(1.2))


@pytest.mark.parametrize("kind", ["cropped", "brighter", "darker", "more contrast"])
def test_slightly_changed_copies_are_found(kind: str) -> None:
    images = 64 + pictures(40) // 2  # as in most photographs, few pixels are black or white
    copies = np.stack([copy(changed(images[i], kind), 48, 85) for i in range(8)])
    assert found(np.concatenate([images, copies])) == {frozenset({i, 40 + i}) for i in range(8)}


def ring(points: int, step: int, crop: int = 0) -> Image.Image:
    """A star polygon of thin grey lines on white, 100 × 100 pixels: with many points, a ring."""
    image = Image.new("L", (400, 400), "white")
    draw = ImageDraw.Draw(image)
    angle = 2 * np.pi * np.arange(points) / points
    corners = 200 + 160 * np.stack([np.sin(angle), -np.cos(angle)], 1)
    for i in range(points):
        draw.line([tuple(corners[i]), tuple(corners[(i + step) % points])], fill=90, width=2)
    small = image.resize((100, 100), Image.Resampling.BOX)
    return small.crop((crop, crop, 100 - crop, 100 - crop))


def test_rings_of_thin_lines_are_not_copies_of_one_another_and_a_crop_of_one_is() -> None:
    rings = [ring(n, round(n * share)) for share in (0.17, 0.22, 0.27) for n in range(61, 98, 4)]
    files = [BytesIO() for _ in range(len(rings) + 1)]
    for file, image in zip(files, [*rings, ring(81, 14, crop=3)], strict=True):
        image.save(file, "PNG")
    signatures, _ = describe(np.stack([decode(file, 96) for file in files]))
    groups = near_duplicates(
        signatures,
        resolutions=[100] * len(rings) + [94],
        detail=lambda rows: {row: decode(files[row], DETAIL) for row in rows},
    )
    assert [set(group.members) for group in groups] == [{5, len(rings)}]  # 81 points, step 14


def test_images_that_cannot_be_read_again_are_compared_as_thumbnails() -> None:
    images = pictures(20)
    signatures, _ = describe(np.concatenate([images, copy(images[0], 48, 80)[None]]))
    groups = near_duplicates(signatures, resolutions=[500] * 21, detail=lambda _: {})
    assert [group.members for group in groups] == [(0, 20)]


def test_two_lossless_images_of_one_size_are_copies_only_if_their_edges_agree() -> None:
    lines, other, brighter = ring(81, 14), ring(88, 15), ring(81, 14).point(lambda value: min(255, round(1.1 * value)))
    jpeg = BytesIO()
    lines.save(jpeg, "JPEG", quality=70)
    files = [BytesIO() for _ in range(3)]
    for file, image in zip(files, (lines, other, brighter), strict=True):
        image.save(file, "PNG")

    def groups(chosen: list[BytesIO], lossless: list[tuple[int, int] | None]) -> list[tuple[int, ...]]:
        signatures, _ = describe(np.stack([decode(file, 96) for file in chosen]))
        found = near_duplicates(
            signatures,
            resolutions=[100] * len(chosen),
            lossless=lossless,
            detail=lambda rows: {row: decode(chosen[row], DETAIL) for row in rows},
        )
        return [group.members for group in found]

    same = (100, 100)
    assert groups(files[:2], [None, None]) == [(0, 1)]  # the difference alone does not tell them apart
    assert groups(files[:2], [same, (100, 99)]) == [(0, 1)]
    assert groups(files[:2], [same, same]) == []
    assert groups([files[0], files[2]], [same, same]) == [(0, 1)]
    assert groups([files[0], jpeg], [same, None]) == [(0, 1)]


def panel(tint: tuple[int, int, int], width: int, height: int) -> Image.Image:
    """A field of a login screen: one colour, darker at the top and lighter at the bottom."""
    shade = np.ones((height, width, 1))
    shade[: height // 3], shade[-height // 4 :] = 0.2, 1.6
    return Image.fromarray(np.rint(shade * tint).astype(np.uint8))


@pytest.mark.parametrize("height", [46, 100])
def test_lossless_images_of_one_size_in_two_colours_are_not_copies_and_a_darker_one_is(height: int) -> None:
    blue, teal = panel((70, 77, 100), 269, height), panel((65, 89, 95), 269, height)
    files = [BytesIO() for _ in range(3)]
    for file, image in zip(files, (blue, teal, ImageEnhance.Brightness(blue).enhance(0.85)), strict=True):
        image.save(file, "PNG")

    def groups(numbers: list[int], lossless: bool) -> list[tuple[int, ...]]:
        chosen = [files[number] for number in numbers]
        found = near_duplicates(
            describe(np.stack([decode(file, 96) for file in chosen]))[0],
            resolutions=[height] * len(chosen),
            lossless=[(269, height) if lossless else None] * len(chosen),
            detail=lambda rows: {row: decode(chosen[row], DETAIL) for row in rows},
        )
        return [group.members for group in found]

    assert groups([0, 1], lossless=False) == [(0, 1)]  # the difference alone does not tell them apart
    assert groups([0, 1], lossless=True) == []
    assert groups([0, 2], lossless=True) == [(0, 1)]


def test_files_without_a_digest_are_no_copies_of_one_another() -> None:
    """The digest of a file that could not be read is empty; two such files were reported as having the same bytes."""
    pictures = np.random.default_rng(0).integers(0, 256, (3, 96, 96, 3)).astype(np.uint8)
    signatures, _ = describe(pictures)
    assert near_duplicates(signatures, digests=["", "", "a"]) == []
    (group,) = near_duplicates(signatures[[0, 0, 1]], digests=["", "", "a"])
    assert (group.members, group.exact) == ((0, 1), False)


@pytest.mark.parametrize("threshold", [float("nan"), float("inf"), -0.1])
def test_an_impossible_threshold_is_refused_before_the_work(threshold: float) -> None:
    with pytest.raises(InputError, match="threshold"):
        relatum.duplicates("no run", "no folder", threshold=threshold)


def test_any_seed_of_a_run_gives_a_map() -> None:
    """`explore --seed 4294967296` trained, and stopped with an unexpected error when it drew the map."""
    features = np.random.default_rng(0).normal(size=(12, 4)).astype(np.float32)
    assert maps(features, 2**63 - 1)["t-SNE"].shape == (12, 2)
    for seed in (-1, 2**63):
        with pytest.raises(InputError, match="out of range"):
            relatum.explore("no folder", seed=seed)
        with pytest.raises(InputError, match="out of range"):
            relatum.cluster("no run", "no folder", seed=seed)


def test_files_with_the_same_bytes_are_compared_once() -> None:
    """They were aligned with one another at 192 pixels, which took minutes for forty of them."""
    images = pictures(3)
    everything = np.concatenate([images[:1].repeat(20, 0), images[1:], copy(images[0], 48, 90)[None]])
    signatures, _ = describe(everything)
    read: list[int] = []

    def detail(rows: Sequence[int]) -> dict[int, np.ndarray]:
        read.extend(rows)
        return {row: np.asarray(Image.fromarray(everything[row]).resize((DETAIL, DETAIL))) for row in rows}

    digests = [*("a" * 20), "b", "c", "d"]
    groups = near_duplicates(signatures, digests=digests, resolutions=[200] * 23, detail=detail)
    assert [group.members for group in groups] == [(*range(20), 22)]
    assert not set(read) & set(range(1, 20))
