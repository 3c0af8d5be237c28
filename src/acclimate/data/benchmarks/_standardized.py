"""Pictures that are standardised one by one, each by its own mean and deviation."""

from __future__ import annotations

import torch
from torch import Tensor

from acclimate.data.base import ImageSource, digest

__all__ = ["StandardizedSource", "standardize"]


def standardize(images: Tensor) -> Tensor:
    """Centre and scale each channel of each uint8 picture by its own mean and deviation.

    A channel of one value only is centred and not scaled.

    >>> standardize(torch.tensor([[[[0, 255]]], [[[7, 7]]]], dtype=torch.uint8)).flatten()
    tensor([-0.7071,  0.7071,  0.0000,  0.0000])
    """
    pixels = images.to(torch.float32) / 255
    std, mean = torch.std_mean(pixels, dim=(2, 3), keepdim=True)
    return (pixels - mean) / torch.where(std == 0, 1.0, std)


class StandardizedSource(ImageSource):
    """Another source's uint8 pictures, handed out as model input."""

    def __init__(self, inner: ImageSource) -> None:
        self._inner = inner
        super().__init__(
            names=inner.names,
            labels=inner.labels,
            class_names=inner.class_names,
            preprocessing=None,
            skipped=inner.skipped,
            scoring=inner.scoring,
        )

    def read(self, indices: Tensor) -> Tensor:
        """The pictures of these numbers, float32 N×C×H×W."""
        return standardize(self._inner.read(indices))

    def fingerprint(self) -> str:
        """The other source's digest, marked: the same pictures are another input here."""
        return digest([self._inner.fingerprint().encode(), b"standardized"])
