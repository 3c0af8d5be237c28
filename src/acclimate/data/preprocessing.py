"""How a model wants its images: size, crop, interpolation, colour scale."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from acclimate.errors import AcclimateError

__all__ = ["Preprocessing"]

_INTERPOLATION = {
    "nearest": Image.Resampling.NEAREST,
    "bilinear": Image.Resampling.BILINEAR,
    "bicubic": Image.Resampling.BICUBIC,
    "lanczos": Image.Resampling.LANCZOS,
}


@dataclass(frozen=True, kw_only=True)
class Preprocessing:
    """The record of how a model was fed, so that nothing is guessed.

    Images are resized so that the shorter side is ``resize`` (both sides, if ``squash``), the
    centre of ``size`` (height, width) is cut out, and values are scaled to [0, 1], centred by
    ``mean`` and divided by ``std``. One mean means one channel: images are made grey.

    An image that already has ``size`` is neither resized nor cut: it was prepared for this model
    before, and doing it again would blur it and throw its border away.

    >>> print(Preprocessing(size=(224, 224), resize=256, mean=(0.5,), std=(0.25,)).describe())
    shorter side to 256 px (bilinear), centre 224×224, mean (0.5,), std (0.25,)
    """

    size: tuple[int, int]
    resize: int | None = None
    squash: bool = False
    interpolation: str = "bilinear"
    mean: tuple[float, ...] = (0.485, 0.456, 0.406)
    std: tuple[float, ...] = (0.229, 0.224, 0.225)

    def __post_init__(self) -> None:
        if self.interpolation not in _INTERPOLATION:
            known = ", ".join(_INTERPOLATION)
            raise AcclimateError(
                f"expected an interpolation of {known}, got {self.interpolation!r}"
            )
        if len(self.mean) != len(self.std) or len(self.mean) not in (1, 3):
            raise AcclimateError(
                f"expected one or three values in mean and as many in std, got {self.mean} "
                f"and {self.std}"
            )
        if len(self.size) != 2 or min(self.size) < 1 or min(self.std) <= 0:
            raise AcclimateError(
                f"expected size (height, width) >= 1 and std > 0, got {self.size} and {self.std}"
            )
        if self.resize is not None and self.resize < 1:
            raise AcclimateError(f"expected resize >= 1, got {self.resize}")

    @property
    def channels(self) -> int:
        """How many colour channels the model takes."""
        return len(self.mean)

    @property
    def shape(self) -> tuple[int, int, int]:
        """Channels × height × width of one image as the model takes it."""
        return (self.channels, *self.size)

    def fit(self, image: Image.Image) -> NDArray[np.uint8]:
        """Resize and crop one image to a uint8 array of channels × height × width."""
        if min(image.size) < 1:
            raise AcclimateError(f"expected an image with pixels, got {image.size}")
        image = image.convert("L" if self.channels == 1 else "RGB")
        target = self.resized(image.size)
        if target != image.size:
            image = image.resize(target, _INTERPOLATION[self.interpolation])
        height, width = self.size
        if image.size != (width, height):
            # Rounded as torchvision and timm do, so that the same pixels are cut out.
            left, top = round((image.width - width) / 2), round((image.height - height) / 2)
            image = image.crop((left, top, left + width, top + height))
        array = np.array(image, dtype=np.uint8)
        return array[None] if array.ndim == 2 else np.ascontiguousarray(array.transpose(2, 0, 1))

    def resized(self, image: tuple[int, int]) -> tuple[int, int]:
        """Width and height that an image of a width and height is resized to before it is cropped.

        >>> Preprocessing(size=(224, 224), resize=256).resized((512, 1024))
        (256, 512)
        """
        return _resized(image, self)

    def normalize(self, images: Tensor) -> Tensor:
        """Scale uint8 images (N × channels × height × width) as the model was trained.

        >>> grey = Preprocessing(size=(1, 1), mean=(0.5,), std=(0.5,))
        >>> grey.normalize(torch.tensor([[[[255]]]], dtype=torch.uint8)).item()
        1.0
        """
        return self.standardize(images.to(torch.float32, copy=True).div_(255))

    def standardize(self, images: Tensor) -> Tensor:
        """Centre and scale float images from 0 to 1, in place, as the model was trained."""
        mean, std = (_per_channel(images.device, tuple(v)) for v in (self.mean, self.std))
        return images.sub_(mean).div_(std)

    def describe(self) -> str:
        """One line to check by eye."""
        shape = f"{self.size[0]}×{self.size[1]}"
        if self.resize is not None:
            sides = "both sides" if self.squash else "shorter side"
            shape = f"{sides} to {self.resize} px ({self.interpolation}), centre {shape}"
        return f"{shape}, mean {self.mean}, std {self.std}"


@lru_cache(maxsize=64)
@torch.inference_mode(False)  # made in inference, they could not be used in training
def _per_channel(device: torch.device, values: tuple[float, ...]) -> Tensor:
    """One value a channel, on the device: a copy with every batch would wait for all before it."""
    return torch.tensor(values, dtype=torch.float32, device=device).view(1, -1, 1, 1)


def _resized(image: tuple[int, int], wanted: Preprocessing) -> tuple[int, int]:
    """Width and height an image is resized to; it always covers the crop."""
    (width, height), (crop_height, crop_width) = image, wanted.size
    if (width, height) == (crop_width, crop_height):
        return image
    if wanted.squash:
        return max(wanted.resize or 0, crop_width), max(wanted.resize or 0, crop_height)
    if wanted.resize is not None:
        # The longer side is rounded down, as torchvision and timm do.
        short = min(image)
        resized = width * wanted.resize // short, height * wanted.resize // short
        if resized[0] >= crop_width and resized[1] >= crop_height:
            return resized
    scale = max(crop_width / width, crop_height / height)
    return max(crop_width, round(width * scale)), max(crop_height, round(height * scale))
