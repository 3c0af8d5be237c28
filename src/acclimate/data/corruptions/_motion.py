"""The streak a point leaves behind when the camera, or a snowflake, moves."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["motion_kernels"]


def motion_kernels(angles_degrees: Tensor, *, radius: float, sigma: float) -> Tensor:
    """One kernel (odd × odd, summing to 1, origin in the middle) for each of N angles.

    As ImageMagick has it, a pixel becomes the mean of 2·radius + 1 pixels ahead of it: every next
    one a pixel farther along the angle (0 is to the right, 90 down), rounded to the grid, with
    the weights of one half of a Gaussian. To be correlated with the picture, edge pixels repeated.

    >>> motion_kernels(torch.tensor([0.0, 90.0]), radius=1, sigma=1.0)[:, 2:, 2:]
    tensor([[[0.5741, 0.3482, 0.0777],
             [0.0000, 0.0000, 0.0000],
             [0.0000, 0.0000, 0.0000]],
    <BLANKLINE>
            [[0.5741, 0.0000, 0.0000],
             [0.3482, 0.0000, 0.0000],
             [0.0777, 0.0000, 0.0000]]])
    """
    reach = 2 * -int(-radius // 1)
    side = 2 * reach + 1
    steps = torch.arange(reach + 1, dtype=torch.float64, device=angles_degrees.device)
    weights = torch.exp(-0.5 * (steps / sigma) ** 2)
    weights /= weights.sum()
    # In double precision: a rounding that went the other way would move a tap by a whole pixel.
    angles = angles_degrees.to(torch.float64).deg2rad()[:, None]
    down, right = (
        torch.ceil(steps * part - 0.5).to(torch.int64) for part in (angles.sin(), angles.cos())
    )
    places = (reach + down).mul_(side).add_(reach + right)
    kernels = weights.new_zeros(len(places), side * side, dtype=torch.float32)
    # Two steps may round to the same pixel, where their weights add up.
    kernels.scatter_add_(1, places, weights.to(torch.float32).expand_as(places))
    return kernels.view(-1, side, side)
