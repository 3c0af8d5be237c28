"""The words that ask for shifts, as the shifts of single jobs."""

from __future__ import annotations

from collections.abc import Sequence

from acclimate.data.benchmarks import find_dataset
from acclimate.errors import AcclimateError
from acclimate.evaluation.parts import made_shifts, own_shifts

__all__ = ["CLEAN", "job_shifts"]

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
