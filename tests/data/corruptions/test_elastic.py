"""The elastic transform against a slow, literal reading of the published definition."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import ndimage

from acclimate.data.corruptions import constants, corrupt
from acclimate.data.corruptions.digital import elastic_transform
from acclimate.data.corruptions.draws import Draws
from comparing_draws import assert_same_mean, radial_spectra
from photos import photo

SEVERITIES = range(1, 6)
SIZES = [(4, 4), (32, 32), (33, 47), (47, 33)]


def literal_points(height: int, width: int) -> np.ndarray:
    middle = np.array([height, width]) // 2
    arm = min(height, width) // 3
    return np.array([middle + arm, [middle[0] + arm, middle[1] - arm], middle - arm], float)


def literal_affine(image: np.ndarray, moves: np.ndarray) -> np.ndarray:
    """Bilinear, the map from moved points to points solved for as equations."""
    height, width = image.shape[:2]
    points = literal_points(height, width)
    back = np.linalg.solve(np.column_stack([points + moves, np.ones(3)]), points)
    y, x = np.mgrid[:height, :width]
    from_x, from_y = np.moveaxis(np.stack([x, y, np.ones_like(x)], axis=-1) @ back, -1, 0)
    return literal_samples(image, from_y, from_x, mode="mirror")


def literal_samples(image: np.ndarray, y: np.ndarray, x: np.ndarray, mode: str) -> np.ndarray:
    channels = np.moveaxis(image, -1, 0)
    return np.stack([ndimage.map_coordinates(c, [y, x], order=1, mode=mode) for c in channels], -1)


def literal_rubber(image: np.ndarray, noise: np.ndarray, alpha: float, sigma: float) -> np.ndarray:
    dx, dy = (
        np.float32(ndimage.gaussian_filter(n, sigma, mode="reflect", truncate=3) * alpha)
        for n in noise
    )
    y, x = np.mgrid[: image.shape[0], : image.shape[1]]
    return literal_samples(image, y + dy, x + dx, mode="reflect")


def literal_elastic(
    image: np.ndarray, draws: Draws, alpha: float, sigma: float, affine: float
) -> np.ndarray:
    moves = draws.uniform(3, 2)[0].numpy().astype(float) * 2 - 1
    noise = draws.uniform(2, *image.shape[:2])[0].numpy().astype(float) * 2 - 1
    stretched = literal_affine(image / 255, moves * affine)
    return np.clip(literal_rubber(stretched, noise, alpha, sigma), 0, 1) * 255


@pytest.mark.parametrize(
    ("size", "preset"),
    [*((size, "cifar") for size in SIZES), ((33, 47), "imagenet"), ((224, 224), "imagenet")],
)
def test_follows_the_definition(size: tuple[int, int], preset: str) -> None:
    image = photo(*size)
    batch = torch.from_numpy(image).movedim(-1, 0)[None]
    for severity in SEVERITIES:
        settings = constants("elastic_transform", severity, preset=preset)
        key = torch.tensor([4321 + severity])
        want = literal_elastic(image, Draws(key), **settings)
        got = elastic_transform(batch, Draws(key), **settings)[0].movedim(0, -1).numpy()
        np.testing.assert_allclose(got, want, atol=0.1)


def test_an_affine_map_alone_moves_the_three_points() -> None:
    # Without a field: the pixel that a point is pulled to has the colour of the point.
    y, x = torch.meshgrid(torch.arange(64), torch.arange(64), indexing="ij")
    ramp = torch.stack([x, y, x + y]).to(torch.uint8)[None]
    key = torch.tensor([99])
    moves = (Draws(key).uniform(3, 2)[0] * 2 - 1) * 2.56
    out = elastic_transform(ramp, Draws(key), alpha=0.0, sigma=0.0, affine=2.56)[0].numpy()
    points = literal_points(64, 64)
    for point, move in zip(points, moves.numpy(), strict=True):
        at_x, at_y = point + move
        seen = [ndimage.map_coordinates(c, [[at_y], [at_x]], order=1)[0] for c in out[:2]]
        np.testing.assert_allclose(seen, point, atol=1e-3)


@pytest.mark.parametrize("preset", ["cifar", "imagenet"])
@pytest.mark.parametrize("size", SIZES)
def test_only_colours_of_the_image(size: tuple[int, int], preset: str) -> None:
    # However far a small image is torn: it is reflected, nothing comes from outside.
    batch = np.stack([photo(*size).clip(60, 180)] * 50)
    for severity in SEVERITIES:
        out = corrupt(batch, "elastic_transform", severity, preset=preset)
        assert out.min() >= 60
        assert out.max() <= 180


# --- the published calls themselves, where OpenCV is installed ------------------------------------


def published_elastic(
    image: np.ndarray, rng: np.random.Generator, alpha: float, sigma: float, affine: float
) -> np.ndarray:
    cv2 = pytest.importorskip("cv2")
    points = np.float32(literal_points(*image.shape[:2]))
    moved = points + rng.uniform(-affine, affine, points.shape).astype(np.float32)
    stretched = cv2.warpAffine(
        np.float32(image / 255),
        cv2.getAffineTransform(points, moved),
        image.shape[1::-1],
        borderMode=cv2.BORDER_REFLECT_101,
    )
    noise = rng.uniform(-1, 1, (2, *image.shape[:2]))
    return np.uint8(np.clip(literal_rubber(stretched, noise, alpha, sigma), 0, 1) * 255)


@pytest.mark.parametrize("severity", SEVERITIES)
@pytest.mark.parametrize(("preset", "side", "count"), [("cifar", 32, 500), ("imagenet", 224, 60)])
def test_distributed_as_published(preset: str, side: int, count: int, severity: int) -> None:
    settings = constants("elastic_transform", severity, preset=preset)
    image = photo(side, side)
    rng = np.random.default_rng(severity)
    theirs = np.stack([published_elastic(image, rng, **settings) for _ in range(count)])
    ours = corrupt(np.stack([image] * count), "elastic_transform", severity, preset=preset)
    ours, theirs = (x - image.astype(float) for x in (ours, theirs))
    axes = (1, 2, 3)
    assert_same_mean(ours.mean(axis=axes), theirs.mean(axis=axes))
    assert_same_mean((ours**2).mean(axis=axes), (theirs**2).mean(axis=axes))
    assert_same_mean(radial_spectra(ours), radial_spectra(theirs))
