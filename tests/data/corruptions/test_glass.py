"""Frosted glass against the published loop."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import ndimage

from acclimate.data.corruptions import constants, corrupt
from acclimate.data.corruptions.blur import glass_blur, taken_backwards
from acclimate.data.corruptions.draws import Draws
from comparing_draws import assert_same_mean, radial_spectra
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


@pytest.mark.parametrize("size", SIZES)
def test_the_same_image_whatever_the_batch(size: tuple[int, int]) -> None:
    images = np.stack([photo(*size), photo(*size)[::-1], photo(*size)[:, ::-1]])
    for channels in (3, 1):
        batch = np.concatenate([images[..., :channels]] * 30)
        whole = corrupt(batch, "glass_blur", 3, preset="imagenet", seed=5)
        for start, stop in ((0, 1), (1, 4), (87, 90)):
            part = corrupt(
                batch[start:stop], "glass_blur", 3, preset="imagenet", seed=5, start=start
            )
            np.testing.assert_array_equal(part, whole[start:stop])
    assert corrupt(images[:0], "glass_blur", 3, preset="imagenet").shape == images[:0].shape


# --- another implementation, where it is installed -----------------------------------------------


@pytest.mark.parametrize("severity", SEVERITIES)
def test_distributed_as_with_imagecorruptions(severity: int) -> None:
    other = pytest.importorskip("imagecorruptions.corruptions")
    count = 48
    theirs = np.stack([other.glass_blur(photo(), severity, seed=i) for i in range(count)])
    ours = corrupt(np.stack([photo()] * count), "glass_blur", severity, preset="imagenet")
    ours, theirs = (x.astype(np.uint8) - photo().astype(float) for x in (ours, theirs))
    axes = (1, 2, 3)
    assert_same_mean(ours.mean(axis=axes), theirs.mean(axis=axes))
    assert_same_mean((ours**2).mean(axis=axes), (theirs**2).mean(axis=axes))
    assert_same_mean(radial_spectra(ours), radial_spectra(theirs))
    # The part that differs from draw to draw, by itself.
    ours, theirs = ours - ours.mean(axis=0), theirs - theirs.mean(axis=0)
    assert_same_mean(radial_spectra(ours), radial_spectra(theirs))
