"""The colours of page.css: ten classes that people with any colour vision can tell apart."""

from __future__ import annotations

import itertools
import re
from importlib import resources

import numpy as np
import pytest

# Machado, Oliveira & Fernandes 2009, complete protanopia, deuteranopia, tritanopia, on linear RGB.
VISION = {
    "all cones": np.eye(3),
    "no red": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
    ),
    "no green": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
    ),
    "no blue": np.array(
        [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]]
    ),
}
XYZ = np.array(
    [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.0721750], [0.0193339, 0.1191920, 0.9503041]]
)


def lab(rgb: np.ndarray) -> np.ndarray:
    ratio = XYZ @ np.clip(rgb, 0, 1) / XYZ.sum(axis=1)
    f = np.where(ratio > 0.008856, np.cbrt(ratio), 7.787 * ratio + 16 / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


@pytest.mark.parametrize("vision", VISION)
def test_colours_of_ten_classes_can_be_told_apart(vision: str) -> None:
    css = resources.files("relatum.report").joinpath("page.css").read_text("utf-8")
    colours = [re.search(rf"--c{i}: #([0-9a-f]{{6}})", css) for i in range(10)]
    seen = []
    for match in colours:
        assert match is not None
        srgb = np.array([int(match[1][i : i + 2], 16) for i in (0, 2, 4)]) / 255
        linear = np.where(srgb <= 0.04045, srgb / 12.92, ((srgb + 0.055) / 1.055) ** 2.4)
        seen.append(lab(VISION[vision] @ linear))
    # A CIELAB difference of 2.3 is just noticeable; 17 is seven times that.
    assert min(float(np.linalg.norm(a - b)) for a, b in itertools.combinations(seen, 2)) > 17
