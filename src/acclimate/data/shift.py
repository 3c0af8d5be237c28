"""A corruption as one word, ``imagenet/fog:3``, and a clean source seen through it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import cast

import numpy as np
import torch
from torch import Tensor

from acclimate.data.base import ImageSource, digest
from acclimate.data.corruptions import (
    PRESETS,
    Preset,
    constants,
    corrupt_indexed,
    named_in_results,
)
from acclimate.data.corruptions.corrupt import SMALLEST_SIDE
from acclimate.data.corruptions.digital import stored_as_jpeg
from acclimate.data.memory import cache_budget
from acclimate.data.preprocessing import Preprocessing
from acclimate.errors import AcclimateError

__all__ = ["JPEG_QUALITY", "Shift", "ShiftedSource", "check_sides"]

JPEG_QUALITY = 85
"""What ImageNet-C was stored with; CIFAR-10-C is stored raw."""

_FORM = re.compile(r"(?P<preset>[^/:@]+)/(?P<name>[^/:@]+):(?P<severity>\d+)(@(?P<seed>\d+))?")


@dataclass(frozen=True, kw_only=True)
class Shift:
    """A corruption of a data set: whose constants, which one, how severe, which draw of it.

    >>> Shift.parse("imagenet/fog:3")
    Shift(preset='imagenet', name='fog', severity=3, seed=0)
    >>> str(Shift.parse("cifar/snow:5@7"))
    'cifar/snow:5@7'
    """

    preset: Preset
    name: str
    severity: int
    seed: int = 0

    def __post_init__(self) -> None:
        constants(self.name, self.severity, preset=self.preset)  # raises for what there is not
        if self.seed < 0:
            raise AcclimateError(f"expected a seed >= 0, got {self.seed}")

    @classmethod
    def parse(cls, text: str) -> Shift:
        """Read PRESET/NAME:SEVERITY, with @SEED for another draw than the first."""
        match = _FORM.fullmatch(text.strip())
        if match is None:
            raise AcclimateError(
                f"expected a shift as PRESET/NAME:SEVERITY, such as imagenet/fog:3 or "
                f"cifar/snow:5, got {text!r}; presets: {', '.join(PRESETS)}"
            )
        # What results call it can be asked for by that name, if it still is that.
        name = "frost" if match["name"] == named_in_results("frost") else match["name"]
        return cls(
            preset=cast(Preset, match["preset"]),
            name=name,
            severity=int(match["severity"]),
            seed=int(match["seed"] or 0),
        )

    def __str__(self) -> str:
        seed = f"@{self.seed}" if self.seed else ""
        return f"{self.preset}/{self.kind}:{self.severity}{seed}"

    @property
    def kind(self) -> str:
        """The name that results carry: frost tells whose textures it was made with."""
        return named_in_results(self.name)

    def apply(self, images: Tensor, numbers: Tensor) -> Tensor:
        """uint8 pictures N×C×H×W of these numbers, as they would be read from a stored data set."""
        corrupted = corrupt_indexed(
            images, numbers, self.name, self.severity, preset=self.preset, seed=self.seed
        )
        if self.preset == "imagenet":
            return stored_as_jpeg(corrupted, quality=JPEG_QUALITY).to(images.device)
        return corrupted


def check_sides(preprocessing: Preprocessing) -> None:
    """Refuse pictures that are too small to corrupt."""
    if min(preprocessing.size) < SMALLEST_SIDE:
        height, width = preprocessing.size
        raise AcclimateError(
            f"expected pictures with sides of at least {SMALLEST_SIDE} px to corrupt, got "
            f"{height}×{width}"
        )


class ShiftedSource(ImageSource):
    """The pictures of another source, corrupted as they are read and kept where they fit.

    A picture's draw goes by its number in the source, so that it is the same in every order, every
    epoch, and in the data set that ``acclimate corrupt`` writes of pictures prepared alike.

    Args:
        source: clean pictures, uint8 and fitted to the model's size.
        shift: what happens to them.
        cache: bytes of corrupted pictures to keep; None is a third of what is available.
        device: where they are corrupted.
    """

    def __init__(
        self,
        source: ImageSource,
        shift: Shift,
        *,
        cache: int | None = None,
        device: torch.device | str = "cpu",
    ) -> None:
        if source.preprocessing is None:
            raise AcclimateError(
                f"expected uint8 pictures to corrupt with {shift}, got float model input; give the "
                "pictures before they are scaled"
            )
        check_sides(source.preprocessing)
        super().__init__(
            names=source.names,
            labels=source.labels,
            class_names=source.class_names,
            preprocessing=source.preprocessing,
            skipped=source.skipped,
            scoring=source.scoring,
        )
        self._source, self.shift, self._device = source, shift, torch.device(device)
        shape = (len(source), *source.preprocessing.shape)
        fits = int(np.prod(shape)) <= cache_budget(cache)
        self._kept = torch.empty(shape, dtype=torch.uint8) if fits else None
        self._known = torch.zeros(len(source), dtype=torch.bool)

    def read(self, indices: Tensor) -> Tensor:
        """The corrupted pictures of these numbers, N×C×H×W uint8 on the CPU."""
        if self._kept is None:
            return self._corrupted(indices)
        missing = indices[~self._known[indices]].unique()
        if len(missing):
            self._kept[missing] = self._corrupted(missing)
            self._known[missing] = True
        return self._kept[indices]

    def _corrupted(self, indices: Tensor) -> Tensor:
        clean = self._source.read(indices).to(self._device)
        return self.shift.apply(clean, indices).cpu()

    def fingerprint(self) -> str:
        """A digest of the clean pictures and of what happens to them."""
        assert self.preprocessing is not None
        what = (self._source.fingerprint(), str(self.shift), str(self.preprocessing.shape))
        return digest(part.encode() for part in what)
