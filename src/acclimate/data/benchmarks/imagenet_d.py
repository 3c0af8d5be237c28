"""ImageNet-D: the images of DomainNet (VisDA 2019) whose classes ImageNet knows, by domain."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from acclimate.data.base import ImageSource
from acclimate.data.benchmarks.array_sets import find_file
from acclimate.data.benchmarks.class_folders import (
    IMAGENET_PREPROCESSING,
    ClassFolders,
    Listing,
    list_folders,
    list_images,
    some,
    table_lines,
)
from acclimate.data.benchmarks.facts import register
from acclimate.data.benchmarks.registry import Request
from acclimate.data.labels import ClassList, Scoring
from acclimate.errors import AcclimateError

__all__ = [
    "MappedClass",
    "imagenet_d_classes",
    "imagenet_d_scoring",
    "label_of_output",
    "left_out",
    "mapping",
]

_OUTPUTS = 1000  # of a model of ImageNet-1k
# Two editions are published, with duplicates and without. These are the images of the smaller
# one in all 345 classes: a domain with fewer is not whole, whichever edition it is.
_AT_LEAST = {
    "clipart": 48_129,
    "infograph": 51_605,
    "painting": 72_266,
    "quickdraw": 172_500,
    "real": 172_947,
    "sketch": 69_128,
}


@dataclass(frozen=True)
class MappedClass:
    """One class of ImageNet-D."""

    name: str  # the DomainNet folder
    outputs: tuple[int, ...]  # indices of the ImageNet classes that are right predictions for it
    output_names: tuple[str, ...]  # their first names, in the same order
    output_ids: tuple[str, ...]  # their WordNet ids, in the same order
    why: str = ""  # what was considered, where the names alone do not say it


@cache
def mapping() -> tuple[MappedClass, ...]:
    """The classes of ImageNet-D, sorted by name; the place is the label.

    >>> dogs = next(entry for entry in mapping() if entry.name == "dog")
    >>> dogs.outputs[0], dogs.output_names[0], len(dogs.outputs)
    (151, 'Chihuahua', 118)
    """
    found = []
    for name, facts in sorted(_read()["classes"].items()):
        # "403 n02687172 aircraft carrier"
        indices, ids, names = zip(*(row.split(" ", 2) for row in facts["imagenet"]), strict=True)
        outputs = tuple(map(int, indices))
        found.append(MappedClass(name, outputs, names, ids, facts.get("why", "")))
    return tuple(found)


def imagenet_d_classes() -> ClassList:
    """The names of the 164 classes in the order of their labels; folders are called like this.

    >>> imagenet_d_classes().names[:2]
    ('aircraft_carrier', 'airplane')
    """
    return ClassList(names=tuple(entry.name for entry in mapping()))


def label_of_output() -> Tensor:
    """For each of the 1,000 outputs the label of ImageNet-D it counts as, -1 for none (int64).

    >>> labels = label_of_output()
    >>> imagenet_d_classes().names[labels[207]]  # golden retriever
    'dog'
    >>> int(labels[603])  # horse cart
    -1
    """
    labels = torch.full((_OUTPUTS,), -1, dtype=torch.int64)
    for label, entry in enumerate(mapping()):
        labels[list(entry.outputs)] = label
    return labels


def imagenet_d_scoring() -> Scoring:
    """ImageNet-D is scored over all 1,000 outputs, through the map."""
    return Scoring(label_of=label_of_output())


def left_out() -> dict[str, str]:
    """The 181 other folders of DomainNet, and why they are not in ImageNet-D."""
    plain = _read()
    nothing = dict.fromkeys(plain["no_counterpart"], "Nothing in ImageNet corresponds to it.")
    return dict(sorted({**nothing, **plain["left_out"]}.items()))


@cache
def _read() -> dict[str, Any]:
    text = resources.files(__package__).joinpath("imagenet_d.json")
    plain: dict[str, Any] = json.loads(text.read_text(encoding="utf-8"))
    return plain


def _open(request: Request) -> ImageSource:
    """By default every image of the domain, as the authors' reference code has it.

    DomainNet's own lists, made to train on one part and test on the other, give the splits.
    """
    folders, found = _listed(request)
    return folders.open(request, found)


def _listed(request: Request) -> tuple[ClassFolders, dict[str, Listing]]:
    """The class folders of a domain and the images of the split in them; all counted."""
    assert request.shift is not None
    base = request.root / request.shift
    if not base.is_dir():
        request.refuse(
            f"expected the folder {request.shift} in {request.root}, but it is not there. Missing "
            f"in all: {', '.join(_missing(request.root))}"
        )
    folders = ClassFolders(
        base=base,
        label_of={name: label for label, name in enumerate(imagenet_d_classes().names)},
        total=None,
        scoring=imagenet_d_scoring(),
        others=left_out(),
    )
    found = folders.check(request)
    _check_whole(request, base, found)
    return folders, found if request.split == "all" else _only_listed(request, base, found)


def _check_whole(request: Request, base: Path, found: Mapping[str, Listing]) -> None:
    """Count the domain, its classes unknown to ImageNet included, where all of them are there."""
    outside = [name for name in list_folders(base) if name in left_out()]
    left = sum(len(list_images(base / name).files) for name in outside)
    count = left + sum(len(listing.files) for listing in found.values())
    expected = _AT_LEAST[base.name]
    if len(outside) == len(left_out()) and count < expected:
        request.object_to(
            f"expected at least {expected:,} images of all classes of DomainNet in {base}, found "
            f"{count:,}"
        )
    if outside:
        request.note(
            f"{left:,} of {count:,} images in {base} are left out: their {len(outside)} classes "
            "are not in ImageNet"
        )


def _only_listed(request: Request, base: Path, found: Mapping[str, Listing]) -> dict[str, Listing]:
    """The listing without what DomainNet's list of the split does not name."""
    name = f"{base.name}_{request.split}.txt"
    path = find_file(request.root, [f"{place}{name}" for place in ("", "txt/", "splits/")])
    if path is None:
        request.refuse(f"the split {request.split!r} needs {name} in {request.root}, not there")
    listed = _read_list(path, base.name, found)
    absent = [
        f"{folder}/{file}"
        for folder, files in listed.items()
        for file in sorted(files.difference(found[folder].files))
    ]
    if absent:
        request.object_to(f"{len(absent)} images of {path} are not in {base}: {some(absent)}")
    return {
        folder: Listing(tuple(file for file in listing.files if file in listed[folder]))
        for folder, listing in found.items()
    }


def _read_list(path: Path, domain: str, folders: Collection[str]) -> dict[str, set[str]]:
    """File names by class folder, from lines ``clipart/zebra/clipart_344_000001.jpg 344``."""
    listed: dict[str, set[str]] = {folder: set() for folder in folders}
    for number, line in table_lines(path):
        parts = line.rpartition(" ")[0].split("/")
        if len(parts) != 3 or parts[0] != domain:
            raise AcclimateError(
                f"expected '{domain}/class/file number' in line {number} of {path}, got "
                f"{line!r:.80}"
            )
        if parts[1] in listed:
            listed[parts[1]].add(parts[2])
    return listed


def _missing(root: Path) -> list[str]:
    return [domain for domain in _AT_LEAST if not (root / domain).is_dir()]


register(
    "imagenet-d",
    splits=("all", "test", "train"),
    shifts=tuple(_AT_LEAST),
    shift_kind="domain",
    preprocessing=IMAGENET_PREPROCESSING,
    open=_open,
    check=_listed,
    missing=_missing,
)
