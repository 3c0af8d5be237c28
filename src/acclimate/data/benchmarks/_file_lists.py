"""Pictures that a table names, one file each: are they all there, and what do they show."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from acclimate.data.benchmarks.registry import Request
from acclimate.data.folder import FolderSource
from acclimate.data.preprocessing import Preprocessing
from acclimate.errors import AcclimateError

__all__ = ["check_listed", "listed_source", "present"]

_NAMED = 3  # how many of the missing files a message names


def listed_source(
    request: Request,
    folder: Path,
    names: Sequence[str],
    labels: Sequence[int],
    *,
    class_names: Sequence[str] | None,
    preprocessing: Preprocessing | None = None,
) -> FolderSource:
    """The files a table lists, in its order. Missing ones are named before any is decoded."""
    kept = check_listed(request, folder, names)
    return FolderSource(
        folder,
        preprocessing=request.fitting if preprocessing is None else preprocessing,
        names=[names[index] for index in kept],
        labels=[labels[index] for index in kept],
        class_names=None if class_names is None else tuple(class_names),
        cache=request.cache,
        progress=request.progress,
    )


def check_listed(request: Request, folder: Path, names: Sequence[str]) -> list[int]:
    """The numbers of those files of a table that are there, objecting to others that are not."""
    again = [name for name, times in Counter(names).items() if times > 1]
    if again:
        raise AcclimateError(
            f"expected each image once in the table of {request.dataset.name}, got {len(again)} "
            f"that are listed again (first: {again[0]})"
        )
    there = present(folder, names)
    if not there:
        request.refuse(f"expected {len(names):,} images in {folder}, found none of them")
    if len(there) < len(names):
        gone = [name for name in names if name not in there]
        first = ", ".join(gone[:_NAMED]) + (", …" if len(gone) > _NAMED else "")
        request.object_to(f"{len(gone):,} of {len(names):,} images are not in {folder} ({first})")
    return [index for index, name in enumerate(names) if name in there]


def present(folder: Path, names: Sequence[str]) -> set[str]:
    """Those of the files, relative to ``folder``, that are there.

    Each subfolder is listed once: asking for half a million files one by one takes minutes on a
    network drive.
    """
    parents = {name.rpartition("/")[0] for name in names}
    found: set[str] = set()
    for parent in parents:
        try:
            entries = os.listdir(folder / parent)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            raise AcclimateError(f"cannot look into {folder / parent}: {error}") from error
        found.update(f"{parent}/{entry}" if parent else entry for entry in entries)
    return found.intersection(names)
