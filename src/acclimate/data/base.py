"""What adaptation reads: images by index, however they are stored."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from acclimate.data.labels import Scoring
from acclimate.data.preprocessing import Preprocessing
from acclimate.errors import AcclimateError

__all__ = ["ImageSource", "JoinedSource", "Skipped", "digest"]


@dataclass(frozen=True)
class Skipped:
    """An image that was left out, and why."""

    name: str
    reason: str


class ImageSource(ABC):
    """Images by index. Subclasses write ``read`` and ``fingerprint``.

    Attributes:
        names: one per image, for the table of predictions.
        labels: int64 on the CPU, aligned with the images; -1 where unknown, None where nothing
            is known. Only ever used for scoring.
        class_names: the names of the classes as found (folder names), or None.
        preprocessing: how uint8 images become model input; None when they already are.
        skipped: what was left out, and why.
        scoring: how a model's outputs stand for the labels; None when they are the same indices.
    """

    def __init__(
        self,
        *,
        names: Sequence[str],
        labels: Tensor | None = None,
        class_names: Sequence[str] | None = None,
        preprocessing: Preprocessing | None = None,
        skipped: Sequence[Skipped] = (),
        scoring: Scoring | None = None,
    ) -> None:
        if labels is not None and len(labels) != len(names):
            raise AcclimateError(f"expected {len(names)} labels, got {len(labels)}")
        self.names = names
        self.labels = labels
        self.class_names = class_names
        self.preprocessing = preprocessing
        self.skipped = skipped
        self.scoring = scoring

    def facts(self) -> dict[str, Any]:
        """What it knows of its images, to make a source of the same ones seen in another way."""
        names = ("names", "labels", "class_names", "preprocessing", "skipped", "scoring")
        return {name: getattr(self, name) for name in names}

    def __len__(self) -> int:
        return len(self.names)

    @abstractmethod
    def read(self, indices: Tensor) -> Tensor:
        """The images at these indices, N×C×H×W on the CPU.

        uint8 is to be normalised by ``preprocessing`` (later, on the device); float32 is model
        input already.
        """

    @abstractmethod
    def fingerprint(self) -> str:
        """A short hex digest of the images, labels aside: the same images, the same digest."""

    def __repr__(self) -> str:
        known = "no labels" if self.labels is None else "labels"
        return f"<{type(self).__name__}: {len(self)} images, {known}, {len(self.skipped)} skipped>"


def digest(parts: Iterable[bytes]) -> str:
    """16 hex digits over byte strings, each set apart from the next.

    >>> digest([b"ab", b"c"]) == digest([b"a", b"bc"])
    False
    """
    total = hashlib.blake2b(digest_size=8)
    for part in parts:
        total.update(len(part).to_bytes(8, "little"))
        total.update(part)
    return total.hexdigest()


class JoinedSource(ImageSource):
    """The images of some sources, one source after the other; nothing is copied.

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
        """The index of the source that each image is of."""
        return torch.searchsorted(self._ends, indices, right=True)

    def read(self, indices: Tensor) -> Tensor:
        """The images at these indices, each source read once."""
        which = self.which(indices)
        places: list[Tensor] = []
        parts: list[Tensor] = []
        for source in which.unique().tolist():
            place = (which == source).nonzero().squeeze(1)
            places.append(place)
            parts.append(self.sources[source].read(indices[place] - self._starts[source]))
        if len(parts) == 1:
            return parts[0]
        read: Tensor = torch.cat(parts)[torch.cat(places).argsort()]
        return read

    def fingerprint(self) -> str:
        """A digest of the sources' fingerprints."""
        return digest(each.fingerprint().encode() for each in self.sources)
