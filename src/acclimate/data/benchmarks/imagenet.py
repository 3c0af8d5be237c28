"""ImageNet's validation set, its corruptions, and other images of its classes.

ImageNet-R has renditions, -A hard images, -V2 a second draw, -Sketch drawings.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

import torch

from acclimate.data.base import ImageSource
from acclimate.data.benchmarks.class_folders import (
    IMAGENET_PREPROCESSING,
    ClassFolders,
    Listing,
    check_counts,
    folder_source,
    list_folders,
    list_images,
    some,
    table_lines,
)
from acclimate.data.benchmarks.facts import register
from acclimate.data.benchmarks.registry import SEVERITIES, Request, generated_images
from acclimate.data.labels import Scoring, imagenet_classes, imagenet_index
from acclimate.data.preprocessing import Preprocessing
from acclimate.data.shift import DEV, STAND_INS, TEST
from acclimate.errors import AcclimateError

__all__ = ["subset_classes"]

_IMAGES, _EACH = 50_000, 50
_SOLUTION = "LOC_val_solution.csv"
_DEVKIT = "ILSVRC2012_validation_ground_truth.txt"
_PLACES = ("val", "ILSVRC/Data/CLS-LOC/val", "")

# The published archives; some people keep their names as folders.
_GROUPS = {
    "noise": ("gaussian_noise", "shot_noise", "impulse_noise"),
    "blur": ("defocus_blur", "glass_blur", "motion_blur", "zoom_blur"),
    "weather": ("snow", "frost", "fog", "brightness"),
    "digital": ("contrast", "elastic_transform", "pixelate", "jpeg_compression"),
    "extra": ("speckle_noise", "gaussian_blur", "spatter", "saturate"),
}
_GROUP_OF = {name: group for group, names in _GROUPS.items() for name in names}

_SUBSETS = {"imagenet-r": 30_000, "imagenet-a": 7_500}
# Newer archives unpack to the first name, older ones to the others.
_V2_FOLDERS = {
    "matched-frequency": (
        "imagenetv2-matched-frequency-format-val",
        "imagenetv2-matched-frequency",
    ),
    "threshold-0.7": ("imagenetv2-threshold0.7-format-val", "imagenetv2-threshold0.7"),
    "top-images": ("imagenetv2-top-images-format-val", "imagenetv2-topimages"),
}


def _open_imagenet(request: Request) -> ImageSource:
    found = _find_imagenet(request)
    if isinstance(found, ClassFolders):
        return found.open(request)
    base, files, ids = found
    labels = [imagenet_index()[id_] for id_ in ids]
    return folder_source(request, base, files, labels, class_names=sorted(set(ids)))


def _check_imagenet(request: Request) -> None:
    found = _find_imagenet(request)
    if isinstance(found, ClassFolders):
        found.check(request)


def _find_imagenet(request: Request) -> ClassFolders | tuple[Path, Sequence[str], Sequence[str]]:
    """Class folders; or the folder that has all images, their files and their classes."""
    for base in (request.root / place for place in _PLACES):
        if base.is_dir():
            if not imagenet_index().keys().isdisjoint(list_folders(base)):
                return ClassFolders(base=base, label_of=imagenet_index(), total=_IMAGES, each=_EACH)
            listing = list_images(base)
            if any(name.startswith("ILSVRC2012_val_") for name in listing.files):
                return base, listing.files, _flat(request, base, listing)
    return request.refuse(f"found no class folders and no ILSVRC2012_val_*.JPEG in {request.root}")


def _flat(request: Request, base: Path, listing: Listing) -> Sequence[str]:
    """The classes of images in one folder, as the archive unpacks; a file beside it tells them."""
    places = dict.fromkeys((base, base.parent, request.root))
    truth = next((place / _SOLUTION for place in places if (place / _SOLUTION).is_file()), None)
    if truth is None:
        why = ""
        if any((place / _DEVKIT).is_file() for place in places):
            why = (
                f" ({_DEVKIT} is not enough: it numbers the classes in the order of the "
                "development kit, which is not that of any model)"
            )
        raise AcclimateError(
            f"the images in {base} lie in one folder, and nothing tells their classes{why}; sort "
            f"them into one folder for each class, named by WordNet id, or put {_SOLUTION} of the "
            f"Kaggle distribution into {request.root}"
        )
    check_counts(request, base.parent, {base.name: listing}, total=_IMAGES)
    known = _read_solution(truth)
    unknown = [file for file in listing.files if Path(file).stem not in known]
    if unknown:
        raise AcclimateError(
            f"{len(unknown)} images in {base} have no line in {truth}: {some(unknown)}; get the "
            f"whole {_SOLUTION}, and move other images away"
        )
    ids = [known[Path(file).stem] for file in listing.files]
    unknown_ids = sorted(set(ids) - imagenet_index().keys())
    if unknown_ids:
        raise AcclimateError(
            f"{truth} names what are no classes of ImageNet: {some(unknown_ids)}; expected WordNet "
            "ids such as n01440764"
        )
    return ids


def _read_solution(path: Path) -> dict[str, str]:
    """The WordNet id of each image; lines are ``ILSVRC2012_val_00048981,n03995372 85 1 499 272``.

    Where an image has several boxes they are all of its one class, so the first word tells.
    """
    pairs: dict[str, str] = {}
    for number, line in table_lines(path):
        row = line.strip().split(",")
        if row[0] == "ImageId":
            continue
        if len(row) != 2 or not row[1].split():
            raise AcclimateError(
                f"expected an image and its class in line {number} of {path}, got {row!r:.80}"
            )
        pairs[row[0]] = row[1].split()[0]
    return pairs


def _part(root: Path, name: str, severity: int) -> Path | None:
    places = (root / name, root / _GROUP_OF.get(name, name) / name)
    return next((p / str(severity) for p in places if (p / str(severity)).is_dir()), None)


def _imagenet_c(request: Request) -> ClassFolders:
    """One corruption at one severity; of a set that ``acclimate corrupt`` wrote, what it wrote."""
    assert request.shift is not None
    assert request.severity is not None
    base = _part(request.root, request.shift, request.severity)
    if base is None:
        archive = _GROUP_OF.get(request.shift, "acclimate corrupt")
        request.refuse(
            f"expected {request.shift}/{request.severity} (of {archive}.tar) in {request.root}, "
            f"but it is not there. Missing in all: {_in_short(_missing_c(request.root))}"
        )
    classes, made = imagenet_index(), generated_images(request.root)
    if made is None:
        return ClassFolders(base=base, label_of=classes, total=_IMAGES, each=_EACH)
    # The classes are those of the set: of whichever part has most of them.
    parts = [part for part in base.parent.iterdir() if part.is_dir()]
    there = {folder for part in parts for folder in list_folders(part)}
    known = {folder: classes[folder] for folder in sorted(there) if folder in classes}
    return ClassFolders(base=base, label_of=known, total=made)


def _missing_c(root: Path) -> list[str]:
    """The ``corruption/severity`` folders that are not below ``root``, hold-out ones first.

    For whoever evaluates everything: to refuse at the start what would fail after a day.
    """
    return [
        f"{name}/{severity}"
        for name in (*DEV, *TEST)
        for severity in SEVERITIES
        if _part(root, name, severity) is None
    ]


def _in_short(parts: list[str]) -> str:
    """Severities drawn together."""
    severities: dict[str, list[str]] = {}
    for part in parts:
        name, _, severity = part.rpartition("/")
        severities.setdefault(name, []).append(severity)
    return ", ".join(
        name if len(found) == len(SEVERITIES) else f"{name} ({', '.join(found)})"
        for name, found in severities.items()
    )


@cache
def subset_classes(name: str) -> tuple[int, ...]:
    """The 200 classes of ``imagenet-r`` or ``imagenet-a``, as indices among the 1,000.

    >>> subset_classes("imagenet-r")[:3], subset_classes("imagenet-a")[:3]
    ((1, 2, 4), (6, 11, 13))
    """
    file = resources.files(__package__).joinpath(f"{name}-classes.txt")
    return tuple(int(line) for line in file.read_text(encoding="ascii").split())


def _subset(request: Request) -> ClassFolders:
    """Labels are those of ImageNet; only the 200 outputs are scored, as the benchmark has it."""
    name = request.dataset.name
    ids, keep = imagenet_classes().ids or (), subset_classes(name)
    return ClassFolders(
        base=_base(request, name),
        label_of={ids[index]: index for index in keep},
        total=_SUBSETS[name],
        scoring=Scoring(keep=torch.tensor(keep)),
    )


def _sketch(request: Request) -> ClassFolders:
    return ClassFolders(base=_base(request, "sketch"), label_of=imagenet_index(), total=50_889)


def _base(request: Request, inside: str) -> Path:
    """The folder of the archive, if it was kept, or the root itself."""
    base = request.root / inside
    return base if base.is_dir() else request.root


def _v2(request: Request) -> ClassFolders:
    """Folders are named by class index, and never sorted as text: 10 would come before 2."""
    assert request.split is not None
    base = _v2_folder(request.root, request.split)
    if base is None:
        request.refuse(f"expected {_V2_FOLDERS[request.split][0]} in {request.root}, not there")
    spelled: dict[int, str] = {}  # as this copy spells it: 7, or 007 in some copies
    for name in list_folders(base):
        if name.isascii() and name.isdigit():
            other = spelled.setdefault(int(name), name)
            if other != name:
                raise AcclimateError(
                    f"the folders {other}, {name} in {base} are both class {int(name)}; merge them"
                )
    labels = {spelled.get(number, str(number)): number for number in range(1000)}
    return ClassFolders(base=base, label_of=labels, total=10_000, each=10, named=False)


def _v2_folder(root: Path, split: str) -> Path | None:
    names = _V2_FOLDERS[split]
    places = [root / name for name in names] + ([root] if root.name in names else [])
    return next((place for place in places if place.is_dir()), None)


def _v2_missing(root: Path) -> list[str]:
    return [names[0] for split, names in _V2_FOLDERS.items() if _v2_folder(root, split) is None]


def _register(name: str, folders: Callable[[Request], ClassFolders], **how: Any) -> None:
    """A data set of class folders, prepared in the usual way unless it is said how."""
    usual = {
        "preprocessing": IMAGENET_PREPROCESSING,
        "open": lambda request: folders(request).open(request),
        "check": lambda request: folders(request).check(request),
    }
    register(name, **{**usual, **how})


register(
    "imagenet", open=_open_imagenet, check=_check_imagenet, preprocessing=IMAGENET_PREPROCESSING
)
_register(
    "imagenet-c",
    _imagenet_c,
    shifts=(*DEV, *TEST),
    shift_kind="corruption",
    severities=True,
    dev=DEV,
    stand_ins=STAND_INS,
    # Stored at 224 px, resized and cropped before they were corrupted.
    preprocessing=Preprocessing(size=(224, 224)),
    missing=_missing_c,
)
_register("imagenet-r", _subset)
_register("imagenet-a", _subset)
_register("imagenetv2", _v2, splits=tuple(_V2_FOLDERS), missing=_v2_missing)
_register("imagenet-sketch", _sketch)
