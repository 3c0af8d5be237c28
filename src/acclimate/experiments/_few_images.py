"""A few pictures of a source."""

from __future__ import annotations

import torch
from torch import Tensor

from acclimate.data import ImageSource
from acclimate.data.base import digest

__all__ = ["FewImages", "few_images"]


class FewImages(ImageSource):
    """The first pictures of another source, or some spread over it; nothing is copied."""

    def __init__(self, source: ImageSource, count: int, *, spread: bool = False) -> None:
        numbers = torch.arange(count) * len(source) // count if spread else torch.arange(count)
        super().__init__(
            names=[source.names[number] for number in numbers.tolist()],
            labels=None if source.labels is None else source.labels[numbers],
            class_names=source.class_names,
            preprocessing=source.preprocessing,
            skipped=source.skipped,
            scoring=source.scoring,
        )
        self._source, self._numbers, self._spread = source, numbers, spread

    def read(self, indices: Tensor) -> Tensor:
        """The pictures of these numbers."""
        return self._source.read(self._numbers[indices])

    def fingerprint(self) -> str:
        """A digest of the whole source's, and of how many are taken, and how."""
        taken = f"{len(self)}{' spread' if self._spread else ''}"
        return digest([self._source.fingerprint().encode(), taken.encode()])


def few_images(source: ImageSource, count: int | None) -> tuple[ImageSource, list[str]]:
    """At most ``count`` pictures (None: all), and what has to be said about them.

    They are the first ones, or spread over the source where the first hold far fewer classes: a
    folder is sorted by class, and a batch of one class is another problem than a batch of all.

    >>> from acclimate.data import open_images
    >>> sorted_by_class = open_images(torch.zeros(6, 3, 2, 2), labels=[0, 0, 1, 1, 2, 2])
    >>> images, notes = few_images(sorted_by_class, 2)
    >>> images.labels.tolist(), notes
    ([0, 1], ['2 of 6 images, spread over them, hold 2 of 3 classes'])
    """
    if count is None or count >= len(source):
        return source, []
    first, spread = FewImages(source, count), FewImages(source, count, spread=True)
    if source.labels is None:
        return first, []
    taken, how = first, "the first"
    if _classes(spread) >= 2 * _classes(first):  # by far, as it is where they are sorted
        taken, how = spread, "spread over them"
    held, of = _classes(taken), _classes(source)
    few = f"{count:,} of {len(source):,} images, {how}, hold {held:,} of {of:,} classes"
    return taken, [few] if held < of else []


def _classes(source: ImageSource) -> int:
    assert source.labels is not None
    return len(source.labels.unique())
