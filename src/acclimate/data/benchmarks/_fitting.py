"""Whether a data set and a model mean the same by their numbers of classes."""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence

from acclimate.data.base import ImageSource
from acclimate.data.benchmarks.record import Dataset
from acclimate.data.labels import ClassList, classes_named
from acclimate.errors import AcclimateError, AcclimateWarning

__all__ = ["check_classes_fit"]

_NUMBERED = re.compile(r"((label|class)[ _]?)?\d+", re.IGNORECASE)
_WORDNET = re.compile(r"n\d{8}")


def check_classes_fit(record: Dataset, images: ImageSource, classes: ClassList | None) -> None:
    """Refuse images of a data set whose classes are other than the model's, or in another order.

    Its labels are numbers, and would be compared with the model's without a word. Where none of
    its names is known to the model they may be other words for the same: that is a warning. Nothing
    is said where the model does not know its classes, or has only numbers for them, and where
    answers are scored through a map, which says what fits.
    """
    if classes is None or images.scoring is not None:
        return
    names = tuple(images.class_names or ())
    apart = None
    if record.classes != len(classes):
        apart = f"{record.classes:,} classes and {len(classes):,}"
    elif (place := _misplaced(names, classes)) is not None:
        apart = f"class {place} is {names[place]!r}, in the model {classes.names[place]!r}"
    if apart is not None:
        raise AcclimateError(
            f"the classes of {record.name} are not the model's ({apart}), so its answers cannot be "
            f"scored by their numbers; choose a model for {record.name}"
        )
    if _strangers(names, classes):
        warnings.warn(
            f"no class of {record.name} ({names[0]}, ...) is known to the model "
            f"({classes.names[0]}, ...) by that name: answers are scored by their numbers, which "
            "is right only if both count the same classes",
            AcclimateWarning,
            stacklevel=3,
        )


def _misplaced(names: Sequence[str], classes: ClassList) -> int | None:
    """The first class that the model knows by this name, and has elsewhere.

    Only as many names as the model has stand in the order of the labels; fewer may be any of them.

    >>> three = ClassList(("bird", "cat", "dog"))
    >>> _misplaced(["bird", "dog", "cat"], three), _misplaced(["bird", "feline", "dog"], three)
    (1, None)
    >>> _misplaced(["dog", "cat"], three) is None
    True
    """
    if len(names) != len(classes):
        return None
    found = enumerate(classes_named(names, classes))
    return next((n for n, index in found if index is not None and index != n), None)


def _strangers(names: Sequence[str], classes: ClassList) -> bool:
    """Whether both have names, and not one in common."""
    if not names or all(_NUMBERED.fullmatch(name) for name in classes.names):
        return False
    if classes.ids is None and all(_WORDNET.fullmatch(name) for name in names):
        return False
    return set(classes_named(names, classes)) == {None}
