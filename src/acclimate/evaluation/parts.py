"""What a data set falls into: one part for each shift and severity, opened when it is its turn."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from tqdm import tqdm

from acclimate.data import ClassList, ImageSource, Preprocessing
from acclimate.data.benchmarks import (
    Dataset,
    check_dataset,
    find_dataset,
    missing_parts,
    open_dataset,
)
from acclimate.data.corrupted import choose_shifts
from acclimate.data.corruptions import PRESETS, SEVERITIES
from acclimate.data.shift import Shift, ShiftedSource
from acclimate.errors import AcclimateError, unknown_name

__all__ = ["Part", "dataset_parts", "image_parts", "made_shifts", "own_shifts"]

_CLEAN = "clean"


@dataclass(frozen=True, kw_only=True)
class Part:
    """One shift at one severity.

    Attributes:
        shift: the corruption or domain, "clean" where there is none.
        severity: 1 to 5, None where there are no severities.
        open: gives the images.
        made: the corruption that is made on the way; None where images are taken as they lie.
    """

    shift: str
    severity: int | None
    open: Callable[[], ImageSource]
    made: Shift | None = None

    @property
    def name(self) -> str:
        """fog:3, fog:3@7 for another draw, or sketch."""
        draw = f"@{self.made.seed}" if self.made and self.made.seed else ""
        return self.shift if self.severity is None else f"{self.shift}:{self.severity}{draw}"


def image_parts(
    source: ImageSource, shifts: Sequence[str], *, device: torch.device | str = "cpu"
) -> list[Part]:
    """Clean images, or the corruptions of them that words such as ``imagenet/fog:3`` ask for.

    ``imagenet/test`` and ``cifar/fog`` stand for many: all test corruptions, all five severities.
    ``cifar/fog:3@7`` is another draw. They are made on ``device``.
    """
    if not shifts:
        return [Part(shift=_CLEAN, severity=None, open=lambda: source)]
    return [
        Part(
            shift=shift.kind,
            severity=shift.severity,
            open=functools.partial(ShiftedSource, source, shift, device=device),
            made=shift,
        )
        for shift in made_shifts(shifts)
    ]


def made_shifts(words: Sequence[str]) -> list[Shift]:
    """The corruptions that words ask to be made, each once.

    >>> [str(shift) for shift in made_shifts(["cifar/fog:2", "cifar/dev:1@3"])][:2]
    ['cifar/fog:2', 'cifar/speckle_noise:1@3']
    """
    made: dict[Shift, None] = {}  # a set that keeps its order
    for word in words:
        preset, slash, what = word.partition("/")
        if not slash:
            raise AcclimateError(
                f"expected a shift with the preset it is made by, such as imagenet/{word} or "
                f"cifar/{word}, got {word!r}"
            )
        if preset not in PRESETS:
            raise unknown_name("preset", preset, PRESETS)
        what, at, seed = what.partition("@")
        if at and not seed.isdecimal():
            raise AcclimateError(f"expected a number after the @ for another draw, got {word!r}")
        for name, severities in choose_shifts([what]).items():
            for severity in severities:
                shift = Shift(preset=preset, name=name, severity=severity, seed=int(seed or 0))
                made[shift] = None
    presets = sorted({shift.preset for shift in made})
    if len(presets) > 1:
        raise AcclimateError(
            f"expected shifts of one preset, got {' and '.join(presets)}; evaluate them one after "
            "the other"
        )
    return list(made)


def dataset_parts(
    name: str,
    root: str | Path,
    shifts: Sequence[str] = (),
    *,
    split: str | None = None,
    preprocessing: Preprocessing | None = None,
    classes: ClassList | None = None,
    incomplete: bool = False,
    progress: bool = True,
    device: torch.device | str = "cpu",
) -> list[Part]:
    """The parts of a benchmark data set; all are looked at before the first picture is decoded.

    Args:
        name: one of ``list_datasets``.
        root: where it lies.
        shifts: ``all``, ``dev``, ``test``, names, names with a severity; none means ``test``. A
            data set without shifts takes those of `image_parts`.
        split: which part of it; None is its first.
        preprocessing: how the model was fed; None is what is usual for the data set.
        classes: the model's, where they are known: a data set of others is refused.
        incomplete: warn of wrong counts instead of refusing them.
        progress: show bars on stderr.
        device: where corruptions are made on the way, if they are.
    """
    record = find_dataset(name)

    def opened(shift: str | None = None, severity: int | None = None) -> ImageSource:
        return open_dataset(
            name,
            root,
            split=split,
            shift=shift,
            severity=severity,
            preprocessing=preprocessing,
            classes=classes,
            progress=progress,
            incomplete=incomplete,
        )

    if not record.shifts:
        return image_parts(opened(), shifts, device=device)
    chosen = _with_stand_ins(record, Path(root), own_shifts(record, shifts))
    _refuse_missing(record, root, chosen)
    for shift, severity in tqdm(chosen, desc="files", delay=1, disable=not progress):
        check_dataset(
            name, root, split=split, shift=shift, severity=severity, incomplete=incomplete
        )
    return [
        Part(shift=shift, severity=severity, open=functools.partial(opened, shift, severity))
        for shift, severity in chosen
    ]


def own_shifts(record: Dataset, words: Sequence[str]) -> list[tuple[str, int | None]]:
    """The shifts and severities of a data set that words ask for, each once; none means test."""
    groups = {"all": record.shifts, "dev": record.dev, "test": record.test}
    chosen: dict[tuple[str, int | None], None] = {}  # a set that keeps its order
    for word in words or ("test",):
        if "/" in word:
            raise AcclimateError(
                f"{record.name} brings its own {record.shift_kind}s, got {word!r}, which would be "
                "made on the way; leave the preset out"
            )
        name, colon, severity = word.partition(":")
        names = groups.get(name, (name,))
        if not names:
            raise AcclimateError(f"{record.name} has no {name} {record.shift_kind}s, got {word!r}")
        for each in names:
            if each not in (*record.shifts, *record.stand_ins):
                raise unknown_name(f"{record.shift_kind} of {record.name}", each, record.shifts)
            for number in _severities(record, word, severity if colon else None):
                chosen[each, number] = None
    return list(chosen)


def _with_stand_ins(
    record: Dataset, root: Path, chosen: Sequence[tuple[str, int | None]]
) -> list[tuple[str, int | None]]:
    """A set of our own making has its frost-procedural where the published one has its frost."""
    standing = {
        place: name
        for name, place in record.stand_ins.items()
        if _is_there(root, name) and not _is_there(root, place)
    }
    return [(standing.get(shift, shift), severity) for shift, severity in chosen]


def _is_there(root: Path, shift: str) -> bool:
    places = (root, root / "weather", root / "CIFAR-10-C")
    return any((p / shift).is_dir() or (p / f"{shift}.npy").is_file() for p in places)


def _severities(record: Dataset, word: str, severity: str | None) -> tuple[int | None, ...]:
    if not record.severities:
        if severity is not None:
            raise AcclimateError(f"{record.name} has no severities, got {word!r}")
        return (None,)
    if severity is None:
        return SEVERITIES
    if severity not in map(str, SEVERITIES):
        raise AcclimateError(f"expected a severity of 1, 2, 3, 4 or 5, got {word!r}")
    return (int(severity),)


def _refuse_missing(
    record: Dataset, root: str | Path, chosen: Sequence[tuple[str, int | None]]
) -> None:
    # Parts are folders or files, as the data set has it.
    wanted = {form for s, n in chosen for form in (s, f"{s}.npy", f"{s}/{n}")}
    gone = [part for part in missing_parts(record.name, root) if part in wanted]
    if gone:
        named = ", ".join(gone[:5]) + (", …" if len(gone) > 5 else "")
        raise AcclimateError(
            f"{len(gone)} of the parts asked for are not in {root}: {named}\n"
            f"{record.how_to_get(Path(root))}"
        )
