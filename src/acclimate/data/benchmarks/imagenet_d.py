"""ImageNet-D: the images of DomainNet (VisDA 2019) whose classes ImageNet knows, by domain.

Two label maps, a data set each: that of its authors' code, and ours. docs/imagenet-d.md compares.
It is scored over all 1,000 outputs; a prediction that the map does not know is wrong.
"""

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
from acclimate.data.labels import Scoring
from acclimate.errors import AcclimateError, unknown_name

__all__ = ["MAPS", "LabelMap", "MappedClass", "label_map"]

MAPS = ("imagenet-d", "imagenet-d-curated")
"""The data sets, one for each map."""

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

    name: str
    folders: tuple[str, ...]  # of DomainNet: their images show it
    outputs: tuple[int, ...]  # indices of the ImageNet classes that are right predictions for it
    output_names: tuple[str, ...]  # their first names, in the same order
    output_ids: tuple[str, ...]  # their WordNet ids, in the same order
    why: str = ""  # what was considered, where the names alone do not say it


@dataclass(frozen=True)
class LabelMap:
    """From DomainNet's folders and from ImageNet's classes to those of ImageNet-D.

    Attributes:
        classes: sorted by name; the place is the label.
        left_out: the other folders of DomainNet's 345, and why they are no class.

    >>> released, curated = label_map(), label_map("imagenet-d-curated")
    >>> [len(each.label_of_folder) for each in (released, curated)]
    [181, 164]
    >>> released.names[released.label_of_folder["cell_phone"]]
    'telephone'
    """

    classes: tuple[MappedClass, ...]
    left_out: Mapping[str, str]

    @property
    def names(self) -> tuple[str, ...]:
        """Of the 164 classes, in the order of their labels."""
        return tuple(entry.name for entry in self.classes)

    @property
    def label_of_folder(self) -> dict[str, int]:
        """The label of the images in each folder."""
        return {name: label for label, each in enumerate(self.classes) for name in each.folders}

    @property
    def label_of_output(self) -> Tensor:
        """For each of the 1,000 outputs the label it counts as, -1 for none (int64).

        >>> released = label_map()
        >>> released.names[released.label_of_output[207]]  # golden retriever
        'dog'
        >>> int(released.label_of_output[339])  # sorrel, a horse that the released map lacks
        -1
        """
        labels = torch.full((_OUTPUTS,), -1, dtype=torch.int64)
        for label, entry in enumerate(self.classes):
            labels[list(entry.outputs)] = label
        return labels


@cache
def label_map(dataset: str = MAPS[0]) -> LabelMap:
    """The map of a data set: ``imagenet-d`` as its authors' code has it, or our curated one.

    >>> (phone,) = [each for each in label_map().classes if each.name == "telephone"]
    >>> phone.folders, phone.output_names
    (('cell_phone', 'telephone'), ('cellular telephone', 'dial telephone'))
    """
    if dataset not in MAPS:
        raise unknown_name("label map", dataset, MAPS)
    text = resources.files(__package__).joinpath(f"{dataset.replace('-', '_')}.json")
    plain: dict[str, Any] = json.loads(text.read_text(encoding="utf-8"))
    others = dict.fromkeys(plain["others"]["folders"], plain["others"]["why"])
    return LabelMap(
        classes=tuple(_mapped(name, facts) for name, facts in sorted(plain["classes"].items())),
        left_out=dict(sorted({**others, **plain.get("left_out", {})}.items())),
    )


def _mapped(name: str, facts: Mapping[str, Any]) -> MappedClass:
    # "403 n02687172 aircraft carrier"
    indices, ids, names = zip(*(row.split(" ", 2) for row in facts["imagenet"]), strict=True)
    folders = tuple(facts.get("folders", [name]))
    return MappedClass(name, folders, tuple(map(int, indices)), names, ids, facts.get("why", ""))


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
    labels = label_map(request.dataset.name)
    folders = ClassFolders(
        base=base,
        label_of=labels.label_of_folder,
        total=None,
        scoring=Scoring(label_of=labels.label_of_output),
        classes=labels.names,
        others=labels.left_out,
    )
    found = folders.check(request)
    _check_whole(request, base, found, labels.left_out)
    return folders, found if request.split == "all" else _only_listed(request, base, found)


def _check_whole(
    request: Request, base: Path, found: Mapping[str, Listing], left_out: Collection[str]
) -> None:
    """Count the domain, the folders left out included, where all of them are there."""
    outside = [name for name in list_folders(base) if name in left_out]
    left = sum(len(list_images(base / name).files) for name in outside)
    count = left + sum(len(listing.files) for listing in found.values())
    expected = _AT_LEAST[base.name]
    if len(outside) == len(left_out) and count < expected:
        request.object_to(
            f"expected at least {expected:,} images of all classes of DomainNet in {base}, found "
            f"{count:,}"
        )
    if outside:
        request.note(
            f"{left:,} of {count:,} images in {base} are left out: the map has no class for their "
            f"{len(outside)} folders"
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


for _name in MAPS:
    register(
        _name,
        splits=("all", "test", "train"),
        shifts=tuple(_AT_LEAST),
        shift_kind="domain",
        preprocessing=IMAGENET_PREPROCESSING,
        open=_open,
        check=_listed,
        missing=_missing,
    )
