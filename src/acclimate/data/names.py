"""The corruptions of ImageNet-C and CIFAR-10-C by name: what may be chosen on, what is reported.

Names alone, so that a table of results needs no torch.
"""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["DEV", "SEVERITIES", "STAND_INS", "TEST", "plain_shift"]

SEVERITIES = (1, 2, 3, 4, 5)

DEV: tuple[str, ...] = ("speckle_noise", "gaussian_blur", "spatter", "saturate")
"""The four corruptions on which hyper-parameters may be chosen."""

TEST: tuple[str, ...] = (
    "gaussian_noise", "shot_noise", "impulse_noise", "defocus_blur", "glass_blur", "motion_blur",
    "zoom_blur", "snow", "frost", "fog", "brightness", "contrast", "elastic_transform", "pixelate",
    "jpeg_compression",
)  # fmt: skip
"""The fifteen corruptions on which results are reported, in the benchmark's order."""

STAND_INS: Mapping[str, str] = {"frost-procedural": "frost"}
"""Corruptions of our own making that take the place of one of the benchmark's."""


def plain_shift(name: str) -> str:
    """A corruption by the benchmark's name, also where ours stands in for it.

    >>> plain_shift("frost-procedural"), plain_shift("fog")
    ('frost', 'fog')
    """
    return STAND_INS.get(name, name)
