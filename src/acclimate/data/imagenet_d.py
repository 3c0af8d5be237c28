"""ImageNet-D: the images of DomainNet that a model of ImageNet's thousand classes can answer."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

import torch
from torch import Tensor

from acclimate.data.labels import ClassList
from acclimate.data.scoring import Scoring
from acclimate.errors import unknown_name

__all__ = [
    "MappedClass",
    "family",
    "imagenet_d_classes",
    "imagenet_d_scoring",
    "label_of_output",
    "left_out",
    "mapping",
]

OUTPUTS = 1000
"""Outputs of a model of ImageNet-1k."""


@dataclass(frozen=True)
class MappedClass:
    """One class of ImageNet-D.

    Attributes:
        name: the DomainNet folder.
        outputs: numbers of the ImageNet classes that are right answers for it.
        output_names: their first names, in the same order.
        output_ids: their WordNet ids, in the same order.
        why: what was considered, where the names alone do not say it.
    """

    name: str
    outputs: tuple[int, ...]
    output_names: tuple[str, ...]
    output_ids: tuple[str, ...]
    why: str = ""


@cache
def mapping() -> tuple[MappedClass, ...]:
    """The classes of ImageNet-D, sorted by name; the place is the label.

    >>> dogs = next(entry for entry in mapping() if entry.name == "dog")
    >>> dogs.outputs[0], dogs.output_names[0], len(dogs.outputs)
    (151, 'Chihuahua', 118)
    """
    classes = _read()["classes"]
    return tuple(_entry(name, **classes[name]) for name in sorted(classes))


def imagenet_d_classes() -> ClassList:
    """The names of the 164 classes in the order of their labels; folders are called like this.

    >>> classes = imagenet_d_classes()
    >>> len(classes), classes.names[:2]
    (164, ('aircraft_carrier', 'airplane'))
    """
    return ClassList(names=tuple(entry.name for entry in mapping()))


def family(name: str) -> tuple[int, ...]:
    """The ImageNet outputs that are right answers for the class ``name``.

    >>> family("elephant")
    (101, 385, 386)
    """
    for entry in mapping():
        if entry.name == name:
            return entry.outputs
    raise unknown_name("class of ImageNet-D", name, imagenet_d_classes().names)


def label_of_output() -> Tensor:
    """For each of the 1,000 outputs the label of ImageNet-D it counts as, -1 for none (int64).

    >>> labels = label_of_output()
    >>> imagenet_d_classes().names[labels[207]]  # golden retriever
    'dog'
    >>> int(labels[603])  # horse cart
    -1
    """
    labels = torch.full((OUTPUTS,), -1, dtype=torch.int64)
    for label, entry in enumerate(mapping()):
        labels[list(entry.outputs)] = label
    return labels


def imagenet_d_scoring() -> Scoring:
    """ImageNet-D is scored over all 1,000 outputs, through the map.

    >>> logits = torch.zeros(1, 1000)
    >>> logits[0, 207] = 1
    >>> imagenet_d_classes().names[imagenet_d_scoring().predict(logits)]
    'dog'
    """
    return Scoring(label_of=label_of_output())


def left_out() -> dict[str, str]:
    """The 181 other folders of DomainNet, and why they are not in ImageNet-D.

    >>> left_out()["mouse"]
    "The folder shows the animal, ImageNet's mouse (673) the computer's."
    """
    plain = _read()
    nothing = dict.fromkeys(plain["no_counterpart"], "Nothing in ImageNet answers it.")
    return dict(sorted({**nothing, **plain["left_out"]}.items()))


@cache
def _read() -> dict[str, Any]:
    text = resources.files("acclimate.data").joinpath("imagenet_d.json")
    plain: dict[str, Any] = json.loads(text.read_text(encoding="utf-8"))
    return plain


def _entry(name: str, *, imagenet: list[str], why: str = "") -> MappedClass:
    """Read the rows ``"403 n02687172 aircraft carrier"``."""
    rows = [row.split(" ", 2) for row in imagenet]
    return MappedClass(
        name=name,
        outputs=tuple(int(index) for index, _, _ in rows),
        output_names=tuple(first for _, _, first in rows),
        output_ids=tuple(id_ for _, id_, _ in rows),
        why=why,
    )
