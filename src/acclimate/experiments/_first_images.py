"""The first few pictures of a source."""

from __future__ import annotations

from torch import Tensor

from acclimate.data import ImageSource
from acclimate.data.base import digest

__all__ = ["FirstImages", "first_images"]


class FirstImages(ImageSource):
    """The pictures of another source up to a number; nothing is copied."""

    def __init__(self, source: ImageSource, count: int) -> None:
        super().__init__(
            names=source.names[:count],
            labels=None if source.labels is None else source.labels[:count],
            class_names=source.class_names,
            preprocessing=source.preprocessing,
            skipped=source.skipped,
            scoring=source.scoring,
        )
        self._source = source

    def read(self, indices: Tensor) -> Tensor:
        """The pictures of these numbers."""
        return self._source.read(indices)

    def fingerprint(self) -> str:
        """A digest of the whole source's, and of how many are taken."""
        return digest([self._source.fingerprint().encode(), str(len(self)).encode()])


def first_images(source: ImageSource, count: int | None) -> tuple[ImageSource, list[str]]:
    """The first ``count`` pictures (all: None), and what has to be said about them.

    >>> from acclimate.data import open_images
    >>> import torch
    >>> sorted_by_class = open_images(torch.zeros(6, 3, 2, 2), labels=[0, 0, 1, 1, 2, 2])
    >>> images, notes = first_images(sorted_by_class, 2)
    >>> len(images), notes
    (2, ['the first 2 of 6 images hold 1 of 3 classes'])
    """
    if count is None or count >= len(source):
        return source, []
    images = FirstImages(source, count)
    if images.labels is None or source.labels is None:
        return images, []
    held, all_classes = len(images.labels.unique()), len(source.labels.unique())
    # Folders are sorted by class: a few of them are another problem than all of them.
    few = f"the first {count:,} of {len(source):,} images hold {held:,} of {all_classes:,} classes"
    return images, [few] if held < all_classes else []
