"""The common corruptions of Hendrycks & Dietterich (2019): seeded, at any size, on batches.

`corrupt` makes a shifted image of a clean one. The corruptions and the constants of their five
severities follow the definitions published with ImageNet-C and CIFAR-10-C
(https://arxiv.org/abs/1903.12261); each family has a file of its own, and a corruption is one
function on a batch of images, in torch, that a decorator registers.

They are our own rather than torchvision's or scipy's, which have neither these definitions to the
bit nor draws that depend on the image alone; ``benchmarks/corruptions.py`` measures their speed.
"""

from __future__ import annotations

# Imported for what they register; names are listed in the benchmark's order.
from acclimate.data.corruptions import blur, digital, noise, spatter, weather  # noqa: F401
from acclimate.data.corruptions.corrupt import constants, corrupt, corrupt_indexed, corruptions
from acclimate.data.corruptions.frost import frost_kind, named_in_results
from acclimate.data.shift import DEV, PRESETS, SEVERITIES, TEST, Preset

__all__ = [
    "DEV",
    "PRESETS",
    "SEVERITIES",
    "TEST",
    "Preset",
    "constants",
    "corrupt",
    "corrupt_indexed",
    "corruptions",
    "frost_kind",
    "named_in_results",
]
