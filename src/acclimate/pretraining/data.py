"""What to train on, all of it on the device as bytes, and what to score on."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from acclimate.data import (
    ImageSource,
    Preprocessing,
    ShiftedSource,
    list_datasets,
    open_dataset,
)
from acclimate.data.base import digest
from acclimate.data.shifted import made_shift
from acclimate.errors import AcclimateError

__all__ = ["Case", "Examples", "check_same_classes", "load_examples", "open_case"]

_AT_ONCE = 4096


@dataclass(frozen=True)
class Examples:
    """Labelled images: uint8 N×C×H×W and class numbers, on one device.

    Small data sets fit on the device whole (CIFAR-10 takes 150 MB), so that batches are cut and
    augmented there and nothing waits for the host.
    """

    images: Tensor
    labels: Tensor
    preprocessing: Preprocessing

    def __len__(self) -> int:
        return len(self.images)


def load_examples(source: ImageSource, device: torch.device | str = "cpu") -> Examples:
    """Read a whole source onto a device.

    >>> from acclimate.data import open_images
    >>> images = torch.zeros(6, 3, 8, 8, dtype=torch.uint8)
    >>> source = open_images(images, preprocessing=Preprocessing(size=(8, 8)), labels=[0] * 6)
    >>> len(load_examples(source))
    6
    """
    images, preprocessing = _read(source, torch.arange(len(source)), device)
    if source.labels is None or bool((source.labels < 0).any()):
        raise AcclimateError(
            "expected a label for every image to train on; put images into folders named by "
            "class, or give labels"
        )
    return Examples(images, source.labels.to(device), preprocessing)


def _read(
    source: ImageSource, indices: Tensor, device: torch.device | str
) -> tuple[Tensor, Preprocessing]:
    """Images of a source, uint8 N×C×H×W on a device, and how a model is fed with them."""
    if source.preprocessing is None:
        raise AcclimateError("expected uint8 images to train on, got float model input")
    parts = [source.read(part).to(device) for part in indices.split(_AT_ONCE)]
    return torch.cat(parts), source.preprocessing


@dataclass(frozen=True, kw_only=True)
class Case:
    """The data of one training: ``source`` is learnt from with its labels, ``targets`` without.

    With several targets (shifts of one) the n-th image is seen through the n-th, round and round.
    Test images are ``scored`` by domain: "source", "target" or "target cifar/fog:3".
    """

    source: ImageSource
    targets: Sequence[ImageSource] = ()
    scored: Mapping[str, ImageSource] = field(default_factory=dict)

    def target_images(self, device: torch.device | str) -> Tensor | None:
        """All target images, uint8 on the device; None without a target."""
        turns = len(self.targets)
        read = [
            _read(each, torch.arange(turn, len(each), turns), device)[0]
            for turn, each in enumerate(self.targets)
        ]
        return torch.cat(read) if read else None

    def identity(self) -> dict[str, Any]:
        """What identifies this data."""
        targets = [each.fingerprint() for each in self.targets]
        return {
            "data": self.source.fingerprint(),
            "target": digest(each.encode() for each in targets) if targets else None,
        }


def open_case(
    dataset: str,
    root: str | Path,
    *,
    target: str | None = None,
    target_root: str | Path | None = None,
    target_shifts: Sequence[str] = (),
    preprocessing: Preprocessing | None = None,
    device: torch.device | str = "cpu",
    learnt_from: bool = True,
    incomplete: bool = False,
    progress: bool = True,
) -> Case:
    """Open the train and test splits of a source and, by name, of a target.

    The target's labels are used for scoring alone; it may be seen through corruptions: CIFAR-10 to
    CIFAR-10-C is ``target="cifar10", target_shifts=["cifar/fog:3"]``, made on ``device``. With
    ``learnt_from=False`` it is only scored, and its train split stays unopened; ``incomplete``
    takes data sets with gaps.
    """
    if target is None and target_shifts:
        raise AcclimateError("a shift of the target needs a target (--target)")
    shifts = [made_shift(each) for each in target_shifts]

    opened = functools.partial(
        open_dataset, preprocessing=preprocessing, incomplete=incomplete, progress=progress
    )
    source = opened(dataset, root, split="train")
    scored = {"source": opened(dataset, root, split="test")}
    if target is None:
        return Case(source=source, scored=scored)
    place = root if target_root is None else target_root
    test = opened(target, place, split="test")
    check_same_classes(dataset, source, target, test)
    targets = [opened(target, place, split="train")] if learnt_from else []
    if shifts:
        targets = [
            ShiftedSource(each, shift, cache=0, device=device)
            for each in targets
            for shift in shifts
        ]
    for shift in shifts:
        scored[f"target {shift}"] = ShiftedSource(test, shift, device=device)
    if not shifts:
        scored["target"] = test
    return Case(source=source, targets=targets, scored=scored)


def check_same_classes(dataset: str, source: ImageSource, target: str, other: ImageSource) -> None:
    """Refuse a target whose classes are known to be others, or in another order.

    Data sets that are scored through a map of classes are left alone: the map decides what fits.
    """
    if source.scoring is not None or other.scoring is not None:
        return
    ours, theirs = tuple(source.class_names or ()), tuple(other.class_names or ())
    if not ours or not theirs or ours == theirs:
        return
    difference = f"{len(ours)} classes and {len(theirs)}"
    for index, (one, another) in enumerate(zip(ours, theirs, strict=False)):
        if one != another:
            difference = f"class {index} is {one!r} in {dataset} and {another!r} in {target}"
            break
    # Data sets that were made to fit have both names, as stl10-cifar10 has.
    known = {record.name for record in list_datasets()}
    advice = "choose a target of the same classes"
    if (fitting := f"{target}-{dataset}") in known:
        advice = f"use --target {fitting}, which has them"
    elif (fitting := f"{dataset}-{target}") in known:
        advice = f"use --dataset {fitting}, which has those of {target}"
    raise AcclimateError(
        f"expected a target with the classes of {dataset}, got {target} ({difference}); {advice}"
    )
