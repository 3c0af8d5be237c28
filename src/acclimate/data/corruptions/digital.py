"""Storage, display and colour: pixelation, JPEG, brightness, contrast, saturation, elastic."""

from __future__ import annotations

import functools
from collections.abc import Callable
from io import BytesIO

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.nn import functional as F

from acclimate.data.corruptions.corrupt import corruption
from acclimate.data.corruptions.draws import Draws
from acclimate.data.corruptions.filters import gaussian, to_float

__all__ = [
    "brightness",
    "contrast",
    "elastic_transform",
    "jpeg_compression",
    "pixelate",
    "saturate",
    "stored_as_jpeg",
]


@corruption(many=True)
def pixelate(images: Tensor, *, scale: float) -> Tensor:
    """Shrink the image by box averages and blow it up again."""
    height, width = images.shape[-2:]
    small = (max(1, int(width * scale)), max(1, int(height * scale)))
    if images.device.type == "cpu":  # Pillow shrinks faster there than a matrix does
        levels = _each(images, lambda image: image.resize(small, Image.Resampling.BOX))
    else:
        # Two passes, each rounded to eight bits, as Pillow does it.
        levels = images.to(torch.float32)
        levels = (levels @ _box_matrix(width, small[0], images.device).T).add_(0.5).floor_()
        levels = (_box_matrix(height, small[1], images.device) @ levels).add_(0.5).to(torch.uint8)
    # Selected in the memory order, which spares a pass over the result.
    pixels = levels.permute(0, 2, 3, 1)
    pixels = pixels.index_select(2, _nearest(width, small[0], images.device))
    pixels = pixels.index_select(1, _nearest(height, small[1], images.device))
    return pixels.permute(0, 3, 1, 2)


@corruption(many=True, host=True)
def jpeg_compression(images: Tensor, *, quality: int) -> Tensor:
    """Save as JPEG of this quality, with Pillow's default chroma subsampling, and read it back."""
    return stored_as_jpeg(images, quality=quality)


def stored_as_jpeg(images: Tensor, *, quality: int) -> Tensor:
    """uint8 images as they come back from JPEG files."""

    def stored(image: Image.Image) -> Image.Image:
        buffer = BytesIO()
        image.save(buffer, "JPEG", quality=quality)
        return Image.open(buffer, formats=("JPEG",))

    return _each(images, stored)


def _each(images: Tensor, change: Callable[[Image.Image], Image.Image]) -> Tensor:
    """Images changed one by one by Pillow, N×C×H×W in the memory order N×H×W×C."""
    arrays = images.permute(0, 2, 3, 1).numpy(force=True)
    first, *others = arrays[..., 0] if arrays.shape[-1] == 1 else arrays
    changed = np.asarray(change(Image.fromarray(first)))
    together = np.empty((len(arrays), *changed.shape), np.uint8)
    together[0] = changed
    for place, pixels in zip(together[1:], others, strict=True):
        place[...] = np.asarray(change(Image.fromarray(pixels)))
    batch = torch.from_numpy(together)
    return batch[:, None] if batch.ndim == 3 else batch.permute(0, 3, 1, 2)


@functools.lru_cache(maxsize=32)
def _box_matrix(side: int, small: int, device: torch.device) -> Tensor:
    """``small`` × ``side``: equal weights for the pixels whose centres lie in a box."""
    scale = side / small
    centres = (np.arange(small) + 0.5) * scale
    first = np.maximum((centres - scale / 2 + 0.5).astype(int), 0)
    last = np.minimum((centres + scale / 2 + 0.5).astype(int), side)
    pixels = np.arange(side)
    inside = (pixels >= first[:, None]) & (pixels < last[:, None])
    return torch.from_numpy(inside / inside.sum(axis=1, keepdims=True)).to(device, torch.float32)


@functools.lru_cache(maxsize=32)
def _nearest(side: int, small: int, device: torch.device) -> Tensor:
    centres = (torch.arange(side, dtype=torch.float64) + 0.5) * (small / side)
    return centres.to(torch.int64).to(device)


@corruption()
def brightness(images: Tensor, *, add_to_value: float) -> Tensor:
    """Raise the value (of hue, saturation, value) by a constant, at most to full scale."""
    levels = to_float(images)
    value = levels.amax(dim=1, keepdim=True)
    raised = (value + 255 * add_to_value).clamp_(max=255)
    # The saturation stays, so the distance to the value grows with it. Black has none to grow.
    gain = raised / value.clamp(min=1)
    return levels.sub_(value).mul_(gain).add_(raised)


@corruption()
def contrast(images: Tensor, *, factor: float) -> Tensor:
    """Draw every channel towards its mean over the image."""
    levels = to_float(images)
    # Summed as whole numbers, the mean is the same on any device.
    total = images.sum(dim=(2, 3), keepdim=True, dtype=torch.int64)
    mean = total.to(torch.float64) / (images.shape[2] * images.shape[3])
    return levels.mul_(factor).add_((mean * (1 - factor)).to(torch.float32))


@corruption(colour=True)
def saturate(images: Tensor, *, multiply: float, add: float) -> Tensor:
    """Scale and shift the saturation.

    A grey pixel has no hue and counts as red, as published: it turns reddish where ``add`` > 0.
    """
    levels = to_float(images)
    value = levels.amax(dim=1, keepdim=True)
    chroma = value - levels.amin(dim=1, keepdim=True)
    saturation = (chroma / value.clamp(min=1)).mul_(multiply).add_(add).clamp_(0, 1)
    share = levels.sub_(value).div_(chroma.clamp(min=1))  # 0 to -1, from the value downwards
    if add > 0:
        share[:, 1:].masked_fill_(chroma == 0, -1)
    return share.mul_(saturation.mul_(value)).add_(value)


@corruption(random=True)
def elastic_transform(
    images: Tensor, draws: Draws, *, alpha: float, sigma: float, affine: float
) -> Tensor:
    """Pull three points up to ``affine`` px away, then every pixel by a smooth random field.

    The field is white noise from -``alpha`` to ``alpha`` px, blurred by a Gaussian of ``sigma``.
    """
    height, width = images.shape[-2:]
    levels = to_float(images)
    pulls = draws.uniform(3, 2).mul_(2).sub_(1).mul_(affine)
    stretched = _sampled(levels, _affine_places(pulls, height, width), ends_twice=False)
    if alpha == 0:
        return stretched
    # A blur keeps constants: noise from 0 to 1 can be stretched to -alpha to alpha after it.
    field = gaussian(draws.uniform(2, height, width), sigma, edge="reflect", truncate=3.0)
    least, pixel = _raster(height, width, alpha, images.device)
    places = torch.addcmul(least, field, pixel, value=2 * alpha)
    return _sampled(stretched, places, ends_twice=True)


def _sampled(images: Tensor, places: Tensor, *, ends_twice: bool) -> Tensor:
    """Interpolate between pixels, N×C×H×W, at places N×2×H×W; beyond its edges, a reflection.

    Torch's scale of places goes from edge to edge of the image where the reflection has the last
    pixels twice, and from middle to middle of the last pixels where it has them once.
    """
    return F.grid_sample(
        images,
        places.movedim(1, -1),
        mode="bilinear",
        padding_mode="reflection",
        align_corners=not ends_twice,
    )


def _affine_places(pulls: Tensor, height: int, width: int) -> Tensor:
    """Where each pixel comes from under the affine map that pulls three points, N×2×H×W.

    The points are corners of a square: right and below its middle, right and above, left and
    above. The OpenCV that made the benchmarks rounded the places to 1/32 px, which OpenCV 5 does
    not: far less than one draw differs from another, and not done here.
    """
    arm = min(height, width) // 3
    pulls = pulls.to(torch.float64)
    below, corner, left = pulls.unbind(1)
    # What a step of one pixel to the right, and one down, becomes.
    one = torch.eye(2, dtype=torch.float64, device=pulls.device)
    right, down = one[0] + (corner - left) / (2 * arm), one[1] + (below - corner) / (2 * arm)
    area = right[:, 0] * down[:, 1] - right[:, 1] * down[:, 0]
    scale = torch.where(area == 0, 0, 1 / area)  # flattened to a line: as in OpenCV, one colour
    to_x = torch.stack([down[:, 1], -down[:, 0]], dim=1) * scale[:, None]
    to_y = torch.stack([-right[:, 1], right[:, 0]], dim=1) * scale[:, None]
    back = torch.stack([to_x, to_y], dim=2)  # N × from (x, y) × to (x, y)
    # As published, the middle is (height, width) / 2, though the points are (x, y).
    home = one.new_tensor([height // 2 + arm, width // 2 - arm])
    origin = home - ((home + corner)[:, None] @ back)[:, 0]
    span = one.new_tensor([2 / (width - 1), 2 / (height - 1)])
    back, origin = (back * span).to(torch.float32), (origin * span - 1).to(torch.float32)
    rows = torch.arange(height, device=pulls.device)[:, None] * back[:, 1, :, None, None]
    columns = torch.arange(width, device=pulls.device) * back[:, 0, :, None, None]
    return rows + (columns + origin[:, :, None, None])


@functools.lru_cache(maxsize=32)
def _raster(height: int, width: int, before: float, device: torch.device) -> tuple[Tensor, Tensor]:
    """The places ``before`` pixels left of and above all pixels, 2×H×W, and the size of one."""
    pixel = torch.tensor([2 / width, 2 / height], device=device)[:, None, None]
    x, y = torch.arange(width, device=device), torch.arange(height, device=device)
    centres = torch.stack(torch.meshgrid(x, y, indexing="xy")) + 0.5
    return (centres - before) * pixel - 1, pixel
