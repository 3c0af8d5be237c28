"""The networks this project trained itself and ships, by name: what made them, what they reach."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from dataclasses import dataclass
from importlib import resources
from typing import Any

from acclimate.data.labels import ClassList
from acclimate.models.record import LoadedModel
from acclimate.models.shipped import CIFAR_PREPROCESSING, trained

__all__ = ["Checkpoint", "checkpoints"]

_FILES = resources.files("acclimate.models") / "checkpoints"


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """A shipped network: half precision, in ``checkpoints/NAME.safetensors``.

    ``error`` is in percent, on ``images`` pictures of ``error_on``; ``command`` is what made it.
    """

    name: str
    architecture: str
    classes: str
    trained_on: str
    error: float
    error_on: str
    images: int
    command: str
    sha256: str

    @property
    def size(self) -> int:
        """The bytes of its file.

        >>> checkpoints()["wrn-26-2-bn-cifar10"].size
        2934124
        """
        return len((_FILES / f"{self.name}.safetensors").read_bytes())

    def load(self) -> LoadedModel:
        """The network with its weights."""
        notes = (
            f"trained for this package on {self.trained_on}; {self.error:.1f} % error on "
            f"{self.images:,} images of {self.error_on}"
        )
        return trained(
            self.architecture,
            f"{self.name}.safetensors",
            preprocessing=CIFAR_PREPROCESSING,
            classes=ClassList(_CLASSES[self.classes]()),
            notes=notes,
        )


@functools.cache
def checkpoints() -> dict[str, Checkpoint]:
    """All of them.

    >>> checkpoints()["wrn-26-2-bn-cifar10"].architecture
    'wrn-26-2-bn'
    """
    text = (_FILES / "checkpoints.json").read_text(encoding="utf-8")
    records: dict[str, dict[str, Any]] = json.loads(text)
    return {name: Checkpoint(name=name, **record) for name, record in records.items()}


def _cifar10() -> tuple[str, ...]:
    from acclimate.data.benchmarks.cifar import CIFAR10_CLASSES

    return CIFAR10_CLASSES


def _digits() -> tuple[str, ...]:
    from acclimate.data.benchmarks.digits import DIGITS

    return DIGITS


# Imported when asked for: the data sets are many modules to load for ten names.
_CLASSES: dict[str, Callable[[], tuple[str, ...]]] = {"cifar10": _cifar10, "digits": _digits}
