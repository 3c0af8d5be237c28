"""Whether a data set and a model mean the same by their numbers of classes."""

from __future__ import annotations

import re
from collections.abc import Sequence

from acclimate.data.base import ImageSource
from acclimate.data.benchmarks.record import Dataset
from acclimate.data.labels import ClassList, classes_named
from acclimate.errors import AcclimateError

__all__ = ["check_classes_fit"]


def check_classes_fit(record: Dataset, images: ImageSource, classes: ClassList | None) -> None:
    """Refuse images of a data set whose classes are known to be others than the model's.

    Its labels are numbers, and would be compared with the model's without a word. Nothing is said
    where the model does not know its classes, or where answers are scored through a map, which
    says what fits.
    """
    if classes is None or images.scoring is not None:
        return
    apart = _apart(record.classes, tuple(images.class_names or ()), classes)
    if apart is not None:
        raise AcclimateError(
            f"the classes of {record.name} are not the model's ({apart}), so its answers cannot be "
            f"scored by their numbers; choose a model for {record.name}"
        )


def _apart(count: int, names: Sequence[str], classes: ClassList) -> str | None:
    if count != len(classes):
        return f"{count:,} classes and {len(classes):,}"
    if _are_numbers(names) or _are_numbers(classes.names):
        return None
    place = _misplaced(names, classes)
    if place is None:
        return None
    return f"class {place} is {names[place]!r}, in the model {classes.names[place]!r}"


def _are_numbers(names: Sequence[str]) -> bool:
    """Whether names say no more than which class it is: ``7``, ``LABEL_7``, or nothing."""
    return all(re.fullmatch(r"\D*\d+", name) for name in names)


def _misplaced(names: Sequence[str], classes: ClassList) -> int | None:
    """The first class that is another one by the model.

    The names of as many classes as the model has stand in the order of the labels; fewer may be any
    of the model's. One by another name ("car") is let be among those that fit.

    >>> three = ClassList(("bird", "cat", "dog"))
    >>> _misplaced(["bird", "dog", "cat"], three), _misplaced(["bird", "feline", "dog"], three)
    (1, None)
    >>> _misplaced(["ship", "truck"], three), _misplaced(["dog", "cat"], three)
    (0, None)
    """
    found = classes_named(names, classes)
    if set(found) == {None}:
        return 0
    if len(names) != len(classes):
        return None
    wrong = (n for n, index in enumerate(found) if index is not None and index != n)
    return next(wrong, None)
