"""Several sources as one: their pictures numbered on and on."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from acclimate.data.base import ImageSource, digest
from acclimate.errors import AcclimateError

__all__ = ["JoinedSource"]


class JoinedSource(ImageSource):
    """The pictures of some sources, one source after the other; nothing is copied.

    >>> from acclimate.data import open_images
    >>> day, night = (open_images(torch.full((2, 3, 4, 4), light)) for light in (0.9, 0.1))
    >>> both = JoinedSource([day, night])
    >>> both.read(torch.tensor([3, 0]))[:, 0, 0, 0], both.which(torch.tensor([3, 0]))
    (tensor([0.1000, 0.9000]), tensor([1, 0]))
    """

    def __init__(self, sources: Sequence[ImageSource]) -> None:
        if not sources:
            raise AcclimateError("expected at least one source to join, got none")
        first = sources[0]
        if any(each.preprocessing != first.preprocessing for each in sources):
            raise AcclimateError("expected sources with one preprocessing to join")
        labels = [each.labels for each in sources]
        known = [each for each in labels if each is not None]
        super().__init__(
            names=[name for each in sources for name in each.names],
            labels=torch.cat(known) if len(known) == len(labels) else None,
            class_names=first.class_names,
            preprocessing=first.preprocessing,
            skipped=[skipped for each in sources for skipped in each.skipped],
            scoring=first.scoring,
        )
        self.sources = list(sources)
        sizes = torch.tensor([len(each) for each in sources])
        self._ends = sizes.cumsum(0)
        self._starts = self._ends - sizes

    def which(self, indices: Tensor) -> Tensor:
        """The number of the source that each picture is of."""
        return torch.searchsorted(self._ends, indices, right=True)

    def read(self, indices: Tensor) -> Tensor:
        """The pictures of these numbers, each source asked once."""
        which = self.which(indices)
        places: list[Tensor] = []
        parts: list[Tensor] = []
        for number in which.unique().tolist():
            place = (which == number).nonzero().squeeze(1)
            places.append(place)
            parts.append(self.sources[number].read(indices[place] - self._starts[number]))
        if len(parts) == 1:
            return parts[0]
        read: Tensor = torch.cat(parts)[torch.cat(places).argsort()]
        return read

    def fingerprint(self) -> str:
        """A digest of theirs."""
        return digest(each.fingerprint().encode() for each in self.sources)
