"""Pictures in a folder, and the labels that its sub-folders give."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from acclimate.data.encoded import EncodedSource
from acclimate.data.labels import ClassList, Labels, check_labels, labels_of_paths
from acclimate.data.preprocessing import Preprocessing
from acclimate.errors import AcclimateError, AcclimateWarning
from acclimate.metrics import Scoring

__all__ = ["EXTENSIONS", "FolderSource", "find_images"]

EXTENSIONS = frozenset(
    (".jpg", ".jpeg", ".png", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm")
)
_UNREAD = frozenset(
    (".heic", ".heif", ".avif", ".jxl", ".dng", ".cr2", ".cr3", ".nef", ".arw", ".raw")
)


class FolderSource(EncodedSource):
    """The image files below a folder, in the order of their paths.

    Sub-folders that name classes give labels; ``labels`` overrides them, one per image file found,
    readable or not.

    A benchmark knows its files: ``names`` (relative paths, with ``/``) are read instead of what a
    search would find, in their order, and ``class_names`` and ``scoring`` are as for any source.
    """

    def __init__(
        self,
        root: str | Path,
        *,
        preprocessing: Preprocessing,
        labels: Labels | None = None,
        classes: ClassList | None = None,
        names: Sequence[str] | None = None,
        class_names: Sequence[str] | None = None,
        scoring: Scoring | None = None,
        cache: int | None = None,
        progress: bool = True,
    ) -> None:
        base = Path(root)
        found = find_images(base) if names is None else _some(base, names)
        if labels is None:
            known, folders = labels_of_paths(found, classes)
            class_names = folders if class_names is None else class_names
        else:
            count = None if classes is None else len(classes)
            known = check_labels(labels, count=len(found), class_count=count)

        super().__init__(
            lambda row: (base / found[row]).read_bytes(),
            names=found,
            where=str(base),
            preprocessing=preprocessing,
            labels=known,
            class_names=class_names,
            scoring=scoring,
            cache=cache,
            progress=progress,
        )


def find_images(root: Path) -> list[str]:
    """Relative paths (with ``/``) of all image files below ``root``, sorted; hidden ones aside."""
    if not root.exists():
        raise AcclimateError(f"expected a folder of images, but there is no {root}")
    if not root.is_dir():
        raise AcclimateError(f"expected a folder of images, but {root} is a file")
    files = list(_walk(root))
    unread = Counter(file.suffix.lower() for file in files if file.suffix.lower() in _UNREAD)
    images = sorted(
        file.relative_to(root).as_posix() for file in files if file.suffix.lower() in EXTENSIONS
    )
    if not images:
        known = ", ".join(sorted(extension[1:] for extension in EXTENSIONS))
        content = f"only {len(files)} other files" if files else "no files at all"
        raise AcclimateError(f"expected image files ({known}) in {root}, found {content}")
    if unread:
        kinds = ", ".join(f"{count:,} {kind}" for kind, count in sorted(unread.items()))
        warnings.warn(
            f"pictures of kinds that are not read are left out ({kinds}); convert them to JPEG or "
            "PNG to have them too",
            AcclimateWarning,
            stacklevel=2,
        )
    return images


def _some(root: Path, names: Sequence[str]) -> list[str]:
    if not names:
        raise AcclimateError(f"expected at least one image in {root}, got an empty list")
    return list(names)


def _walk(folder: Path, above: frozenset[Path] = frozenset()) -> Iterator[Path]:
    # Linked folders are followed, since data sets are often assembled so, but never in a ring.
    real = folder.resolve()
    if real in above:
        return
    try:
        entries = [entry for entry in folder.iterdir() if not entry.name.startswith(".")]
    except OSError as error:
        raise AcclimateError(f"cannot look into {folder}: {error.strerror}") from error
    for entry in entries:
        if entry.is_dir():
            yield from _walk(entry, above | {real})
        else:
            yield entry
