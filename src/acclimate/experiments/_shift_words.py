"""The words that ask for shifts, as the shifts of single jobs."""

from __future__ import annotations

from collections.abc import Sequence

from acclimate.data.benchmarks import find_dataset
from acclimate.data.corruptions import SEVERITIES
from acclimate.errors import AcclimateError
from acclimate.evaluation.parts import made_shifts, own_shifts

__all__ = ["CLEAN", "group_shifts", "job_shifts"]

CLEAN = "clean"


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
    return [
        name if severity is None else f"{name}:{severity}"
        for name, severity in own_shifts(record, words)
    ]


def group_shifts(dataset: str, words: Sequence[str], *, severities: bool) -> list[str]:
    """The groups of shifts that words ask for, one for each severity where ``severities``.

    >>> group_shifts("cifar10", ["cifar/test"], severities=True)[:2]
    ['cifar/test:1', 'cifar/test:2']
    >>> group_shifts("cifar10", ["cifar/dev"], severities=False)
    ['cifar/dev']
    """
    groups: list[str] = []
    for word in words or ("test",):
        shifts = job_shifts(dataset, [word])  # refuses what the data set has not
        name, colon, severity = word.partition(":")
        if name.rpartition("/")[2] not in _GROUPS:
            raise AcclimateError(
                "a sequence runs through a group of shifts: expected test, dev or all, such as "
                f"cifar/test:5, got {word!r}"
            )
        if not severities:
            if colon:
                raise AcclimateError(
                    f"each shift grows to severity 5 and fades: expected {name}, got {word!r}"
                )
            groups.append(name)
        elif colon:
            groups.append(f"{name}:{severity}")
        elif any(":" in str(shift) for shift in shifts):
            groups += [f"{name}:{number}" for number in SEVERITIES]
        else:
            groups.append(name)
    return list(dict.fromkeys(groups))


_GROUPS = ("test", "dev", "all")
