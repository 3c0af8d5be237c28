"""Other images of ImageNet's classes: renditions, hard ones, a second draw, sketches."""

from __future__ import annotations

from functools import cache
from importlib import resources
from pathlib import Path

import torch

from acclimate.data.base import ImageSource
from acclimate.data.benchmarks.class_folders import (
    IMAGENET_PREPROCESSING,
    ClassFolders,
    list_folders,
    some,
)
from acclimate.data.benchmarks.registry import Dataset, Request, register_dataset
from acclimate.data.labels import imagenet_classes, imagenet_index
from acclimate.data.scoring import Scoring
from acclimate.errors import AcclimateError

__all__ = ["IMAGENETV2", "IMAGENET_A", "IMAGENET_R", "IMAGENET_SKETCH", "subset_classes"]

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


@cache
def subset_classes(name: str) -> tuple[int, ...]:
    """The 200 classes of ``imagenet-r`` or ``imagenet-a``, as numbers among the 1,000.

    >>> subset_classes("imagenet-r")[:3], subset_classes("imagenet-a")[:3]
    ((1, 2, 4), (6, 11, 13))
    """
    file = resources.files(__package__).joinpath(f"{name}-classes.txt")
    return tuple(int(line) for line in file.read_text(encoding="ascii").split())


def _subset(request: Request) -> ClassFolders:
    """Labels are those of ImageNet; only the 200 outputs are asked, as the benchmark has it."""
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
    """Folders are named by class index. As text 10 comes before 2, so they are never sorted so."""
    assert request.split is not None
    base = _v2_folder(request.root, request.split)
    if base is None:
        request.refuse(f"expected {_V2_FOLDERS[request.split][0]} in {request.root}, not there")
    numbers = _numbered(base, len(imagenet_classes()))
    return ClassFolders(base=base, label_of=numbers, total=10_000, each=10)


def _open_v2(request: Request) -> ImageSource:
    source = _v2(request).open(request)
    source.class_names = None  # the folders have only numbers
    return source


def _v2_folder(root: Path, split: str) -> Path | None:
    names = _V2_FOLDERS[split]
    places = [root / name for name in names] + ([root] if root.name in names else [])
    return next((place for place in places if place.is_dir()), None)


def _v2_missing(root: Path) -> list[str]:
    return [names[0] for split, names in _V2_FOLDERS.items() if _v2_folder(root, split) is None]


def _numbered(base: Path, count: int) -> dict[str, int]:
    """A folder for each class index, as it is spelled here (``7``, or ``007`` in some copies)."""
    spelled: dict[int, str] = {}
    for name in list_folders(base):
        if not (name.isascii() and name.isdigit()):
            continue
        number = int(name)
        if number in spelled:
            raise AcclimateError(
                f"the folders {some([spelled[number], name])} in {base} are both class {number}; "
                "merge them"
            )
        spelled[number] = name
    return {spelled.get(number, str(number)): number for number in range(count)}


IMAGENET_R = register_dataset(
    Dataset(
        name="imagenet-r",
        title="ImageNet-R, art, cartoons, toys and other renditions",
        classes=200,
        images="30,000",
        size="2.2 GB",
        get="Get imagenet-r.tar from https://github.com/hendrycks/imagenet-r and unpack it",
        layout="imagenet-r/n01443537/*.jpg   200 folders (or without imagenet-r/)",
        preprocessing=IMAGENET_PREPROCESSING,
        open=lambda request: _subset(request).open(request),
        check=lambda request: _subset(request).check(request),
    )
)
IMAGENET_A = register_dataset(
    Dataset(
        name="imagenet-a",
        title="ImageNet-A, natural images on which a ResNet-50 fails",
        classes=200,
        images="7,500",
        size="0.7 GB",
        get=(
            "Get imagenet-a.tar from https://github.com/hendrycks/natural-adv-examples and "
            "unpack it"
        ),
        layout="imagenet-a/n01498041/*.jpg   200 folders (or without imagenet-a/)",
        preprocessing=IMAGENET_PREPROCESSING,
        open=lambda request: _subset(request).open(request),
        check=lambda request: _subset(request).check(request),
    )
)
IMAGENETV2 = register_dataset(
    Dataset(
        name="imagenetv2",
        title="ImageNetV2, a second draw of the validation set",
        classes=1000,
        images="10,000 in each of 3 variants",
        size="1.3 GB a variant",
        get=(
            "Get imagenetv2-matched-frequency.tar.gz, imagenetv2-threshold0.7.tar.gz or "
            "imagenetv2-top-images.tar.gz from https://huggingface.co/datasets/vaishaal/ImageNetV2 "
            "(linked from https://github.com/modestyachts/ImageNetV2) and unpack it"
        ),
        layout=(
            "imagenetv2-matched-frequency-format-val/0/*.jpeg   1,000 folders 0 to 999 of 10\n"
            "imagenetv2-threshold0.7-format-val/…, imagenetv2-top-images-format-val/…"
        ),
        splits=tuple(_V2_FOLDERS),
        preprocessing=IMAGENET_PREPROCESSING,
        open=_open_v2,
        check=lambda request: _v2(request).check(request),
        missing=_v2_missing,
    )
)
IMAGENET_SKETCH = register_dataset(
    Dataset(
        name="imagenet-sketch",
        title="ImageNet-Sketch, black and white sketches",
        classes=1000,
        images="50,889",
        size="7.6 GB",
        get=(
            "Get ImageNet-Sketch.zip from https://github.com/HaohanWang/ImageNet-Sketch and "
            "unpack it"
        ),
        layout="sketch/n01440764/*.JPEG   1,000 folders (or without sketch/)",
        preprocessing=IMAGENET_PREPROCESSING,
        open=lambda request: _sketch(request).open(request),
        check=lambda request: _sketch(request).check(request),
    )
)
