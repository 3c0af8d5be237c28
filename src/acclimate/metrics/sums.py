"""Sums over images, batch by batch, and what of logits and labels can be summed at all."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import ClassVar, TypeVar

import torch
from torch import Tensor

from acclimate.data.labels import Scoring
from acclimate.errors import AcclimateError

__all__ = ["Sums", "check_shapes", "known_labels", "refuse", "zero"]

_Same = TypeVar("_Same", bound="Sums")


def zero(dtype: torch.dtype = torch.int64) -> Tensor:
    """Nothing summed up yet."""
    return torch.zeros((), dtype=dtype)


@dataclass(kw_only=True)
class Sums:
    """Fields that are summed up over batches; sums over disjoint images add up.

    They stay on the device they were made on, where nothing waits for the host.
    """

    unsummed: ClassVar[tuple[str, ...]] = ()
    images: int = 0

    def move(self, device: torch.device) -> None:
        """Bring all sums to a device."""
        for name, value in vars(self).items():
            if isinstance(value, Tensor) and value.device != device:
                setattr(self, name, value.to(device))

    def merge(self: _Same, other: _Same) -> None:
        """Add the sums of other images (another process, another part of the set)."""
        for name, value in vars(other).items():
            if name not in self.unsummed:
                mine = getattr(self, name)
                theirs = value.to(mine.device) if isinstance(value, Tensor) else value
                setattr(self, name, mine + theirs)

    def __add__(self: _Same, other: _Same) -> _Same:
        total = copy.copy(self)
        total.merge(other)
        return total


def check_shapes(logits: Tensor, labels: Tensor) -> None:
    """Refuse what is not N × classes logits with N whole-number labels; costs no wait."""
    if logits.ndim != 2 or logits.shape[1] == 0 or not logits.is_floating_point():
        raise AcclimateError(
            "expected logits as floating-point numbers of shape images × classes, got "
            f"{logits.dtype} of shape {tuple(logits.shape)}"
        )
    if labels.is_floating_point() or labels.is_complex() or labels.dtype == torch.bool:
        raise AcclimateError(
            f"expected labels as whole numbers (class indices), got {labels.dtype}"
        )
    if labels.shape != (len(logits),):
        raise AcclimateError(
            f"expected a label for each of the {len(logits)} images, got labels of shape "
            f"{tuple(labels.shape)}; use -1 where a label is not known"
        )


def known_labels(labels: Tensor, *, classes: int, scoring: Scoring | None) -> tuple[Tensor, Tensor]:
    """Which labels count, and how many are no label at all (neither -1 nor a class)."""
    last: Tensor | int = classes - 1
    if scoring is not None and scoring.label_of is not None:
        last = scoring.label_of.to(labels.device).max()
    known = (labels >= 0) & (labels <= last)
    if scoring is not None and scoring.keep is not None and scoring.label_of is None:
        known &= torch.isin(labels, scoring.keep.to(labels.device))
    return known, ((labels != -1) & ~known).sum()


def refuse(*, images: int, labelled: Tensor, outside: Tensor, nan: Tensor) -> None:
    """Refuse sums of which no figure can be made."""
    if images == 0:
        raise AcclimateError("expected predictions to score, got none; is the data set empty?")
    if outside:
        raise AcclimateError(
            "expected labels from 0 up to the last class, or -1 for unknown, got "
            f"{int(outside):,} others among {images:,}; are these the labels of another data set, "
            "or counted from 1?"
        )
    if nan:
        raise AcclimateError(
            f"expected numbers as logits, got NaN for {int(nan):,} of {images:,} images; the model "
            "has diverged: use the guard, or a smaller learning rate"
        )
    if not labelled:
        raise AcclimateError(
            f"expected at least one known label, got {images:,} images with label -1; an error "
            "needs labels (what needs none is in acclimate.metrics.Tally)"
        )
