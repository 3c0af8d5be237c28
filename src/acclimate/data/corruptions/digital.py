"""Losses of storage and display: pixelation and JPEG compression."""

from __future__ import annotations

from io import BytesIO

from PIL import Image

from acclimate.data.corruptions._pixels import Pixels, from_picture, to_picture
from acclimate.data.corruptions._registry import corruption

__all__ = ["jpeg_compression", "pixelate"]


@corruption()
def pixelate(image: Pixels, *, scale: float) -> Pixels:
    """Shrink the picture by box averages and blow it up again."""
    height, width = image.shape[:2]
    small = (max(1, int(width * scale)), max(1, int(height * scale)))
    picture = to_picture(image).resize(small, Image.Resampling.BOX)
    return from_picture(picture.resize((width, height), Image.Resampling.BOX))


@corruption()
def jpeg_compression(image: Pixels, *, quality: int) -> Pixels:
    """Save as JPEG of this quality, with Pillow's default chroma subsampling, and read it back."""
    buffer = BytesIO()
    to_picture(image).save(buffer, "JPEG", quality=quality)
    return from_picture(Image.open(buffer))
