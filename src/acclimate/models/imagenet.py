"""Which class lists of models are those of ImageNet-1k."""

from __future__ import annotations

from collections.abc import Sequence

from acclimate.data.labels import ClassList, imagenet_classes

__all__ = ["imagenet_classes", "with_imagenet_ids"]


def with_imagenet_ids(names: Sequence[str]) -> ClassList:
    """A class list of ``names``, with WordNet ids if these are the classes of ImageNet-1k.

    Listings differ in a few names ("crane bird"), so nearly all of the first names have to agree.

    >>> with_imagenet_ids(["cat", "dog"]).ids is None
    True
    """
    known = imagenet_classes()
    agreeing = sum(
        _first(ours) == _first(theirs) for ours, theirs in zip(known.names, names, strict=False)
    )
    is_imagenet = len(names) == len(known) and agreeing >= 0.95 * len(known)
    return ClassList(names=tuple(names), ids=known.ids if is_imagenet else None)


def _first(name: str) -> str:
    return name.partition(",")[0].strip().casefold()
