"""A clean source seen through a corruption that is made on the fly."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from acclimate.data.base import ImageSource, digest
from acclimate.data.corruptions import constants, corrupt_indexed, named_in_results
from acclimate.data.corruptions.corrupt import SMALLEST_SIDE
from acclimate.data.corruptions.digital import stored_as_jpeg
from acclimate.data.memory import Kept
from acclimate.data.preprocessing import Preprocessing
from acclimate.data.shift import PRESETS, Preset, Shift
from acclimate.errors import AcclimateError

__all__ = ["JPEG_QUALITY", "ShiftedSource", "apply_shift", "check_sides", "made_shift"]

JPEG_QUALITY = 85
"""What ImageNet-C was stored with; CIFAR-10-C is stored raw."""


def made_shift(shift: str | Shift) -> Shift:
    """A corruption that can be made on the fly; refuses one that has no constants."""
    found = Shift.parse(shift) if isinstance(shift, str) else shift
    if found.preset is None or found.severity is None:
        raise AcclimateError(
            "expected a shift as PRESET/NAME:SEVERITY, such as imagenet/fog:3 or cifar/snow:5, "
            f"got {str(shift)!r}; presets: {', '.join(PRESETS)}"
        )
    # What results call it can be asked for by that name, if it still is that: frost's tells whose
    # textures it is made with.
    name = "frost" if found.name == named_in_results("frost") else found.name
    # Raises for an unknown name.
    constants(name, found.severity, preset=cast(Preset, found.preset))
    return replace(found, name=named_in_results(name))


def apply_shift(shift: Shift, images: Tensor, indices: Tensor) -> Tensor:
    """uint8 images N×C×H×W of these indices, as they would be read from a stored data set."""
    assert shift.severity is not None
    preset = cast(Preset, shift.preset)
    corrupted = corrupt_indexed(
        images, indices, shift.plain, shift.severity, preset=preset, seed=shift.seed
    )
    if preset == "imagenet":
        return stored_as_jpeg(corrupted, quality=JPEG_QUALITY).to(images.device)
    return corrupted


def check_sides(preprocessing: Preprocessing) -> None:
    """Refuse images that are too small to corrupt."""
    if min(preprocessing.size) < SMALLEST_SIDE:
        height, width = preprocessing.size
        raise AcclimateError(
            f"expected images with sides of at least {SMALLEST_SIDE} px to corrupt, got "
            f"{height}×{width}"
        )


class ShiftedSource(ImageSource):
    """The images of another source, corrupted as they are read and kept where they fit.

    An image's draw goes by its index in the source, so that it is the same in every order, every
    epoch, and in the data set that ``acclimate corrupt`` writes of images prepared alike.

    Args:
        source: clean images, uint8 and fitted to the model's size.
        shift: what happens to them.
        cache: bytes of corrupted images to keep; None is a third of what is available.
        device: where they are corrupted.
    """

    def __init__(
        self,
        source: ImageSource,
        shift: str | Shift,
        *,
        cache: int | None = None,
        device: torch.device | str = "cpu",
    ) -> None:
        shift = made_shift(shift)
        if source.preprocessing is None:
            raise AcclimateError(
                f"expected uint8 images to corrupt with {shift}, got float model input; give the "
                "images before they are scaled"
            )
        check_sides(source.preprocessing)
        super().__init__(**source.facts())
        self._source, self.shift, self._device = source, shift, torch.device(device)
        self._kept = Kept((len(source), *source.preprocessing.shape), cache=cache)

    def read(self, indices: Tensor) -> Tensor:
        """The corrupted images of these indices, N×C×H×W uint8 on the CPU."""
        return torch.from_numpy(self._kept.read(indices.numpy(), self._corrupted))

    def _corrupted(self, rows: NDArray[np.int64]) -> NDArray[np.uint8]:
        indices = torch.from_numpy(rows)
        clean = self._source.read(indices).to(self._device)
        corrupted: NDArray[np.uint8] = apply_shift(self.shift, clean, indices).cpu().numpy()
        return corrupted

    def fingerprint(self) -> str:
        """A digest of the clean images and of what happens to them."""
        assert self.preprocessing is not None
        what = (self._source.fingerprint(), str(self.shift), str(self.preprocessing.shape))
        return digest(part.encode() for part in what)
