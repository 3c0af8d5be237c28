"""Frost: ice on the window through which the picture is taken."""

from __future__ import annotations

import functools
from dataclasses import dataclass

import torch
from torch import Tensor

from acclimate.data.corruptions._draws import Draws
from acclimate.data.corruptions._frost_textures import TEXTURES, FrostKind, frost_kind, texture
from acclimate.data.corruptions._registry import corruption

__all__ = ["frost", "frost_kind", "named_in_results"]

_PLACES = 2**24  # on which a crop's offset is drawn, as a share of the room there is


@corruption(random=True, colour=True)
def frost(
    images: Tensor,
    draws: Draws,
    *,
    image_weight: float,
    frost_weight: float,
    overlay_scale: float,
) -> Tensor:
    """Add a piece, cut at random, of one of five pictures of ice.

    The published pictures are used where the package ``imagecorruptions`` brings them, and five
    grown by rule otherwise: `frost_kind` tells which.
    """
    height, width = images.shape[-2:]
    overlays = _overlays(frost_kind(), overlay_scale, height, width, images.device)
    which = draws.integers(0, TEXTURES, 1)[:, 0]
    places = draws.integers(0, _PLACES, 2)
    top = (places[:, 0] * overlays.room_down[which]) // _PLACES
    left = (places[:, 1] * overlays.room_right[which]) // _PLACES
    pitch = overlays.pitch[which]
    corner = overlays.start[which] + top * pitch + left
    down = torch.arange(height, device=images.device)
    right = torch.arange(width, device=images.device)
    index = ((corner[:, None] + pitch[:, None] * down)[..., None] + right).view(-1)
    # A channel at a time: along a second axis, index_select is several times slower.
    ice = torch.stack([channel.index_select(0, index) for channel in overlays.values])
    levels = images.to(torch.float32, memory_format=torch.contiguous_format).mul_(image_weight)
    return levels.add_(ice.view(3, -1, height, width).transpose(0, 1), alpha=frost_weight)


def named_in_results(name: str) -> str:
    """The name a corruption goes by in results: frost's tells whose textures it was made with."""
    return frost_kind() if name == "frost" else name


@dataclass(frozen=True)
class _Overlays:
    """All textures end to end, so that one look-up serves a batch.

    Attributes:
        values: 3 × all pixels, uint8.
        start: where each texture begins.
        pitch: how wide it is.
        room_down: how many rows a crop can begin at.
        room_right: how many columns.
    """

    values: Tensor
    start: Tensor
    pitch: Tensor
    room_down: Tensor
    room_right: Tensor


@functools.lru_cache(maxsize=64)
def _overlays(
    kind: FrostKind, scale: float, height: int, width: int, device: torch.device
) -> _Overlays:
    scales = []
    for index in range(TEXTURES):
        rows, columns = texture(index, kind=kind).shape[1:]
        scales.append(max(scale, height / rows, width / columns))
    values, sizes = _end_to_end(kind, tuple(scales), device)
    areas = [rows * columns for rows, columns in sizes]

    def numbers(values: list[int]) -> Tensor:
        return torch.tensor(values, device=device)

    return _Overlays(
        values=values,
        start=numbers([sum(areas[:index]) for index in range(TEXTURES)]),
        pitch=numbers([columns for _, columns in sizes]),
        # The published draws leave out the last place; where it is the only one, it is taken.
        room_down=numbers([max(1, rows - height) for rows, _ in sizes]),
        room_right=numbers([max(1, columns - width) for _, columns in sizes]),
    )


@functools.lru_cache(maxsize=8)
def _end_to_end(
    kind: FrostKind, scales: tuple[float, ...], device: torch.device
) -> tuple[Tensor, list[tuple[int, int]]]:
    """The textures' pixels, 3 × all of them, and their heights and widths."""
    pictures = [resized(texture(i, kind=kind), scale) for i, scale in enumerate(scales)]
    values = torch.cat([picture.flatten(1) for picture in pictures], dim=1)
    return values.to(device), [(picture.shape[1], picture.shape[2]) for picture in pictures]


def resized(picture: Tensor, scale: float) -> Tensor:
    """A uint8 picture 3×H×W, ``scale`` times as large, by linear interpolation.

    As OpenCV's ``resize`` has it: nothing is smoothed first, so that a fifth of the size keeps
    every fifth pixel.

    >>> resized(torch.arange(30, dtype=torch.uint8).view(3, 1, 10), 0.2)[0]
    tensor([[2, 7]], dtype=torch.uint8)
    """
    values = picture.to(torch.float64)
    for axis in (1, 2):
        side = values.shape[axis]
        centres = (torch.arange(max(1, round(side * scale)), dtype=torch.float64) + 0.5) / scale
        centres = (centres - 0.5).clamp_(0, side - 1)
        first = centres.to(torch.int64)
        second = (first + 1).clamp_(max=side - 1)
        share = (centres - first).view([-1 if a == axis else 1 for a in range(3)])
        values = torch.lerp(
            values.index_select(axis, first), values.index_select(axis, second), share
        )
    return values.round_().to(torch.uint8)
