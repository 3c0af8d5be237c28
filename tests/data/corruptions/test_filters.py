"""Filters against SciPy, at every edge and far beyond the image."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import ndimage

from acclimate.data.corruptions.filters import convolve, gaussian, pad

SCIPY_EDGE = {"repeat": "nearest", "mirror": "mirror", "reflect": "reflect"}
EDGES = sorted(SCIPY_EDGE)


def random_images(height: int, width: int) -> np.ndarray:
    return np.random.default_rng(0).uniform(0, 255, (2, 3, height, width)).astype(np.float32)


@pytest.mark.parametrize("edge", EDGES)
@pytest.mark.parametrize("sigma", [0.4, 2.0, 30.0])
@pytest.mark.parametrize("truncate", [3.0, 4.0])
def test_gaussian(edge, sigma, truncate):
    images = random_images(17, 30)
    want = ndimage.gaussian_filter(
        images.astype(float),
        (0, 0, sigma, sigma),
        mode=SCIPY_EDGE[edge],
        truncate=truncate,
    )
    got = gaussian(torch.from_numpy(images), sigma, edge=edge, truncate=truncate)
    np.testing.assert_allclose(got.numpy(), want, atol=1e-3)


def test_no_blur_is_no_blur():
    images = torch.from_numpy(random_images(5, 4))
    assert gaussian(images, 0, edge="repeat") is images


@pytest.mark.parametrize("edge", EDGES)
@pytest.mark.parametrize("size", [(40, 31), (4, 5)])
def test_convolve_with_one_kernel_and_with_one_each(edge, size):
    images = random_images(*size)
    kernels = np.random.default_rng(1).uniform(size=(2, 9, 13)).astype(np.float32)
    want = np.stack(
        [
            [ndimage.correlate(c.astype(float), k, mode=SCIPY_EDGE[edge]) for c in image]
            for image, k in zip(images, kernels, strict=True)
        ]
    )
    tensor = torch.from_numpy(images)
    each = convolve(tensor, torch.from_numpy(kernels), edge=edge).numpy()
    np.testing.assert_allclose(each, want, rtol=1e-5, atol=1e-2)
    one = convolve(tensor, torch.from_numpy(kernels[0]), edge=edge).numpy()
    np.testing.assert_allclose(one[0], want[0], rtol=1e-5, atol=1e-2)


@pytest.mark.parametrize("edge", EDGES)
@pytest.mark.parametrize("reach", [(2, 3), (9, 11)])
def test_pad(edge, reach):
    images = random_images(4, 5)
    mode = {"repeat": "edge", "mirror": "reflect", "reflect": "symmetric"}[edge]
    want = np.pad(images, ((0, 0), (0, 0), (reach[0],) * 2, (reach[1],) * 2), mode=mode)
    np.testing.assert_array_equal(pad(torch.from_numpy(images), *reach, edge=edge), want)
