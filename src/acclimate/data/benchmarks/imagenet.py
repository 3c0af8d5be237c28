"""The validation set of ImageNet (ILSVRC 2012), sorted into class folders or as it is published."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path

from acclimate.data.base import ImageSource
from acclimate.data.benchmarks.class_folders import (
    IMAGENET_PREPROCESSING,
    ClassFolders,
    check_counts,
    list_folders,
    list_images,
    some,
)
from acclimate.data.benchmarks.registry import Dataset, Request, register_dataset
from acclimate.data.files import FolderSource
from acclimate.data.labels import imagenet_index
from acclimate.errors import AcclimateError

__all__ = ["IMAGENET"]

_IMAGES, _EACH = 50_000, 50
_SOLUTION = "LOC_val_solution.csv"
_PLACES = ("val", "ILSVRC/Data/CLS-LOC/val", "")


def _open(request: Request) -> ImageSource:
    found = _listed(request)
    if isinstance(found, ClassFolders):
        return found.open(request)
    base, files, ids = found
    classes = imagenet_index()
    return FolderSource(
        base,
        preprocessing=request.fitting,
        names=files,
        labels=[classes[id_] for id_ in ids],
        class_names=sorted(set(ids)),
        cache=request.cache,
        progress=request.progress,
    )


def _check(request: Request) -> None:
    found = _listed(request)
    if isinstance(found, ClassFolders):
        found.check(request)


def _listed(request: Request) -> ClassFolders | tuple[Path, Sequence[str], Sequence[str]]:
    """Class folders; or the folder that has all images, their files and their classes."""
    places = [request.root / place for place in _PLACES]
    base = next((p for p in places if p.is_dir() and (_is_sorted(p) or _is_flat(p))), None)
    if base is None:
        request.refuse(f"found no class folders and no ILSVRC2012_val_*.JPEG in {request.root}")
    if _is_sorted(base):
        return ClassFolders(base=base, label_of=imagenet_index(), total=_IMAGES, each=_EACH)
    return base, *_flat(request, base)


def _is_sorted(base: Path) -> bool:
    return not imagenet_index().keys().isdisjoint(list_folders(base))


def _is_flat(base: Path) -> bool:
    return any(name.startswith("ILSVRC2012_val_") for name in list_images(base).files)


def _flat(request: Request, base: Path) -> tuple[Sequence[str], Sequence[str]]:
    """All images in one folder, as the archive unpacks; a file beside it tells their classes."""
    truth = _truth(request, base)
    listing = list_images(base)
    check_counts(request, base.parent, {base.name: listing}, total=_IMAGES)
    known = _read_solution(truth)
    unknown = [file for file in listing.files if Path(file).stem not in known]
    if unknown:
        raise AcclimateError(
            f"{len(unknown)} images in {base} have no line in {truth}: {some(unknown)}; get the "
            f"whole {_SOLUTION}, and move other images away"
        )
    ids = [known[Path(file).stem] for file in listing.files]
    strangers = sorted(set(ids) - imagenet_index().keys())
    if strangers:
        raise AcclimateError(
            f"{truth} names what are no classes of ImageNet: {some(strangers)}; expected WordNet "
            "ids such as n01440764"
        )
    return listing.files, ids


def _truth(request: Request, base: Path) -> Path:
    places = dict.fromkeys((base, base.parent, request.root))
    for folder in places:
        if (folder / _SOLUTION).is_file():
            return folder / _SOLUTION
    devkit = "ILSVRC2012_validation_ground_truth.txt"
    numbered = next((f / devkit for f in places if (f / devkit).is_file()), None)
    why = (
        ""
        if numbered is None
        else f" ({numbered.name} is not enough: it numbers the classes in the order of the "
        "development kit, which is not that of any model)"
    )
    raise AcclimateError(
        f"the images in {base} lie in one folder, and nothing tells their classes{why}; sort them "
        f"into one folder for each class, named by WordNet id, or put {_SOLUTION} of the Kaggle "
        f"distribution into {request.root}"
    )


def _read_solution(path: Path) -> dict[str, str]:
    """The WordNet id of each image; lines are ``ILSVRC2012_val_00048981,n03995372 85 1 499 272``.

    Where an image has several boxes they are all of its one class, so the first word tells.
    """
    try:
        with path.open(newline="", encoding="utf-8") as file:
            rows = list(csv.reader(file))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise AcclimateError(f"expected lines of text in {path}, got: {error}") from error
    pairs: dict[str, str] = {}
    for number, row in enumerate(rows, start=1):
        if not row or row[0] == "ImageId":
            continue
        if len(row) != 2 or not row[1].split():
            raise AcclimateError(
                f"expected an image and its class in line {number} of {path}, got {row!r:.80}"
            )
        pairs[row[0]] = row[1].split()[0]
    return pairs


IMAGENET = register_dataset(
    Dataset(
        name="imagenet",
        title="ImageNet, the validation set of ILSVRC 2012",
        classes=1000,
        images="50,000",
        size="6.7 GB",
        get=(
            "Get ILSVRC2012_img_val.tar from https://image-net.org/download-images (free after "
            "registration), or the Kaggle distribution, "
            "https://www.kaggle.com/c/imagenet-object-localization-challenge"
        ),
        layout=(
            "val/n01440764/ILSVRC2012_val_00000293.JPEG   1,000 folders of 50\n"
            "or n01440764/*.JPEG without val/, or val/*.JPEG in one folder together with\n"
            "LOC_val_solution.csv"
        ),
        preprocessing=IMAGENET_PREPROCESSING,
        open=_open,
        check=_check,
    )
)
