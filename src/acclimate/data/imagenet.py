"""The thousand classes of ImageNet-1k, in the order in which every common model numbers them."""

from __future__ import annotations

from functools import cache
from importlib import resources

from acclimate.data.labels import ClassList

__all__ = ["imagenet_classes", "imagenet_index"]


@cache
def imagenet_classes() -> ClassList:
    """Names (synonyms set apart by commas) and WordNet ids of the 1,000 classes.

    >>> classes = imagenet_classes()
    >>> classes.ids[0], classes.names[0]
    ('n01440764', 'tench, Tinca tinca')
    """
    text = resources.files("acclimate.data").joinpath("imagenet_classes.tsv")
    rows = [line.split("\t") for line in text.read_text(encoding="utf-8").splitlines()]
    return ClassList(names=tuple(names for _, names in rows), ids=tuple(id_ for id_, _ in rows))


def imagenet_index() -> dict[str, int]:
    """The number of each WordNet id, in the order of the numbers.

    >>> imagenet_index()["n01443537"]
    1
    """
    return {id_: index for index, id_ in enumerate(imagenet_classes().ids or ())}
