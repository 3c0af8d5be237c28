"""Stretching as of rubber: a random affine map, then a field of random displacements.

Places are (x, y) on the scale of `torch.nn.functional.grid_sample`, from -1 to 1 across the
picture.
"""

from __future__ import annotations

import functools

import torch
from torch import Tensor
from torch.nn import functional

from acclimate.data.corruptions._draws import Draws
from acclimate.data.corruptions._filters import gaussian
from acclimate.data.corruptions._registry import corruption

__all__ = ["elastic_transform"]


@corruption(random=True)
def elastic_transform(
    images: Tensor, draws: Draws, *, alpha: float, sigma: float, affine: float
) -> Tensor:
    """Pull three points up to ``affine`` px away, then every pixel by a smooth random field.

    The field is white noise from -``alpha`` to ``alpha`` px, blurred by a Gaussian of ``sigma``.
    """
    height, width = images.shape[-2:]
    levels = images.to(torch.float32, memory_format=torch.contiguous_format)
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

    Torch's scale of places goes from edge to edge of the picture where the reflection has the last
    pixels twice, and from middle to middle of the last pixels where it has them once.
    """
    return functional.grid_sample(
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
