"""Training pictures: all of them on the device, as bytes."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from acclimate.data import ImageSource, Preprocessing
from acclimate.errors import AcclimateError

__all__ = ["Examples", "load_examples", "read_pictures"]

_AT_ONCE = 4096


@dataclass(frozen=True)
class Examples:
    """Labelled pictures: uint8 N×C×H×W and class numbers, on one device.

    Small data sets fit on the device whole (CIFAR-10 takes 150 MB), so that batches are cut and
    augmented there and nothing waits for the host.
    """

    images: Tensor
    labels: Tensor
    preprocessing: Preprocessing

    def __len__(self) -> int:
        return len(self.images)

    @property
    def classes(self) -> int:
        """One more than the highest label."""
        return int(self.labels.max()) + 1


def load_examples(source: ImageSource, device: torch.device | str = "cpu") -> Examples:
    """Read a whole source onto a device.

    >>> from acclimate.data import open_images
    >>> pictures = torch.zeros(6, 3, 8, 8, dtype=torch.uint8)
    >>> source = open_images(pictures, preprocessing=Preprocessing(size=(8, 8)), labels=[0] * 6)
    >>> len(load_examples(source))
    6
    """
    if source.preprocessing is None:
        raise AcclimateError("expected uint8 pictures to train on, got float model input")
    if source.labels is None or bool((source.labels < 0).any()):
        raise AcclimateError(
            "expected a label for every picture to train on; put pictures into folders named by "
            "class, or give labels"
        )
    return Examples(read_pictures(source, device), source.labels.to(device), source.preprocessing)


def read_pictures(
    source: ImageSource, device: torch.device | str, *, numbers: Tensor | None = None
) -> Tensor:
    """Pictures of a source, all or those of some numbers, uint8 N×C×H×W on a device."""
    if source.preprocessing is None:
        raise AcclimateError("expected uint8 pictures to train on, got float model input")
    wanted = torch.arange(len(source)) if numbers is None else numbers
    return torch.cat([source.read(part).to(device) for part in wanted.split(_AT_ONCE)])
