"""The benchmark data sets by name, and one door to open any of them."""

from __future__ import annotations

import re
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from tqdm import tqdm

from acclimate.data.base import ImageSource
from acclimate.data.corruptions import SEVERITIES
from acclimate.data.decode import want_preprocessing
from acclimate.data.labels import ClassList, classes_named
from acclimate.data.preprocessing import Preprocessing
from acclimate.errors import AcclimateError, AcclimateWarning, unknown_name
from acclimate.reading import read_json
from acclimate.registry import Registry
from acclimate.text import user_path

__all__ = [
    "SEVERITIES",
    "Dataset",
    "Request",
    "check_classes_fit",
    "check_dataset",
    "find_dataset",
    "generated_images",
    "list_datasets",
    "missing_parts",
    "open_dataset",
    "register_dataset",
]


@dataclass(frozen=True, kw_only=True)
class Dataset:
    """One benchmark: what to know before getting it, and the function that opens it.

    Attributes:
        name: as it is asked for, ``imagenet-c``.
        title: one line for a listing.
        classes: how many classes it is scored over; None where they are the model's, and nothing
            is known of what has to be there.
        images: how many images, in words.
        size: how much there is to download, in words.
        get: what to get, and from which official page.
        layout: what is expected below the root, a few lines.
        open: reads what a `Request` asks for.
        splits: the first one is opened when none is asked for; empty where there is one only.
        shifts: the corruptions or domains, one of which has to be chosen; empty where none is.
        shift_kind: what a shift is called here, "corruption" or "domain".
        severities: whether the shifts come in five severities.
        dev: the shifts on which hyper-parameters may be chosen.
        stand_ins: shifts of our own making that can be opened in the place of one of ``shifts``.
        preprocessing: how its images are usually prepared; None where there is no such custom.
        missing: lists what is not there below a root; None where there are no parts.
        check: refuses what `open` refuses before it decodes an image; None where nothing is.
    """

    name: str
    title: str
    classes: int | None
    images: str
    size: str
    get: str
    layout: str
    open: Callable[[Request], ImageSource] = field(repr=False)
    splits: tuple[str, ...] = ()
    shifts: tuple[str, ...] = ()
    shift_kind: str = "shift"
    severities: bool = False
    dev: tuple[str, ...] = ()
    stand_ins: Mapping[str, str] = field(default_factory=dict)
    preprocessing: Preprocessing | None = None
    missing: Callable[[Path], list[str]] | None = field(default=None, repr=False)
    check: Callable[[Request], object] | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        unknown = sorted(set(self.dev) - set(self.shifts))
        if unknown:
            raise AcclimateError(
                f"expected dev shifts of {self.name} to be among its shifts, got {unknown}"
            )
        if self.severities and not self.shifts:
            raise AcclimateError(f"{self.name} has severities, but of no shift; name its shifts")

    @property
    def test(self) -> tuple[str, ...]:
        """The shifts on which results are reported: all that are not for choosing on."""
        return tuple(shift for shift in self.shifts if shift not in self.dev)

    def how_to_get(self, root: Path) -> str:
        """What to get, how big it is, and where to put it."""
        layout = "\n".join(f"  {line}" for line in self.layout.strip().splitlines())
        return (
            f"{self.title}\n  images:   {self.images}\n  download: {self.size}\n{self.get}\n"
            f"Nothing is downloaded for you. Put it below {root}, so that there is\n{layout}"
        )


@dataclass(frozen=True, kw_only=True)
class Request:
    """What `open_dataset` was asked for, checked against the data set's record.

    Attributes:
        dataset: the record.
        root: an existing folder (or file).
        split: one of the record's splits; None where it has none.
        shift: one of the record's shifts; None where it has none.
        severity: 1 to 5; None where the record has none.
        preprocessing: as asked for, or as is usual for the data set; None where neither is known.
        classes: the model's, where they are known.
        cache: bytes of images to keep in memory; None is a third of what is available.
        progress: show a progress bar when opening takes longer than a second.
        incomplete: only warn of wrong counts, missing parts and unreadable files.
    """

    dataset: Dataset
    root: Path
    split: str | None = None
    shift: str | None = None
    severity: int | None = None
    preprocessing: Preprocessing | None = None
    classes: ClassList | None = None
    cache: int | None = None
    progress: bool = True
    incomplete: bool = False

    @property
    def fitting(self) -> Preprocessing:
        """The preprocessing, or the error that says why there has to be one."""
        return want_preprocessing(self.preprocessing, f"the images of {self.dataset.name}")

    def refuse(self, problem: str) -> NoReturn:
        """Raise: something is not there at all. The error tells how to get it."""
        raise AcclimateError(f"{problem}\n{self.dataset.how_to_get(self.root)}")

    def object_to(self, problem: str) -> None:
        """Raise for a data set that is not whole, or only warn if that was asked for."""
        if self.incomplete:
            warnings.warn(
                f"{problem}; results will not compare with published ones",
                AcclimateWarning,
                stacklevel=3,
            )
            return
        raise AcclimateError(
            f"{problem}; repair the copy in {self.root}, or pass --incomplete (incomplete=True) to "
            "use what is there (results will then not compare with published ones)"
        )

    def note(self, text: str) -> None:
        """Print what is worth knowing and no reason to worry."""
        if self.progress:
            tqdm.write(f"{self.dataset.name}: {text}", file=sys.stderr)


_DATASETS: Registry[Dataset] = Registry("data set")


def register_dataset(record: Dataset) -> Dataset:
    """Register a data set under its name; returns the record."""
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

    Looks for folders and files, and counts no images; empty when all parts are there.
    """
    record, root = find_dataset(name), user_path(root)
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
        cache: bytes of images to keep in memory; None is a third of what is available.
        progress: show a progress bar on stderr when opening takes longer than a second.
        incomplete: only warn when files or classes are missing or unreadable.

    Raises:
        AcclimateError: for anything unknown or missing. Files are counted before any is decoded.
    """
    request = _request(
        name,
        root,
        split,
        shift,
        severity,
        preprocessing=preprocessing,
        classes=classes,
        cache=cache,
        progress=progress,
        incomplete=incomplete,
    )
    source = request.dataset.open(request)
    if source.skipped and request.dataset.classes is not None:
        first = "; ".join(f"{item.name}: {item.reason}" for item in source.skipped[:5])
        more = "; …" if len(source.skipped) > 5 else ""
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
    """Refuse what `open_dataset` would refuse before it decodes an image, and decode none."""
    request = _request(name, root, split, shift, severity, incomplete=incomplete, progress=False)
    if request.dataset.check is not None:
        request.dataset.check(request)


def _request(
    name: str,
    root: str | Path,
    split: str | None,
    shift: str | None,
    severity: int | None,
    **options: Any,
) -> Request:
    record = find_dataset(name)
    if options.get("preprocessing") is None:
        options["preprocessing"] = record.preprocessing
    request = Request(
        dataset=record,
        root=user_path(root),
        split=_split(record, split),
        shift=_shift(record, shift),
        severity=_severity(record, severity),
        **options,
    )
    if record.classes is not None and not request.root.exists():
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
    # True and 3.0 equal whole numbers too, but are mistakes.
    if isinstance(severity, bool) or not hasattr(severity, "__index__"):
        raise AcclimateError(
            f"{record.name} comes in severities; expected severity= 1, 2, 3, 4 or 5, got "
            f"{severity!r}"
        )
    if severity not in SEVERITIES:
        raise AcclimateError(f"expected a severity of 1, 2, 3, 4 or 5, got {severity!r}")
    return severity


def generated_images(root: Path) -> int | None:
    """How many clean images a set was made from, by its manifest; None without one."""
    manifest = root / "manifest.json"
    if not manifest.is_file():
        return None
    content = read_json(manifest)
    images = content.get("images") if isinstance(content, dict) else None
    return images if type(images) is int else None


_NUMBERED = re.compile(r"((label|class)[ _]?)?\d+", re.IGNORECASE)
_WORDNET = re.compile(r"n\d{8}")


def check_classes_fit(record: Dataset, images: ImageSource, classes: ClassList | None) -> None:
    """Refuse images of a data set whose classes are other than the model's, or in another order.

    Its labels are indices, which would silently be compared with the model's. Where none of its
    names is known to the model they may be other words for the same: that is a warning. Nothing is
    checked where the model does not know its classes, or has only indices for them, and where
    predictions are scored through a map, which has its own check.
    """
    if record.classes is None or classes is None or images.scoring is not None:
        return
    names = tuple(images.class_names or ())
    apart = None
    if record.classes != len(classes):
        apart = f"{record.classes:,} classes and {len(classes):,}"
    elif (place := _misplaced(names, classes)) is not None:
        apart = f"class {place} is {names[place]!r}, in the model {classes.names[place]!r}"
    if apart is not None:
        raise AcclimateError(
            f"the classes of {record.name} are not the model's ({apart}), so predictions cannot be "
            f"compared with its labels; choose a model for {record.name}"
        )
    if _none_in_common(names, classes):
        warnings.warn(
            f"no class of {record.name} ({names[0]}, ...) is known to the model "
            f"({classes.names[0]}, ...) by that name: predictions are compared with labels by "
            "index, which is right only if both have the same classes in the same order",
            AcclimateWarning,
            stacklevel=3,
        )


def _misplaced(names: Sequence[str], classes: ClassList) -> int | None:
    """The first class that the model knows by this name, but at another index.

    Only where there are as many names as the model has are they in the order of the labels.

    >>> three = ClassList(("bird", "cat", "dog"))
    >>> _misplaced(["bird", "dog", "cat"], three), _misplaced(["bird", "feline", "dog"], three)
    (1, None)
    >>> _misplaced(["dog", "cat"], three) is None
    True
    """
    if len(names) != len(classes):
        return None
    found = enumerate(classes_named(names, classes))
    return next((n for n, index in found if index is not None and index != n), None)


def _none_in_common(names: Sequence[str], classes: ClassList) -> bool:
    """Whether both have names, and not one in common."""
    if not names or all(_NUMBERED.fullmatch(name) for name in classes.names):
        return False
    if classes.ids is None and all(_WORDNET.fullmatch(name) for name in names):
        return False
    return set(classes_named(names, classes)) == {None}
