"""The chains of random transformations that turn an image into a view, as data. No torch here.

The order is always the same; a policy says which transformations are used, how often and with which ranges:
crop (and resize to the side) → flip → affine → colour jitter → grayscale → quarter turn → normalise → cutout.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

Range = tuple[float, float]


@dataclass(frozen=True)
class Policy:
    """A chain of random transformations; every range is of a uniform draw, every `_p` a probability.

    Attributes:
        crop: `resized` (random area and ratio), `padded` (zero padding, then a random crop of the size of the image),
            or `none` (the whole image).
        area: share of the image's area (resized crop).
        ratio: bounds of width over height, drawn uniformly in its logarithm (resized crop).
        tries: draws before the central fallback (resized crop).
        flip_p: horizontal flip.
        affine_p: affine map about the centre of the view, bilinear, with zeros outside.
        degrees: bounds of the angle.
        scale: bounds of the scale.
        translate: bounds of either shift, as a share of the side.
        shear: bounds of the horizontal shear, in degrees.
        jitter_p: brightness, contrast, saturation and hue in random order.
        brightness: bounds of the factor.
        contrast: bounds of the factor.
        saturation: bounds of the factor.
        hue: bounds of the shift, as a share of the circle.
        gray_p: grayscale.
        turn: quarter turns: `none`, `view` (view k is turned k mod 4 times) or `random`.
        shared: this many consecutive views of an image share all parameters except the turn by view number.
        cutout_p: a square set to zero after normalisation.
        cutout_area: its share of the view.
    """

    crop: str = "none"
    area: Range = (0.08, 1.0)
    ratio: Range = (3 / 4, 4 / 3)
    tries: int = 10
    flip_p: float = 0.0
    affine_p: float = 0.0
    degrees: Range = (-18.0, 18.0)
    scale: Range = (0.9, 1.1)
    translate: Range = (-0.1, 0.1)
    shear: Range = (-10.0, 10.0)
    jitter_p: float = 0.0
    brightness: Range = (0.2, 1.8)
    contrast: Range = (0.2, 1.8)
    saturation: Range = (0.2, 1.8)
    hue: Range = (-0.2, 0.2)
    gray_p: float = 0.0
    turn: str = "none"
    shared: int = 1
    cutout_p: float = 0.0
    cutout_area: float = 0.25

    def with_strength(self, strength: float) -> Policy:
        """The same chain with the ranges of its colour jitter scaled about no change; 1 leaves them as they are."""
        if strength == 1:
            return self

        def scaled(bounds: Range, neutral: float) -> Range:
            return neutral + strength * (bounds[0] - neutral), neutral + strength * (bounds[1] - neutral)

        return replace(
            self,
            brightness=scaled(self.brightness, 1.0),
            contrast=scaled(self.contrast, 1.0),
            saturation=scaled(self.saturation, 1.0),
            hue=scaled(self.hue, 0.0),
        )

    def __post_init__(self) -> None:
        if self.crop not in ("none", "padded", "resized"):
            raise ValueError(f"crop must be none, padded or resized, not {self.crop!r}")
        if self.turn not in ("none", "view", "random"):
            raise ValueError(f"turn must be none, view or random, not {self.turn!r}")
        if max(abs(self.hue[0]), abs(self.hue[1])) > 0.5:
            raise ValueError(f"hue shifts lie within half a circle, not {self.hue}")


_RELATIONAL = Policy(crop="resized", flip_p=0.5, jitter_p=0.8, gray_p=0.2)
_PADDED_CROP = Policy(crop="padded", flip_p=0.5)

POLICIES: dict[str, Policy] = {
    "relational": _RELATIONAL,
    "padded-crop": _PADDED_CROP,
    "rotation": replace(_PADDED_CROP, turn="view", shared=4),
    "rotation-study": replace(_RELATIONAL, turn="random"),
    "small-crop": replace(_RELATIONAL, area=(0.05, 0.4)),  # the small views of multi-crop (DINO)
    "patch": replace(  # the patches of EMP-SSL: squares with a quarter of the area, and weaker jitter
        _RELATIONAL,
        area=(0.25, 0.25),
        ratio=(1.0, 1.0),
        brightness=(0.6, 1.4),
        contrast=(0.6, 1.4),
        saturation=(0.6, 1.4),
    ),
    "flip": Policy(flip_p=0.5),
    "none": Policy(),
    # cutout_area is the paper's for CIFAR-10; STL-10 has 0.111 (32 x 32 of 96 x 96), CIFAR-100 0.0625.
    "finetune": Policy(flip_p=0.5, affine_p=0.5, cutout_p=0.5),
}
