"""The networks of photo_models.py for photos that are stored as crops of 224 pixels.

    PHOTO_WEIGHTS=DIR acclimate bench --models py:photo_crops:resnet50 ... (in benchmarks/)

ImageNet-C was made of such crops too: nothing is resized before a corruption, or after it.
"""

from __future__ import annotations

from dataclasses import replace

import photo_models
from acclimate.data import Preprocessing
from acclimate.models import LoadedModel


def resnet50() -> LoadedModel:
    """Keras's ResNet-50."""
    return _of_crops(photo_models.resnet50())


def efficientnet_lite0() -> LoadedModel:
    """EfficientNet-Lite0."""
    return _of_crops(photo_models.efficientnet_lite0())


def efficientnet_lite1() -> LoadedModel:
    """EfficientNet-Lite1, made for 240 pixels."""
    return _of_crops(photo_models.efficientnet_lite1())


def efficientnet_lite2() -> LoadedModel:
    """EfficientNet-Lite2, made for 260 pixels."""
    return _of_crops(photo_models.efficientnet_lite2())


def _of_crops(loaded: LoadedModel) -> LoadedModel:
    whole = loaded.preprocessing
    assert isinstance(whole, Preprocessing)
    name = loaded.name.replace("photo_models", "photo_crops")
    return replace(loaded, name=name, preprocessing=replace(whole, resize=None))
