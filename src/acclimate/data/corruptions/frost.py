"""Frost: ice on the window through which the image is taken."""

from __future__ import annotations

import functools
import importlib.util
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from acclimate.data.corruptions.corrupt import corruption
from acclimate.data.corruptions.draws import Draws
from acclimate.data.corruptions.filters import to_float

__all__ = ["TEXTURES", "frost", "frost_kind", "named_in_results", "texture"]

FrostKind: TypeAlias = Literal["frost", "frost-procedural"]
_Floats: TypeAlias = NDArray[np.float64]
_Needles: TypeAlias = tuple[_Floats, ...]

_PUBLISHED = ("frost1.png", "frost2.png", "frost3.png", "frost4.jpg", "frost5.jpg")
TEXTURES = len(_PUBLISHED)


@dataclass(frozen=True, kw_only=True)
class _Ice:
    """How one texture is grown."""

    mean: tuple[float, float, float]  # brightness of red, green and blue, as on a published one
    std: tuple[float, float, float]  # their contrast
    crystals: int  # how many grow on the window
    length: float  # of the longest, in pixels
    branching: int  # how many generations of branches a crystal has
    haze: float  # contrast of the haze between crystals, as a share of theirs
    tint: float = 0.05  # how much the haze differs in colour


_HEIGHT, _WIDTH = 700, 1000
_GROWN = (
    _Ice(mean=(78, 149, 166), std=(27, 16.5, 15.5), crystals=1200, length=110, branching=1,
         haze=0.8, tint=0.5),
    _Ice(mean=(201, 205, 214), std=(21.5, 22, 22.5), crystals=9000, length=110, branching=0,
         haze=0.4),
    _Ice(mean=(201, 205, 214), std=(21.5, 22, 22.5), crystals=5000, length=160, branching=0,
         haze=0.4),
    _Ice(mean=(138, 153, 165), std=(28.5, 28.5, 30), crystals=5000, length=40, branching=1,
         haze=0.3),
    _Ice(mean=(112, 123, 135), std=(44.5, 43.5, 41.5), crystals=1800, length=110, branching=2,
         haze=0.5),
)  # fmt: skip


def frost_kind() -> FrostKind:
    """Which ice is in use: ``"frost"``, the published, or ``"frost-procedural"``, grown by rule."""
    return "frost" if _published_folder() else "frost-procedural"


@functools.cache
def texture(index: int, *, kind: FrostKind) -> Tensor:
    """One of the textures of a kind, uint8, 3 × height × width."""
    if kind == "frost":
        folder = _published_folder()
        assert folder is not None
        with Image.open(folder / _PUBLISHED[index]) as image:
            pixels = np.array(image.convert("RGB"))
    else:
        pixels = _grown(_GROWN[index], np.random.default_rng(index))
    return torch.from_numpy(pixels).permute(2, 0, 1).contiguous()


@functools.cache
def _published_folder() -> Path | None:
    # Found without being imported, which would bring in OpenCV and numba.
    spec = importlib.util.find_spec("imagecorruptions")
    for place in (spec.submodule_search_locations or ()) if spec else ():
        folder = Path(place) / "frost"
        if all((folder / name).is_file() for name in _PUBLISHED):
            return folder
    return None


def _grown(ice: _Ice, rng: np.random.Generator) -> NDArray[np.uint8]:
    """Crystals over haze, in the brightness and contrast that ``ice`` asks for."""
    crystals = _rendered(*_crystals(ice, rng))
    haze, fog, grain = _haze(1.4, rng), _haze(1.4, rng), _haze(0.2, rng)
    # Thicker where the haze is, as if both had crept in from the same side.
    grey = crystals * (1 + 0.3 * haze) / crystals.std() + ice.haze * haze + 0.3 * grain
    channels = [grey - ice.tint * share * fog for share in (1.0, 0.0, -1.0)]
    return np.stack(
        [_with_moments(c, m, s) for c, m, s in zip(channels, ice.mean, ice.std, strict=True)],
        axis=-1,
    )


def _haze(slope: float, rng: np.random.Generator) -> _Floats:
    """Clouds of unit variance whose amplitude falls with the frequency."""
    spectrum = np.fft.rfft2(rng.standard_normal((_HEIGHT, _WIDTH)))
    frequency = np.hypot(np.fft.fftfreq(_HEIGHT)[:, None], np.fft.rfftfreq(_WIDTH))
    # Clouds larger than a crop would be a matter of luck, not of texture.
    spectrum *= np.maximum(frequency, 1 / 250) ** -slope
    spectrum[0, 0] = 0
    clouds = np.fft.irfft2(spectrum, s=(_HEIGHT, _WIDTH))
    return np.asarray(clouds / clouds.std())


def _crystals(ice: _Ice, rng: np.random.Generator) -> _Needles:
    """Needles (row, column, angle, length, brightness): stems, and branches at 60° to them."""
    count = ice.crystals
    row, column = rng.random(count) * _HEIGHT, rng.random(count) * _WIDTH
    # Neighbours grow much the same way: crystals come in sheaves.
    lie = _haze(1.8, rng)[row.astype(int), column.astype(int)]
    angle = 2 * lie + 0.4 * rng.standard_normal(count)
    length = ice.length * (0.2 + 0.8 * rng.random(count) ** 3)
    bright = 0.5 + rng.standard_normal(count)  # most facets throw light back, some a shade
    needles: list[_Needles] = [(row, column, angle, length, bright)]
    for _ in range(ice.branching):
        needles.append(_branches(needles[-1], rng))
    return tuple(np.concatenate(parts) for parts in zip(*needles, strict=True))


def _branches(stems: _Needles, rng: np.random.Generator) -> _Needles:
    """Needles on needles, to either side."""
    spacing = 5.0
    counts = np.maximum(stems[3] / spacing, 1).astype(int)
    row, column, angle, length, bright = (np.repeat(part, counts) for part in stems)
    place = (np.arange(len(row)) - np.repeat(counts.cumsum() - counts, counts)) / np.repeat(
        counts, counts
    )
    side = rng.choice((-1.0, 1.0), len(row))
    return (
        row + place * length * np.sin(angle),
        column + place * length * np.cos(angle),
        angle + side * np.pi / 3,
        # Shorter towards the tip, as on a fern.
        0.4 * length * (1 - place) * (0.6 + 0.4 * rng.random(len(row))),
        0.8 * bright,
    )


def _rendered(
    row: _Floats, column: _Floats, angle: _Floats, length: _Floats, bright: _Floats
) -> _Floats:
    """The needles' light and shade, summed up where they cross, on a window without a rim."""
    points = np.maximum(length * 1.5, 2).astype(int)
    ends = points.cumsum()
    along = np.arange(ends[-1]) - np.repeat(ends - points, points)
    share = along / np.repeat(points, points)
    reach = share * np.repeat(length, points)
    y = np.repeat(row, points) + reach * np.repeat(np.sin(angle), points)
    x = np.repeat(column, points) + reach * np.repeat(np.cos(angle), points)
    light = np.repeat(bright, points) * (1 - 0.8 * share)
    place = y.astype(int) % _HEIGHT * _WIDTH + x.astype(int) % _WIDTH
    film = np.bincount(place, weights=light, minlength=_HEIGHT * _WIDTH).astype(np.float64)
    film = film.reshape(_HEIGHT, _WIDTH)
    blended = _softened(film, 0.5) + 0.5 * _softened(film, 2.0)
    # Crossing needles hide one another rather than add up.
    return np.asarray(np.tanh(blended / blended.std()))


def _softened(film: _Floats, sigma: float) -> _Floats:
    rows, columns = np.fft.fftfreq(_HEIGHT)[:, None], np.fft.rfftfreq(_WIDTH)
    falloff = np.exp(-2 * (np.pi * sigma) ** 2 * (rows**2 + columns**2))
    return np.asarray(np.fft.irfft2(np.fft.rfft2(film) * falloff, s=film.shape))


def _with_moments(channel: _Floats, mean: float, std: float) -> NDArray[np.uint8]:
    centred = (channel - channel.mean()) / channel.std()
    return np.asarray(np.clip(centred * std + mean, 0, 255), dtype=np.uint8)


_PLACES = 2**24  # on which a crop's offset is drawn, as a share of the room there is


@corruption(random=True, colour=True)
def frost(
    images: Tensor, draws: Draws, *, image_weight: float, frost_weight: float, overlay_scale: float
) -> Tensor:
    """Add a piece, cut at random, of one of five images of ice.

    The published images are used where the package ``imagecorruptions`` brings them, and five
    grown by rule otherwise: `frost_kind` returns which.
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
    levels = to_float(images).mul_(image_weight)
    return levels.add_(ice.view(3, -1, height, width).transpose(0, 1), alpha=frost_weight)


def named_in_results(name: str) -> str:
    """The name a corruption goes by in results: frost's tells whose textures it was made with."""
    return frost_kind() if name == "frost" else name


@dataclass(frozen=True)
class _Overlays:
    """All textures end to end, so that one look-up serves a batch."""

    values: Tensor  # 3 × all pixels, uint8
    start: Tensor  # where each texture begins
    pitch: Tensor  # how wide it is
    room_down: Tensor  # how many rows a crop can begin at
    room_right: Tensor  # how many columns


@functools.lru_cache(maxsize=64)
def _overlays(
    kind: FrostKind, scale: float, height: int, width: int, device: torch.device
) -> _Overlays:
    scales = []
    for index in range(TEXTURES):
        rows, columns = texture(index, kind=kind).shape[1:]
        scales.append(max(scale, height / rows, width / columns))
    values, sizes = _end_to_end(kind, tuple(scales), device)
    rows, columns = torch.tensor(sizes, device=device).T
    areas = rows * columns
    return _Overlays(
        values=values,
        start=areas.cumsum(0) - areas,
        pitch=columns,
        # The published draws leave out the last place; where it is the only one, it is taken.
        room_down=(rows - height).clamp(min=1),
        room_right=(columns - width).clamp(min=1),
    )


@functools.lru_cache(maxsize=8)
def _end_to_end(
    kind: FrostKind, scales: tuple[float, ...], device: torch.device
) -> tuple[Tensor, list[tuple[int, int]]]:
    """The textures' pixels, 3 × all of them, and their heights and widths."""
    textures = [resized(texture(i, kind=kind), scale) for i, scale in enumerate(scales)]
    values = torch.cat([each.flatten(1) for each in textures], dim=1)
    return values.to(device), [(each.shape[1], each.shape[2]) for each in textures]


def resized(image: Tensor, scale: float) -> Tensor:
    """A uint8 image 3×H×W, ``scale`` times as large, by linear interpolation.

    As OpenCV's ``resize`` has it: nothing is smoothed first, so that a fifth of the size keeps
    every fifth pixel.

    >>> resized(torch.arange(30, dtype=torch.uint8).view(3, 1, 10), 0.2)[0]
    tensor([[2, 7]], dtype=torch.uint8)
    """
    values = image.to(torch.float64)
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
