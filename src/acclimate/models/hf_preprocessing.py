"""The image processor of a transformers model, as a record of ours."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from acclimate.data.preprocessing import Preprocessing

__all__ = ["preprocessing_from_hf"]

# Pillow's numbers, which transformers writes into its files.
_RESAMPLE = {0: "nearest", 1: "lanczos", 2: "bilinear", 3: "bicubic"}


def preprocessing_from_hf(config: Mapping[str, Any]) -> Preprocessing | None:
    """The record for an image processor's ``to_dict()``; None where it cannot be put so.

    >>> preprocessing_from_hf({
    ...     "do_resize": True, "size": {"height": 224, "width": 224}, "resample": 2,
    ...     "do_rescale": True, "rescale_factor": 1 / 255,
    ...     "do_normalize": True, "image_mean": [0.5] * 3, "image_std": [0.5] * 3,
    ... }).describe()
    'both sides to 224 px (bilinear), centre 224×224, mean (0.5, 0.5, 0.5), std (0.5, 0.5, 0.5)'
    """
    shape = _shape(config)
    if shape is None or config.get("do_flip_channel_order"):
        return None
    interpolation = _RESAMPLE.get(int(config.get("resample") or 0))
    if interpolation is None:
        return None
    size, resize, squash = shape
    mean, std = _scale(config)
    return Preprocessing(
        size=size, resize=resize, squash=squash, interpolation=interpolation, mean=mean, std=std
    )


def _shape(config: Mapping[str, Any]) -> tuple[tuple[int, int], int | None, bool] | None:
    """(size, resize, squash), by the rules each family of processors has of its own."""
    crop = _pair(config.get("crop_size")) if config.get("do_center_crop") else None
    if not config.get("do_resize"):
        return (crop, None, False) if crop else None
    size = config.get("size") or {}
    if "shortest_edge" in size:
        edge = int(size["shortest_edge"])
        family = str(config.get("image_processor_type", ""))
        if family.startswith("ConvNext") and edge >= 384:
            return (edge, edge), edge, True
        resize = edge
        if config.get("crop_pct"):
            resize = int(edge / config["crop_pct"])
        elif family.startswith("Levit"):
            resize = int(256 / 224 * edge)
        return crop or (edge, edge), resize, False
    both = _pair(size)
    if both is None:
        return None
    if both[0] == both[1]:
        return crop or both, both[0], True
    return (both, None, True) if crop in (None, both) else None


def _pair(size: Any) -> tuple[int, int] | None:
    if isinstance(size, int):
        return size, size
    if isinstance(size, Mapping) and {"height", "width"} <= size.keys():
        return int(size["height"]), int(size["width"])
    return None


def _scale(config: Mapping[str, Any]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and std for pixels in [0, 1], whatever range the processor takes them to first."""
    normalize = bool(config.get("do_normalize"))
    mean = [float(value) for value in config["image_mean"]] if normalize else [0.0] * 3
    std = [float(value) for value in config["image_std"]] if normalize else [1.0] * 3
    factor = config.get("rescale_factor", 1 / 255) if config.get("do_rescale") else 1.0
    spread, offset = 255 * factor, 1.0 if config.get("rescale_offset") else 0.0
    if config.get("include_top"):
        # EfficientNet's processor divides by the std a second time.
        std = [value**2 for value in std]
    return (
        tuple((value + offset) / spread for value in mean),
        tuple(value / spread for value in std),
    )
