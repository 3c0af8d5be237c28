"""One image file of any kind → upright 8-bit grey or colour → the array a model wants."""

from __future__ import annotations

import contextlib
import importlib
import io
import zlib
from functools import cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError
from torch import Tensor

from acclimate.data.preprocessing import Preprocessing
from acclimate.errors import AcclimateError

__all__ = [
    "TooLargeImageError",
    "UnreadableImageError",
    "channels_first",
    "check_dense",
    "decode",
    "fit_pixels",
    "image_formats",
    "to_eight_bit",
    "to_numpy",
    "want_preprocessing",
]

_FORMATS = (
    "JPEG", "MPO", "PNG", "WEBP", "GIF", "BMP", "DIB", "TIFF", "PPM", "JPEG2000", "AVIF", "HEIF",
    "TGA",
)  # fmt: skip
_ALPHA_MODES = ("LA", "La", "PA", "RGBA", "RGBa")
_ORIENTATION = 0x0112  # the EXIF tag


class UnreadableImageError(Exception):
    """A file that holds no image we can read; the message tells why."""


class TooLargeImageError(UnreadableImageError):
    """An image with more pixels than may be read."""


def decode(
    data: bytes, preprocessing: Preprocessing, *, most_pixels: int | None = None
) -> NDArray[np.uint8]:
    """The image in a file's bytes, fitted to channels × height × width.

    ``most_pixels`` is the limit of the caller's own, besides Pillow's.

    Raises:
        UnreadableImageError: with the reason, whatever is wrong with the bytes.
    """
    if not data:
        raise UnreadableImageError("empty file")
    try:
        with Image.open(io.BytesIO(data), formats=image_formats()) as image:
            if most_pixels is not None and image.width * image.height > most_pixels:
                raise TooLargeImageError(
                    f"too large ({image.width:,}×{image.height:,} pixels; expected at most "
                    f"{most_pixels:,} in all)"
                )
            _refuse_large(image.size, preprocessing)
            ready = _decode_ready(data, image, preprocessing)
            if ready is not None:
                return ready
            image.load()  # of an animation, the first frame
            # A broken EXIF block is no reason to lose a sound image. In place, since a copy would
            # forget the format, which tells the range of its values.
            with contextlib.suppress(Exception):
                ImageOps.exif_transpose(image, in_place=True)
            return preprocessing.fit(to_eight_bit(image))
    except UnreadableImageError:
        raise
    except Exception as error:  # on broken bytes Pillow's readers raise nearly anything
        raise UnreadableImageError(_reason(error)) from error


@cache
def image_formats() -> tuple[str, ...]:
    """The kinds of files that are read: those of images, and none that needs other programs.

    TGA comes last, since its files begin with no mark.
    """
    Image.init()
    return tuple(name for name in _FORMATS if name in Image.OPEN)


def _refuse_large(size: tuple[int, int], preprocessing: Preprocessing) -> None:
    """Refuse more pixels than Pillow's limit, in the file or once resized, before any is made."""
    most = Image.MAX_IMAGE_PIXELS
    pixels = max(width * height for width, height in (size, preprocessing.resized(size)))
    if most is not None and pixels > most:
        raise TooLargeImageError(
            f"too large ({size[0]:,}×{size[1]:,}, up to {pixels / 1e6:,.0f} megapixels on the way; "
            f"expected at most {most / 1e6:,.0f}, which PIL.Image.MAX_IMAGE_PIXELS sets)"
        )


def to_eight_bit(image: Image.Image) -> Image.Image:
    """Make any image 8-bit "L" or "RGB", without clipping and without transparency.

    Transparency is laid on white. What lies under transparent pixels is arbitrary, often black,
    and was never meant to be seen; white is what a page or a viewer shows behind a cut-out.
    """
    mode = image.mode
    if mode in ("I", "F") or mode.startswith("I;16"):
        # Pillow widens 16-bit PNG and PGM to 32-bit integers, scaled to the full 16 bits.
        deep = mode.startswith("I;16") or image.format in ("PNG", "PPM")
        return Image.fromarray(_scaled(np.asarray(image), deep=deep))
    if mode in _ALPHA_MODES or "transparency" in image.info:
        colours = image.convert("RGBA")
        white = Image.new("RGBA", colours.size, "white")
        return Image.alpha_composite(white, colours).convert("RGB")
    return image.convert("L" if mode in ("1", "L") else "RGB")


def _decode_ready(
    data: bytes, image: Image.Image, wanted: Preprocessing
) -> NDArray[np.uint8] | None:
    """The pixels of a colour JPEG that is stored as the model wants it, upright and in its size.

    simplejpeg (the extra ``fast``) decodes to the very bytes Pillow does, straight into an array:
    about 1.5 times as fast, which counts for the 3.75 million images of ImageNet-C. Images to
    be resized gain nothing, since they would have to go through Pillow anyway. None means that this
    is no such image, or that only Pillow can tell what is wrong with it.
    """
    if image.format != "JPEG" or image.mode != "RGB" or image.size != wanted.size[::-1]:
        return None
    simplejpeg = _simplejpeg()
    if simplejpeg is None or wanted.channels != 3:
        return None
    try:
        if image.getexif().get(_ORIENTATION, 1) != 1:
            return None
        # Both "fast" ways of the library change pixels; without them they are Pillow's.
        pixels = simplejpeg.decode_jpeg(data, "RGB", fastdct=False, fastupsample=False)
    except Exception:  # of the EXIF block too, which the way by Pillow knows to ignore
        return None
    return np.ascontiguousarray(pixels.transpose(2, 0, 1))


@cache
def _simplejpeg() -> Any:
    try:
        return importlib.import_module("simplejpeg")
    except ImportError:
        return None


def _scaled(values: NDArray[Any], *, deep: bool) -> NDArray[np.uint8]:
    """Bring wide integers or floats to 0..255.

    16-bit files have a known range, so the whole of it is scaled, and images of one camera stay
    comparable. 32-bit integers and floats have none: values within 0..1 (floats only), 0..255 or
    0..65535 are taken for that range, any others are stretched from their least to their greatest.
    """
    floats = values.astype(np.float64)
    if not np.isfinite(floats).all():
        raise UnreadableImageError("NaN or infinite pixels")
    low, high = float(floats.min()), float(floats.max())
    if deep:
        low, high = 0.0, 65535.0
    elif low >= 0:
        ranges = (1.0, 255.0, 65535.0) if values.dtype.kind == "f" else (255.0, 65535.0)
        fitting = [top for top in ranges if high <= top]
        low, high = (0.0, fitting[0]) if fitting else (low, high)
    span = high - low or 1.0
    return np.rint((floats - low) * (255 / span)).clip(0, 255).astype(np.uint8)


def _reason(error: Exception) -> str:
    text = str(error) or type(error).__name__
    if isinstance(error, (Image.DecompressionBombError, Image.DecompressionBombWarning)):
        return f"too large ({text})"
    if isinstance(error, UnidentifiedImageError):
        return "not an image"
    if isinstance(error, (EOFError, zlib.error)) or "truncated" in text.lower():
        return f"truncated ({text})"
    return f"damaged ({text})"


def to_numpy(images: Tensor | NDArray[Any]) -> NDArray[Any]:
    """A tensor as an array on the CPU; arrays are returned unchanged."""
    if not isinstance(images, Tensor):
        return images
    check_dense(images)
    # numpy knows no bfloat16
    images = images.float() if images.dtype == torch.bfloat16 else images
    array: NDArray[Any] = images.detach().cpu().numpy()
    return array


def check_dense(images: Tensor) -> None:
    """Refuse a tensor without values of its own, or with some of them alone.

    >>> check_dense(torch.zeros(2, 3, device="meta"))
    Traceback (most recent call last):
    acclimate.errors.AcclimateError: expected images as a dense tensor with values, got one on the
    meta device; make it one first, e.g. images.to_dense()
    """
    if images.layout != torch.strided or images.is_meta or images.is_quantized:
        what = "on the meta device" if images.is_meta else f"of {images.dtype}, {images.layout}"
        raise AcclimateError(
            f"expected images as a dense tensor with values, got one {what}; make it one first, "
            "e.g. images.to_dense()"
        )


def channels_first(images: NDArray[Any]) -> NDArray[Any]:
    """View images as N×C×H×W, uint8 or float; anything else is refused with what to do."""
    shape, axes = "×".join(map(str, images.shape)) or "a scalar", images.ndim
    if images.dtype == np.uint8:
        if axes == 3 and images.shape[-1] != 3:
            images = images[:, None]
        elif axes == 4 and images.shape[1] not in (1, 3) and images.shape[-1] in (1, 3):
            images = images.transpose(0, 3, 1, 2)
        elif axes != 4 or images.shape[1] not in (1, 3):
            hint = "; one image is images[None]" if axes == 3 else ""
            raise AcclimateError(
                f"expected uint8 images as N×H×W×3, N×H×W, N×3×H×W or N×1×H×W, got {shape}{hint}"
            )
    elif images.dtype.kind != "f":
        raise AcclimateError(
            f"expected images as uint8 (0 to 255) or as float model input, got {images.dtype}; "
            "convert them first, e.g. images.astype('uint8')"
        )
    elif axes != 4:
        raise AcclimateError(
            f"expected float images as N×C×H×W, got {shape}; "
            "images[None] makes one image a set, images[:, None] adds the channel to grey ones"
        )
    elif images.shape[-1] == 3 and images.shape[1] > 4:
        raise AcclimateError(
            f"expected float images as N×C×H×W, got {shape}, which looks like channels last; "
            "pass images.transpose(0, 3, 1, 2) (a tensor: images.permute(0, 3, 1, 2))"
        )
    if images.size == 0:
        raise AcclimateError(f"expected at least one image with pixels, got {shape}")
    return images


def fit_pixels(image: NDArray[np.uint8], preprocessing: Preprocessing) -> NDArray[np.uint8]:
    """One C×H×W image in the model's size and channels; untouched if it has them already."""
    if image.shape == preprocessing.shape:
        return image
    grey = image.shape[0] == 1
    return preprocessing.fit(
        Image.fromarray(image[0] if grey else np.ascontiguousarray(image.transpose(1, 2, 0)))
    )


def want_preprocessing(preprocessing: Preprocessing | None, kind: str) -> Preprocessing:
    """The preprocessing, or the error that tells why there has to be one."""
    if preprocessing is None:
        raise AcclimateError(
            f"{kind} must be scaled as the model was trained, and how is not known; pass "
            "preprocessing=Preprocessing(size=(height, width), mean=..., std=...), or give float "
            "tensors that are model input already"
        )
    return preprocessing
