"""ImageNet-D: the images of DomainNet (VisDA 2019) whose classes ImageNet knows, by domain."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path

from acclimate.data.base import ImageSource
from acclimate.data.benchmarks.class_folders import (
    IMAGENET_PREPROCESSING,
    Listing,
    check_classes,
    check_counts,
    list_folders,
    list_images,
    read_listed,
    some,
)
from acclimate.data.benchmarks.registry import Dataset, Request, register_dataset
from acclimate.data.imagenet_d import imagenet_d_classes, imagenet_d_scoring, left_out
from acclimate.errors import AcclimateError

__all__ = ["DOMAINS", "IMAGENET_D"]

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
DOMAINS = tuple(_AT_LEAST)
_LIST_PLACES = ("", "txt", "splits")


def _open(request: Request) -> ImageSource:
    """By default every image of the domain, as the authors' reference code has it.

    DomainNet's own lists, made to train on one part and test on the other, give the splits.
    """
    base, found, label_of = _listed(request)
    return read_listed(request, base, found, label_of, scoring=imagenet_d_scoring())


def _listed(request: Request) -> tuple[Path, dict[str, Listing], dict[str, int]]:
    """The folder of a domain, its images by class folder, and the label of each; all counted."""
    assert request.shift is not None
    base = request.root / request.shift
    if not base.is_dir():
        request.refuse(
            f"expected the folder {request.shift} in {request.root}, but it is not there. Missing "
            f"in all: {', '.join(_missing(request.root))}"
        )
    label_of = {name: label for label, name in enumerate(imagenet_d_classes().names)}
    folders = list_folders(base)
    outside = [name for name in folders if name in left_out()]
    check_classes(request, base, [name for name in folders if name not in outside], label_of)
    found = {name: list_images(base / name) for name in label_of if name in folders}
    check_counts(request, base, found, total=None)
    _check_whole(request, base, found, outside)
    if request.split != "all":
        found = _listed_only(request, base, found)
    return base, found, label_of


def _check_whole(
    request: Request, base: Path, found: Mapping[str, Listing], outside: list[str]
) -> None:
    """Count the domain, its classes unknown to ImageNet included, where all of them are there."""
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


def _listed_only(request: Request, base: Path, found: Mapping[str, Listing]) -> dict[str, Listing]:
    """The listing without what DomainNet's list of the split does not name."""
    path = _list_file(request, f"{base.name}_{request.split}.txt")
    listed = _read_list(path, base.name, found)
    absent = [
        f"{folder}/{file}"
        for folder, files in listed.items()
        for file in sorted(set(files) - set(found[folder].files))
    ]
    if absent:
        request.object_to(f"{len(absent)} images of {path} are not in {base}: {some(absent)}")
    return {
        folder: Listing(tuple(f for f in listing.files if f in listed[folder]), ())
        for folder, listing in found.items()
    }


def _list_file(request: Request, name: str) -> Path:
    places = [request.root / place / name for place in _LIST_PLACES]
    path = next((place for place in places if place.is_file()), None)
    if path is None:
        request.refuse(f"the split {request.split!r} needs {name} in {request.root}, not there")
    return path


def _read_list(path: Path, domain: str, folders: Collection[str]) -> dict[str, set[str]]:
    """File names by class folder, from lines ``clipart/zebra/clipart_344_000001.jpg 344``."""
    listed: dict[str, set[str]] = {folder: set() for folder in folders}
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise AcclimateError(f"expected lines of text in {path}, got: {error}") from error
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
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
    return [domain for domain in DOMAINS if not (root / domain).is_dir()]


IMAGENET_D = register_dataset(
    Dataset(
        name="imagenet-d",
        title="ImageNet-D, the classes of DomainNet that ImageNet knows, in six styles",
        classes=164,
        images="about half of DomainNet's 590,000",
        size="about 18 GB",
        get="Get the six zip files from https://ai.bu.edu/M3SDA/ and unpack them",
        layout=(
            "clipart/alarm_clock/*.jpg, and so for infograph, painting, quickdraw, real, sketch\n"
            "clipart_train.txt, clipart_test.txt, …   only for the splits train and test"
        ),
        splits=("all", "test", "train"),
        shifts=DOMAINS,
        shift_kind="domain",
        preprocessing=IMAGENET_PREPROCESSING,
        open=_open,
        check=_listed,
        missing=_missing,
    )
)
