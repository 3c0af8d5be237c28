"""The benchmark data sets by name, and one door to open any of them."""

from __future__ import annotations

from pathlib import Path

from acclimate.data.base import ImageSource
from acclimate.data.benchmarks._fitting import check_classes_fit
from acclimate.data.benchmarks.record import Dataset, Request
from acclimate.data.corruptions import SEVERITIES
from acclimate.data.labels import ClassList
from acclimate.data.preprocessing import Preprocessing
from acclimate.errors import AcclimateError, unknown_name
from acclimate.registry import Registry

__all__ = [
    "SEVERITIES",
    "Dataset",
    "Request",
    "check_dataset",
    "find_dataset",
    "list_datasets",
    "missing_parts",
    "open_dataset",
    "register_dataset",
]

_NAMED = 5  # how many of a long list of culprits a message names

_DATASETS: Registry[Dataset] = Registry("data set")


def register_dataset(record: Dataset) -> Dataset:
    """Make a data set known under its name; hands the record back."""
    _DATASETS.add(record.name, record)
    return record


def list_datasets(pattern: str = "*") -> list[Dataset]:
    """The records whose names match a wildcard pattern, by name.

    >>> [record.name for record in list_datasets("imagenet-?")]
    ['imagenet-a', 'imagenet-c', 'imagenet-d', 'imagenet-r']
    """
    return [_DATASETS[name] for name in _DATASETS.names(pattern)]


def find_dataset(name: str) -> Dataset:
    """The record of a data set.

    >>> find_dataset("imagenet-r").classes
    200
    """
    return _DATASETS[name]


def missing_parts(name: str, root: str | Path) -> list[str]:
    """What of a data set is not there: for refusing a long run before its first part.

    A glance at folders and files, no count of pictures; empty when all parts are there.
    """
    record, root = find_dataset(name), Path(root).expanduser()
    if not root.exists():
        return [str(root)]
    return [] if record.missing is None else record.missing(root)


def open_dataset(
    name: str,
    root: str | Path,
    *,
    split: str | None = None,
    shift: str | None = None,
    severity: int | None = None,
    preprocessing: Preprocessing | None = None,
    classes: ClassList | None = None,
    cache: int | None = None,
    progress: bool = True,
    incomplete: bool = False,
) -> ImageSource:
    """Open a benchmark data set that was downloaded before.

    Args:
        name: one of `list_datasets`.
        root: the folder it lies in. Nothing is ever downloaded.
        split: which part; None is the first the record names.
        shift: which corruption or domain, for data sets that have them.
        severity: 1 to 5, for data sets that have severities.
        preprocessing: how the model was fed; None is what is usual for the data set.
        classes: the model's, where they are known: a data set of others is refused.
        cache: bytes of pictures to keep in memory; None is a third of what is available.
        progress: show a progress bar on stderr when opening takes longer than a second.
        incomplete: go on, with a warning, when files or classes are missing or unreadable.

    Raises:
        AcclimateError: for anything unknown or missing. Files are counted before any is decoded.
    """
    request = _request(
        find_dataset(name),
        root,
        split=split,
        shift=shift,
        severity=severity,
        preprocessing=preprocessing,
        cache=cache,
        progress=progress,
        incomplete=incomplete,
    )
    source = request.dataset.open(request)
    if source.skipped:
        first = "; ".join(f"{item.name}: {item.reason}" for item in source.skipped[:_NAMED])
        more = "; …" if len(source.skipped) > _NAMED else ""
        total = len(source.skipped) + len(source)
        request.object_to(
            f"{len(source.skipped)} of {total} images of {name} cannot be read ({first}{more})"
        )
    check_classes_fit(request.dataset, source, classes)
    return source


def check_dataset(
    name: str,
    root: str | Path,
    *,
    split: str | None = None,
    shift: str | None = None,
    severity: int | None = None,
    incomplete: bool = False,
) -> None:
    """Refuse what `open_dataset` would refuse before it decodes a picture, and decode none."""
    record = find_dataset(name)
    request = _request(
        record,
        root,
        split=split,
        shift=shift,
        severity=severity,
        progress=False,
        incomplete=incomplete,
    )
    if record.check is not None:
        record.check(request)


def _request(
    record: Dataset,
    root: str | Path,
    *,
    split: str | None,
    shift: str | None,
    severity: int | None,
    progress: bool,
    incomplete: bool,
    preprocessing: Preprocessing | None = None,
    cache: int | None = None,
) -> Request:
    request = Request(
        dataset=record,
        root=Path(root).expanduser(),
        split=_split(record, split),
        shift=_shift(record, shift),
        severity=_severity(record, severity),
        preprocessing=record.preprocessing if preprocessing is None else preprocessing,
        cache=cache,
        progress=progress,
        incomplete=incomplete,
    )
    if not request.root.exists():
        request.refuse(f"expected {record.name} in {request.root}, but nothing is there")
    return request


def _split(record: Dataset, split: str | None) -> str | None:
    if split is None:
        return record.splits[0] if record.splits else None
    if not record.splits:
        raise AcclimateError(f"{record.name} has no splits, got split={split!r}; leave it out")
    if split not in record.splits:
        raise unknown_name(f"split of {record.name}", str(split), record.splits)
    return split


def _shift(record: Dataset, shift: str | None) -> str | None:
    kind = record.shift_kind
    if not record.shifts:
        if shift is None:
            return None
        raise AcclimateError(f"{record.name} has no {kind}s, got shift={shift!r}; leave it out")
    if shift is None:
        raise AcclimateError(
            f"{record.name} has {len(record.shifts)} {kind}s, and one has to be chosen; pass "
            f"shift= one of {', '.join(record.shifts)}"
        )
    if shift not in (*record.shifts, *record.stand_ins):
        raise unknown_name(f"{kind} of {record.name}", str(shift), record.shifts)
    return shift


def _severity(record: Dataset, severity: int | None) -> int | None:
    if not record.severities:
        if severity is None:
            return None
        raise AcclimateError(f"{record.name} has no severities, got {severity!r}; leave it out")
    # True and 3.0 equal whole numbers too, but nobody means them.
    if isinstance(severity, bool) or not hasattr(severity, "__index__"):
        raise AcclimateError(
            f"{record.name} comes in severities; expected severity= 1, 2, 3, 4 or 5, got "
            f"{severity!r}"
        )
    if severity not in SEVERITIES:
        raise AcclimateError(f"expected a severity of 1, 2, 3, 4 or 5, got {severity!r}")
    return severity
