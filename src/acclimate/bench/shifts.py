"""The shifts of a data set that words ask for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from tqdm import tqdm

from acclimate.data.benchmarks import Dataset, check_dataset, find_dataset, missing_parts
from acclimate.data.shift import GROUPS, SEVERITIES, Shift
from acclimate.data.shifted import made_shift
from acclimate.errors import AcclimateError, unknown_name

__all__ = ["CLEAN", "check_shifts", "found_shift", "group_shifts", "job_shifts"]

CLEAN = "clean"


def made_shifts(words: Sequence[str]) -> list[Shift]:
    """The corruptions that words ask to be made, each once.

    >>> [str(shift) for shift in made_shifts(["cifar/fog:2", "cifar/dev:1@3"])][:2]
    ['cifar/fog:2', 'cifar/speckle_noise:1@3']
    """
    made: dict[Shift, None] = {}  # a set that keeps its order
    for word in words:
        shift = Shift.parse(word)
        if shift.preset is None:
            raise AcclimateError(
                f"expected a shift with the preset it is made by, such as imagenet/{word} or "
                f"cifar/{word}, got {word!r}"
            )
        made |= dict.fromkeys(map(made_shift, shift.expanded()))
    return list(made)


def check_shifts(
    name: str,
    root: str | Path,
    shifts: Sequence[Shift],
    *,
    split: str | None = None,
    incomplete: bool = False,
    progress: bool = True,
) -> None:
    """Refuse shifts of a data set that are not there or not whole before an image is decoded."""
    record = find_dataset(name)
    chosen = [found_shift(record, Path(root), shift) for shift in shifts]
    _refuse_missing(record, root, chosen)
    for shift in tqdm(chosen, desc="files", delay=1, disable=not progress):
        check_dataset(
            name,
            root,
            split=split,
            shift=shift.name,
            severity=shift.severity,
            incomplete=incomplete,
        )


def found_shift(record: Dataset, root: Path, shift: Shift) -> Shift:
    """A set of our own making has its frost-procedural where the published one has its frost."""
    for name, place in record.stand_ins.items():
        if place == shift.name and _is_there(root, name) and not _is_there(root, place):
            return replace(shift, name=name)
    return shift


def own_shifts(record: Dataset, words: Sequence[str]) -> list[Shift]:
    """The shifts of a data set that words ask for, each once; none means test."""
    groups = {"all": record.shifts, "dev": record.dev, "test": record.test}
    chosen: dict[Shift, None] = {}  # a set that keeps its order
    for word in words or ("test",):
        shift = Shift.parse(word)
        if shift.preset or shift.seed:
            raise AcclimateError(
                f"{record.name} brings its own {record.shift_kind}s, got {word!r}, which would be "
                "made on the fly; leave the preset out"
            )
        if not record.severities and shift.severity is not None:
            raise AcclimateError(f"{record.name} has no severities, got {word!r}")
        found = shift.expanded(groups, severities=bool(record.severities))
        if not found:
            raise AcclimateError(f"{record.name} has no {word} {record.shift_kind}s, got {word!r}")
        for each in found:
            if each.name not in (*record.shifts, *record.stand_ins):
                raise unknown_name(
                    f"{record.shift_kind} of {record.name}", each.name, record.shifts
                )
        chosen |= dict.fromkeys(found)
    return list(chosen)


def _is_there(root: Path, shift: str) -> bool:
    places = (root, root / "weather", root / "CIFAR-10-C")
    return any((p / shift).is_dir() or (p / f"{shift}.npy").is_file() for p in places)


def _refuse_missing(record: Dataset, root: str | Path, chosen: Sequence[Shift]) -> None:
    # Parts are folders or files, as the data set has it.
    wanted = {form for s in chosen for form in (s.name, f"{s.name}.npy", f"{s.name}/{s.severity}")}
    gone = [part for part in missing_parts(record.name, root) if part in wanted]
    if gone:
        named = ", ".join(gone[:5]) + (", …" if len(gone) > 5 else "")
        raise AcclimateError(
            f"{len(gone)} of the parts asked for are not in {root}: {named}\n"
            f"{record.how_to_get(Path(root))}"
        )


def job_shifts(dataset: str, words: Sequence[str]) -> list[str | None]:
    """The shifts of a data set that words ask for, each once, None for the images as they are.

    >>> job_shifts("cifar10", ["clean", "cifar/fog:3"]), job_shifts("cifar10-c", ["fog"])[:2]
    ([None, 'cifar/fog:3'], ['fog:1', 'fog:2'])
    """
    record = find_dataset(dataset)
    if not record.shifts:
        chosen: dict[str | None, None] = {}  # a set that keeps its order
        for word in words or (CLEAN,):
            if word == CLEAN:
                chosen[None] = None
            else:  # one by one: a plan may have several presets
                chosen |= {str(shift): None for shift in made_shifts([word])}
        return list(chosen)
    if CLEAN in words:
        raise AcclimateError(f"{dataset} has no clean images; leave {CLEAN!r} out")
    return [str(shift) for shift in own_shifts(record, words)]


def group_shifts(dataset: str, words: Sequence[str], *, severities: bool) -> list[str]:
    """The groups of shifts that words ask for, one for each severity where ``severities``.

    >>> group_shifts("cifar10", ["cifar/test"], severities=True)[:2]
    ['cifar/test:1', 'cifar/test:2']
    >>> group_shifts("cifar10", ["cifar/dev"], severities=False)
    ['cifar/dev']
    """
    groups: list[Shift] = []
    for word in words or ("test",):
        shifts = job_shifts(dataset, [word])  # refuses what the data set has not
        group = Shift.parse(word)
        if group.name not in GROUPS:
            raise AcclimateError(
                "a sequence runs through a group of shifts: expected test, dev or all, such as "
                f"cifar/test:5, got {word!r}"
            )
        whole = replace(group, severity=None)
        if not severities:
            if group.severity is not None:
                raise AcclimateError(
                    f"each shift grows to severity 5 and fades: expected {whole}, got {word!r}"
                )
            groups.append(whole)
        elif group.severity is None and Shift.parse(str(shifts[0])).severity is not None:
            groups += [replace(group, severity=number) for number in SEVERITIES]
        else:
            groups.append(group)
    return list(dict.fromkeys(map(str, groups)))
