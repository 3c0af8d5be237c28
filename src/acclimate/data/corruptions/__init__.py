"""The common corruptions of Hendrycks & Dietterich (2019): seeded, at any size, on batches.

`corrupt` makes a shifted picture of a clean one. The corruptions and the constants of their five
severities follow the definitions published with ImageNet-C and CIFAR-10-C
(https://arxiv.org/abs/1903.12261); each family has a file of its own, and a corruption is one
function on a batch of pictures, in torch, that a decorator makes known.
"""

from __future__ import annotations

from acclimate.corruption_names import DEV, SEVERITIES, TEST

# Imported for what they register; the order in which names are listed is the benchmark's.
from acclimate.data.corruptions import (
    blur,
    colour,
    digital,
    elastic,
    frost,
    glass,
    noise,
    snow,
    spatter,
    weather,
)
from acclimate.data.corruptions._constants import PRESETS, Preset, constants
from acclimate.data.corruptions._corrupt import corrupt, corrupt_numbered, corruptions
from acclimate.data.corruptions._frost_textures import frost_kind
from acclimate.data.corruptions.frost import named_in_results

__all__ = [
    "DEV",
    "PRESETS",
    "SEVERITIES",
    "TEST",
    "Preset",
    "blur",
    "colour",
    "constants",
    "corrupt",
    "corrupt_numbered",
    "corruptions",
    "digital",
    "elastic",
    "frost",
    "frost_kind",
    "glass",
    "named_in_results",
    "noise",
    "snow",
    "spatter",
    "weather",
]
