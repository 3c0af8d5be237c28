"""Benchmarks laid out as one folder for each class: listed and counted before anything is read."""

from __future__ import annotations

import contextlib
import os
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from acclimate.data.benchmarks.registry import Request
from acclimate.data.files import EXTENSIONS, FolderSource, list_entries
from acclimate.data.labels import Scoring
from acclimate.data.preprocessing import Preprocessing
from acclimate.errors import AcclimateError

__all__ = [
    "IMAGENET_PREPROCESSING",
    "ClassFolders",
    "Listing",
    "check_counts",
    "check_present",
    "folder_source",
    "list_folders",
    "list_images",
    "present_source",
    "some",
    "table_lines",
]

IMAGENET_PREPROCESSING = Preprocessing(size=(224, 224), resize=256)
"""Shorter side to 256, centre 224: how the paper, and nearly everyone, prepares these sets."""


@dataclass(frozen=True)
class Listing:
    """The image files of one folder, sorted, and those of them without a single byte."""

    files: tuple[str, ...]
    empty: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ClassFolders:
    """The class folders of a data set, and what has to be in them."""

    base: Path  # the folder that holds the class folders
    label_of: Mapping[str, int]  # every class folder there has to be, and its label
    total: int | None  # how many images there have to be; None where unknown
    each: int | None = None  # how many in each class, where all have as many
    scoring: Scoring | None = None
    named: bool = True  # by names of classes, not by their indices
    classes: tuple[str, ...] | None = None  # by label, where these are not the folders' names
    others: Collection[str] = ()  # folders that may be there too, and are left out

    def check(self, request: Request) -> dict[str, Listing]:
        """The images by class folder, once all of them are seen to be there; none is opened."""
        there = [name for name in list_folders(self.base) if name not in self.others]
        _check_classes(request, self.base, there, self.label_of)
        found = {name: list_images(self.base / name) for name in self.label_of if name in there}
        check_counts(request, self.base, found, total=self.total, each=self.each)
        return found

    def open(self, request: Request, found: Mapping[str, Listing] | None = None) -> FolderSource:
        """The images of a listing, in the order of its folders; of all, once they are there."""
        found = self.check(request) if found is None else found
        names = [f"{folder}/{file}" for folder, listing in found.items() for file in listing.files]
        if not names:
            request.refuse(f"expected images of {request.dataset.name} in {self.base}, found none")
        labels = [self.label_of[folder] for folder in found for _ in found[folder].files]
        return folder_source(
            request,
            self.base,
            names,
            labels,
            class_names=(self.classes or tuple(found)) if self.named else None,
            scoring=self.scoring,
        )


def folder_source(
    request: Request,
    base: Path,
    names: Sequence[str],
    labels: Sequence[int],
    *,
    class_names: Sequence[str] | None,
    scoring: Scoring | None = None,
) -> FolderSource:
    """These files below a folder, to be read as the request says."""
    return FolderSource(
        base,
        preprocessing=request.fitting,
        names=names,
        labels=labels,
        class_names=class_names,
        scoring=scoring,
        cache=request.cache,
        progress=request.progress,
    )


def _check_classes(
    request: Request, base: Path, folders: Sequence[str], expected: Iterable[str]
) -> None:
    """Refuse folders that are no class, whose images would have no label, and missing ones."""
    wanted = dict.fromkeys(expected)
    what = f"{len(wanted)} class folders of {request.dataset.name}"
    unknown = sorted(set(folders) - set(wanted))
    if len(unknown) == len(folders):
        request.refuse(f"expected the {what} in {base}")
    if unknown:
        raise AcclimateError(
            f"{len(unknown)} of {len(folders)} folders in {base} are none of the {what}: "
            f"{some(unknown)}; expected names such as {some(list(wanted), 2)}. Move them away, or "
            "choose the data set that has them"
        )
    absent = [name for name in wanted if name not in set(folders)]
    if absent:
        request.object_to(
            f"expected the {what} in {base}, but {len(absent)} are missing: {some(absent)}"
        )


def check_counts(
    request: Request,
    base: Path,
    found: Mapping[str, Listing],
    *,
    total: int | None,
    each: int | None = None,
) -> None:
    """Object to classes with too few or too many images, and to empty files, by name."""
    counts = {name: len(listing.files) for name, listing in found.items()}
    count = sum(counts.values())
    wrong = [n for n, c in counts.items() if c == 0 or (each is not None and c != each)]
    if wrong or (total is not None and count != total):
        wanted = "images in every class" if total is None else f"{total:,} images"
        every = "" if each is None else f", {each} in each class"
        # Where the classes differ in size, the smallest (or largest) are the likely ones.
        surplus = total is not None and count > total
        named = wrong or sorted(counts, key=lambda name: counts[name], reverse=surplus)[:3]
        kind = "" if wrong else f"the {'largest' if surplus else 'smallest'} classes: "
        detail = kind + some([f"{name} has {counts[name]}" for name in named])
        request.object_to(
            f"expected {wanted} of {request.dataset.name} in {base}{every}, found {count:,} "
            f"({detail})"
        )
    empty = [f"{name}/{file}" for name, listing in found.items() for file in listing.empty]
    if empty:
        request.object_to(
            f"{len(empty)} of {count:,} image files in {base} are empty, as after a download that "
            f"broke off: {some(empty)}"
        )


def list_folders(base: Path) -> list[str]:
    """The names of the folders in a folder, sorted; hidden ones aside."""
    return sorted(entry.name for entry in list_entries(base) if entry.is_dir())


def list_images(folder: Path) -> Listing:
    """The image files right in a folder, without opening any."""
    files: list[str] = []
    empty: list[str] = []
    for entry in sorted(list_entries(folder), key=lambda entry: entry.name):
        if os.path.splitext(entry.name)[1].lower() in EXTENSIONS and not entry.is_dir():
            files.append(entry.name)
            # A link to nothing is not empty: reading it will fail with its name.
            with contextlib.suppress(OSError):
                empty += [entry.name] if entry.stat().st_size == 0 else []
    return Listing(tuple(files), tuple(empty))


def some(names: Sequence[str], count: int = 5) -> str:
    """The first few of many."""
    return ", ".join(names[:count]) + (", …" if len(names) > count else "")


def table_lines(path: Path) -> Iterator[tuple[int, str]]:
    """The lines of a list that are not blank, and their numbers."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise AcclimateError(f"expected lines of text in {path}, got: {error}") from error
    return ((number, line) for number, line in enumerate(lines, start=1) if line.strip())


def present_source(
    request: Request,
    folder: Path,
    names: Sequence[str],
    labels: Sequence[int],
    *,
    class_names: Sequence[str],
) -> FolderSource:
    """The files a table lists, in its order. Missing ones are named before any is decoded."""
    kept = check_present(request, folder, names)
    return folder_source(
        request,
        folder,
        [names[index] for index in kept],
        [labels[index] for index in kept],
        class_names=tuple(class_names),
    )


def check_present(request: Request, folder: Path, names: Sequence[str]) -> list[int]:
    """The indices of those files of a table that are there, objecting to others that are not."""
    again = [name for name, times in Counter(names).items() if times > 1]
    if again:
        raise AcclimateError(
            f"expected each image once in the table of {request.dataset.name}, got {len(again)} "
            f"that are listed again (first: {again[0]})"
        )
    found: set[str] = set()
    # Each subfolder is listed once: asking for half a million files one by one takes minutes on a
    # network drive.
    for parent in {name.rpartition("/")[0] for name in names}:
        try:
            entries = os.listdir(folder / parent)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            raise AcclimateError(f"cannot list {folder / parent}: {error}") from error
        found.update(f"{parent}/{entry}" if parent else entry for entry in entries)
    kept = [index for index, name in enumerate(names) if name in found]
    if not kept:
        request.refuse(f"expected {len(names):,} images in {folder}, found none of them")
    if len(kept) < len(names):
        gone = [name for name in names if name not in found]
        request.object_to(
            f"{len(gone):,} of {len(names):,} images are not in {folder} ({some(gone, 3)})"
        )
    return kept
