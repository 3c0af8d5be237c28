"""Frosted glass against the published loop."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import ndimage

from acclimate.data.corruptions import constants
from acclimate.data.corruptions.blur import glass_blur, taken_backwards
from acclimate.data.corruptions.draws import Draws
from photos import photo

SEVERITIES = range(1, 6)
SIZES = [(4, 4), (9, 9), (32, 32), (33, 47), (47, 33)]


def literal_blur(image: np.ndarray, sigma: float) -> np.ndarray:
    return ndimage.gaussian_filter(image / 255, (sigma, sigma, 0), mode="nearest", truncate=4)


def literal_glass(
    image: np.ndarray, draws: Draws, sigma: float, max_delta: int, iterations: int
) -> np.ndarray:
    """The published loop as numpy runs it: whatever that swap does to views counts."""
    height, width = image.shape[:2]
    x = np.uint8(literal_blur(image, sigma) * 255)
    for _ in range(iterations):
        drawn = iter(())
        if min(height, width) > 2 * max_delta:
            levels = draws.levels(height - 2 * max_delta, width - 2 * max_delta).flatten()
            # The first draw is the first pixel's in reading order, whom the loop comes to last.
            drawn = iter(((levels * (2 * max_delta) ** 2) >> 16).tolist()[::-1])
        for h in range(height - max_delta, max_delta, -1):
            for w in range(width - max_delta, max_delta, -1):
                dy, dx = (part - max_delta for part in divmod(next(drawn), 2 * max_delta))
                h_prime, w_prime = h + dy, w + dx
                x[h, w], x[h_prime, w_prime] = x[h_prime, w_prime], x[h, w]
    return np.uint8(np.clip(literal_blur(x, sigma), 0, 1) * 255)


@pytest.mark.parametrize("preset", ["cifar", "imagenet"])
@pytest.mark.parametrize("size", SIZES)
def test_follows_the_published_loop(size: tuple[int, int], preset: str) -> None:
    image = photo(*size)
    batch = torch.from_numpy(image).movedim(-1, 0)[None]
    for severity in SEVERITIES:
        settings = constants("glass_blur", severity, preset=preset)
        key = torch.tensor([1234 + severity])
        want = literal_glass(image, Draws(key), **settings)
        got = glass_blur(batch, Draws(key), **settings)[0].movedim(0, -1).numpy()
        assert np.abs(got.astype(int) - want.astype(int)).max() <= 1


@pytest.mark.parametrize("reach", [1, 2, 40])
def test_taking_in_turn_is_what_the_loop_does(reach: int) -> None:
    rng = np.random.default_rng(reach)
    count = 500
    pixels = np.arange(count)
    offsets = rng.integers(-reach, reach + 1, (3, count))
    offsets[0] = 1  # one chain through all the pixels
    offsets = np.clip(pixels + offsets, 0, count - 1) - pixels
    want = np.tile(pixels, (3, 1))
    for colours, moves in zip(want, offsets, strict=True):
        for pixel in reversed(pixels):
            colours[pixel] = colours[pixel + moves[pixel]]
    np.testing.assert_array_equal(taken_backwards(torch.from_numpy(offsets)).numpy(), want)


@pytest.mark.parametrize("max_delta", [1, 2, 3, 4])
def test_displacements_are_even_over_the_published_square(max_delta: int) -> None:
    # One round from an image of which every pixel is known by its colour; blur of none.
    y, x = torch.meshgrid(torch.arange(64), torch.arange(64), indexing="ij")
    places = torch.stack([y, x, torch.zeros_like(x)]).to(torch.uint8).expand(64, -1, -1, -1)
    keys = torch.arange(64) * 104729
    out = glass_blur(places, Draws(keys), sigma=0.05, max_delta=max_delta, iterations=1)
    moved = (out.int() - places)[:, :2]
    # Only the pixel at the bottom right, whose turn is first, is sure to find no other changed.
    first = moved[:, :, 64 - max_delta, 64 - max_delta]
    assert first.min() == -max_delta
    assert first.max() == max_delta - 1
    # The margins stay, one pixel more of them at the top and left.
    assert not moved[:, :, : max_delta + 1].any()
    assert not moved[..., : max_delta + 1].any()
    if max_delta > 1:
        assert not moved[:, :, 64 - max_delta + 1 :].any()
    assert moved[:, :, max_delta + 1].any()
    if max_delta == 1:  # no pixel takes what another has taken before: draws are seen as they are
        inner = moved[:, :, 2:, 2:]
        for axis in range(2):
            share = (inner[:, axis] == -1).float().mean()
            assert share == pytest.approx(0.5, abs=4 * 0.5 / inner[:, axis].numel() ** 0.5)
