"""The thousand classes of ImageNet-1k, in the order in which every common model numbers them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib import resources

from acclimate.data.labels import ClassList

__all__ = ["imagenet_classes", "with_imagenet_ids"]


@cache
def imagenet_classes() -> ClassList:
    """Names (synonyms set apart by commas) and WordNet ids of the 1,000 classes.

    >>> classes = imagenet_classes()
    >>> classes.ids[0], classes.names[0]
    ('n01440764', 'tench, Tinca tinca')
    """
    text = resources.files("acclimate.models").joinpath("imagenet_classes.tsv")
    rows = [line.split("\t") for line in text.read_text(encoding="utf-8").splitlines()]
    return ClassList(names=tuple(names for _, names in rows), ids=tuple(id_ for id_, _ in rows))


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
