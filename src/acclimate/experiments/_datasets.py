"""What jobs have to know of data sets: where they lie, their splits, what they are made from."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from acclimate.data.benchmarks import find_dataset
from acclimate.errors import AcclimateError

__all__ = ["MADE_FROM", "root_of", "split_of"]

MADE_FROM = {"cifar10-c": ("cifar10", "cifar"), "imagenet-c": ("imagenet", "imagenet")}
"""Data sets that can be made on the way: from which clean one, with whose constants."""


def root_of(dataset: str, roots: Mapping[str, str | Path]) -> Path:
    """Where a data set lies."""
    if dataset not in roots:
        how = find_dataset(dataset).how_to_get(Path("ROOT"))
        raise AcclimateError(f"{dataset} needs a root, the folder it lies in\n{how}")
    return Path(roots[dataset]).expanduser()


def split_of(dataset: str, split: str | None) -> str | None:
    """A split, None where it is the first, so that naming it makes no other job.

    >>> split_of("mnist", "test"), split_of("mnist", "train")
    (None, 'train')
    """
    splits = find_dataset(dataset).splits
    return None if splits and split == splits[0] else split
