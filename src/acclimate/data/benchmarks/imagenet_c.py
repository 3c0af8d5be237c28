"""ImageNet-C: the validation set under nineteen corruptions at five severities."""

from __future__ import annotations

from pathlib import Path

from acclimate.data.base import ImageSource
from acclimate.data.benchmarks.class_folders import (
    Listing,
    list_class_folders,
    list_folders,
    read_listed,
)
from acclimate.data.benchmarks.registry import (
    SEVERITIES,
    Dataset,
    Request,
    generated_images,
    register_dataset,
)
from acclimate.data.labels import imagenet_index
from acclimate.data.preprocessing import Preprocessing
from acclimate.data.shift import DEV, STAND_INS, TEST

__all__ = ["IMAGENET_C", "missing_parts"]

# The published archives; some people keep their names as folders.
_GROUPS = {
    "noise": ("gaussian_noise", "shot_noise", "impulse_noise"),
    "blur": ("defocus_blur", "glass_blur", "motion_blur", "zoom_blur"),
    "weather": ("snow", "frost", "fog", "brightness"),
    "digital": ("contrast", "elastic_transform", "pixelate", "jpeg_compression"),
    "extra": ("speckle_noise", "gaussian_blur", "spatter", "saturate"),
}
_GROUP_OF = {name: group for group, names in _GROUPS.items() for name in names}


def missing_parts(root: Path) -> list[str]:
    """The ``corruption/severity`` folders that are not below ``root``, hold-out ones first.

    For whoever evaluates everything: to refuse at the start what would fail after a day.
    """
    return [
        f"{name}/{severity}"
        for name in (*DEV, *TEST)
        for severity in SEVERITIES
        if _part(root, name, severity) is None
    ]


def _part(root: Path, name: str, severity: int) -> Path | None:
    places = (root / name, root / _GROUP_OF.get(name, name) / name)
    return next((p / str(severity) for p in places if (p / str(severity)).is_dir()), None)


def _open(request: Request) -> ImageSource:
    base, found, classes = _listed(request)
    return read_listed(request, base, found, classes)


def _listed(request: Request) -> tuple[Path, dict[str, Listing], dict[str, int]]:
    """Where a part lies, its images by class folder, and the label of each; all counted."""
    assert request.shift is not None
    assert request.severity is not None
    base = _part(request.root, request.shift, request.severity)
    if base is None:
        archive = _GROUP_OF.get(request.shift, "acclimate corrupt")
        request.refuse(
            f"expected {request.shift}/{request.severity} (of {archive}.tar) in {request.root}, "
            f"but it is not there. Missing in all: {_in_short(missing_parts(request.root))}"
        )
    classes, made = imagenet_index(), generated_images(request.root)
    if made is None:
        return base, list_class_folders(request, base, classes, total=50_000, each=50), classes
    # The classes are those of the set: of whichever part has most of them.
    parts = [part for part in base.parent.iterdir() if part.is_dir()]
    there = {folder for part in parts for folder in list_folders(part)}
    known = {folder: classes[folder] for folder in sorted(there) if folder in classes}
    return base, list_class_folders(request, base, known, total=made), known


def _in_short(parts: list[str]) -> str:
    """Severities drawn together.

    >>> _in_short(["fog/1", "fog/2", "snow/5"])
    'fog (1, 2), snow (5)'
    """
    severities: dict[str, list[str]] = {}
    for part in parts:
        name, _, severity = part.rpartition("/")
        severities.setdefault(name, []).append(severity)
    return ", ".join(
        name if len(found) == len(SEVERITIES) else f"{name} ({', '.join(found)})"
        for name, found in severities.items()
    )


IMAGENET_C = register_dataset(
    Dataset(
        name="imagenet-c",
        title="ImageNet-C, common corruptions of the validation set",
        classes=1000,
        images="50,000 for each of 19 corruptions at 5 severities",
        size="about 65 GB",
        get=(
            "Get noise.tar, blur.tar, weather.tar and digital.tar (test), and extra.tar (the four "
            "hold-out corruptions) from https://zenodo.org/records/2235448 and unpack them"
        ),
        layout=(
            "gaussian_noise/1/n01440764/*.JPEG   19 corruptions × 5 severities × 1,000 classes\n"
            "or the same below noise/, blur/, weather/, digital/ and extra/"
        ),
        shifts=(*DEV, *TEST),
        shift_kind="corruption",
        severities=True,
        dev=DEV,
        stand_ins=STAND_INS,
        # Stored at 224 px, resized and cropped before they were corrupted.
        preprocessing=Preprocessing(size=(224, 224)),
        open=_open,
        missing=missing_parts,
        check=_listed,
    )
)
