"""What adaptation reads: a numbered set of pictures, whatever they are stored in."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from torch import Tensor

from acclimate.data.preprocessing import Preprocessing
from acclimate.errors import AcclimateError
from acclimate.metrics import Scoring

__all__ = ["ImageSource", "Skipped", "digest"]


@dataclass(frozen=True)
class Skipped:
    """A picture that was left out, and why."""

    name: str
    reason: str


class ImageSource(ABC):
    """Pictures by number. Subclasses write ``read`` and ``fingerprint``.

    Attributes:
        names: one per picture, for the table of predictions.
        labels: int64 on the CPU, aligned with the pictures; -1 where unknown, None where nothing
            is known. Only ever used for scoring.
        class_names: the names of the classes as found (folder names), or None.
        preprocessing: how uint8 pictures become model input; None when they already are.
        skipped: what was left out, and why.
        scoring: how a model's outputs stand for the labels; None when they are the same numbers.
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

    def __len__(self) -> int:
        return len(self.names)

    @abstractmethod
    def read(self, indices: Tensor) -> Tensor:
        """The pictures of these numbers, N×C×H×W on the CPU.

        uint8 is to be normalised by ``preprocessing`` (later, on the device); float32 is model
        input as it is.
        """

    @abstractmethod
    def fingerprint(self) -> str:
        """A short hex digest of the pictures, labels aside: the same pictures, the same digest."""

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
