"""The common corruptions of Hendrycks & Dietterich (2019): seeded, at any size, on batches.

`corrupt` makes a shifted image of a clean one. The corruptions and the constants of their five
severities follow the definitions published with ImageNet-C and CIFAR-10-C
(https://arxiv.org/abs/1903.12261); each family has a file of its own, and a corruption is one
function on a batch of images, in torch, that a decorator makes known.
"""

from __future__ import annotations

# Imported for what they register; the order in which names are listed is the benchmark's.
from acclimate.data.corruptions import blur, digital, frost, noise, spatter, weather
from acclimate.data.corruptions import blur as glass
from acclimate.data.corruptions import digital as colour
from acclimate.data.corruptions import digital as elastic
from acclimate.data.corruptions import weather as snow
from acclimate.data.corruptions.corrupt import (
    PRESETS,
    Preset,
    constants,
    corrupt,
    corrupt_indexed,
    corruptions,
)
from acclimate.data.corruptions.frost import frost_kind, named_in_results
from acclimate.data.names import DEV, SEVERITIES, TEST

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
    "corrupt_indexed",
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
