"""What to train on and what to score on: a source with labels, maybe a target without."""

from __future__ import annotations

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
from acclimate.pretraining.examples import read_pictures

__all__ = ["Case", "check_same_classes", "open_case"]


def check_same_classes(dataset: str, source: ImageSource, target: str, other: ImageSource) -> None:
    """Refuse a target whose classes are known to be others, or in another order.

    Data sets that are scored through a map of classes are left alone: the map says what fits.
    """
    if source.scoring is not None or other.scoring is not None:
        return
    ours, theirs = tuple(source.class_names or ()), tuple(other.class_names or ())
    if not ours or not theirs or ours == theirs:
        return
    pairs = zip(ours, theirs, strict=False)
    number = next((n for n, (a, b) in enumerate(pairs) if a != b), None)
    apart = (
        f"{len(ours)} classes and {len(theirs)}"
        if number is None
        else f"class {number} is {ours[number]!r} in {dataset} and {theirs[number]!r} in {target}"
    )
    raise AcclimateError(
        f"expected a target with the classes of {dataset}, got {target} ({apart}); "
        f"{_advice(dataset, target)}"
    )


def _advice(dataset: str, target: str) -> str:
    """A data set made to fit, by its name, ``stl10-cifar10``; else what is to be done."""
    known = {record.name for record in list_datasets()}
    if (fitting := f"{target}-{dataset}") in known:
        return f"use --target {fitting}, which has them"
    if (fitting := f"{dataset}-{target}") in known:
        return f"use --dataset {fitting}, which has those of {target}"
    return "choose a target of the same classes"


@dataclass(frozen=True, kw_only=True)
class Case:
    """The data of one training.

    Attributes:
        source: labelled pictures to train on.
        targets: pictures to learn from without their labels; with several shifts the n-th picture
            is seen through the n-th of them, round and round.
        scored: test pictures by domain: "source", "target" or "target cifar/fog:3".
    """

    source: ImageSource
    targets: Sequence[ImageSource] = ()
    scored: Mapping[str, ImageSource] = field(default_factory=dict)

    def target_pictures(self, device: torch.device | str) -> Tensor | None:
        """All target pictures, uint8 on the device; None without a target."""
        if not self.targets:
            return None
        turns = len(self.targets)
        return torch.cat(
            [
                read_pictures(each, device, numbers=torch.arange(turn, len(each), turns))
                for turn, each in enumerate(self.targets)
            ]
        )

    def identity(self) -> dict[str, Any]:
        """What tells this data from other data."""
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

    Args:
        dataset: the source, as ``acclimate.data.open_dataset`` knows it.
        root: where it lies.
        target: the other domain; its labels are used for scoring alone.
        target_root: where that lies; None is ``root``.
        target_shifts: corruptions to see the target through, ``cifar/fog:3``: CIFAR-10 to
            CIFAR-10-C is ``target="cifar10", target_shifts=["cifar/fog:3"]``.
        preprocessing: how the model is fed.
        device: where pictures are corrupted.
        learnt_from: False leaves the target for scoring alone, and its train split unopened.
        incomplete: take data sets with gaps.
        progress: show bars on stderr.
    """
    if target is None and target_shifts:
        raise AcclimateError("a shift of the target needs a target (--target)")
    shifts = [made_shift(each) for each in target_shifts]

    def opened(name: str, place: str | Path, split: str) -> ImageSource:
        return open_dataset(
            name,
            place,
            split=split,
            preprocessing=preprocessing,
            incomplete=incomplete,
            progress=progress,
        )

    source = opened(dataset, root, "train")
    scored = {"source": opened(dataset, root, "test")}
    if target is None:
        return Case(source=source, scored=scored)
    place = root if target_root is None else target_root
    test = opened(target, place, "test")
    check_same_classes(dataset, source, target, test)
    train = [opened(target, place, "train")] if learnt_from else []
    if not shifts:
        return Case(source=source, targets=train, scored={**scored, "target": test})
    return Case(
        source=source,
        targets=[
            ShiftedSource(each, shift, cache=0, device=device) for each in train for shift in shifts
        ],
        scored=scored
        | {f"target {shift}": ShiftedSource(test, shift, device=device) for shift in shifts},
    )
