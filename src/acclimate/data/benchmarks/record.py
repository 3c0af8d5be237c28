"""What is known of a benchmark data set, and what somebody asked of it."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

from tqdm import tqdm

from acclimate.data.base import ImageSource
from acclimate.data.pixels import want_preprocessing
from acclimate.data.preprocessing import Preprocessing
from acclimate.errors import AcclimateError, AcclimateWarning

__all__ = ["Dataset", "Request"]


@dataclass(frozen=True, kw_only=True)
class Dataset:
    """One benchmark: the facts a person wants before getting it, and the function that opens it.

    Attributes:
        name: as it is asked for, ``imagenet-c``.
        title: one line for a listing.
        classes: how many classes it is scored over.
        images: how many pictures, in words.
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
        preprocessing: how its pictures are usually prepared; None where there is no such custom.
        missing: what is not there below a root, at a glance; None where there are no parts.
        check: refuses what `open` would refuse before it decodes the first picture; None where
            that is not known without decoding.
    """

    name: str
    title: str
    classes: int
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
        strangers = sorted(set(self.dev) - set(self.shifts))
        if strangers:
            raise AcclimateError(
                f"expected dev shifts of {self.name} to be among its shifts, got {strangers}"
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
        cache: bytes of pictures to keep in memory; None is a third of what is available.
        progress: show a progress bar when opening takes longer than a second.
        incomplete: warn of wrong counts, missing parts and unreadable files, and go on.
    """

    dataset: Dataset
    root: Path
    split: str | None = None
    shift: str | None = None
    severity: int | None = None
    preprocessing: Preprocessing | None = None
    cache: int | None = None
    progress: bool = True
    incomplete: bool = False

    @property
    def fitting(self) -> Preprocessing:
        """The preprocessing, or the error that says why there has to be one."""
        return want_preprocessing(self.preprocessing, f"the images of {self.dataset.name}")

    def refuse(self, problem: str) -> NoReturn:
        """Raise: something is not there at all. The error says how to get it."""
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
            f"{problem}; mend the copy in {self.root}, or pass --incomplete (incomplete=True) to "
            "go on with what is there (results will then not compare with published ones)"
        )

    def note(self, text: str) -> None:
        """Say something that is worth knowing and nothing to worry about."""
        if self.progress:
            tqdm.write(f"{self.dataset.name}: {text}", file=sys.stderr)
