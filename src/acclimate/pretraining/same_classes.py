"""Whether two data sets mean the same by their labels."""

from __future__ import annotations

from acclimate.data import ImageSource, list_datasets
from acclimate.errors import AcclimateError

__all__ = ["check_same_classes"]


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
