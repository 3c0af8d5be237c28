"""The networks this package trained itself: their records, and where their weights are.

The records come with the package. The weights are 29 MB, so they are a distribution of their own,
``acclimate-checkpoints``, that an entry point leads to; a clone has it beside ``src``.
"""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass
from importlib.metadata import entry_points
from importlib.resources import files
from pathlib import Path
from typing import Any

from acclimate.data.labels import ClassList
from acclimate.errors import AcclimateError
from acclimate.files import file_sha256
from acclimate.models.architectures import ARCHITECTURES, CIFAR_PREPROCESSING, cifar10_classes
from acclimate.models.filling import fill
from acclimate.models.record import LoadedModel
from acclimate.models.weights import load_weights

__all__ = ["Checkpoint", "checkpoints"]

_CLONE = Path(__file__).parents[3] / "checkpoints" / "acclimate_checkpoints"


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """A trained network in half precision.

    ``error`` is in percent, on ``images`` images of ``error_on``; ``command`` is what made it.
    ``head_sha256`` is that of a head beside it, which adaptation by DINO starts from.
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
    head_sha256: str | None = None

    @property
    def size(self) -> int:
        """The bytes of its file.

        >>> checkpoints()["wrn-26-2-bn-cifar10"].size
        2934124
        """
        return _find(f"{self.name}.safetensors").stat().st_size

    def load(self) -> LoadedModel:
        """The network with its weights."""
        classes = ClassList(_class_names(self.classes))
        model = ARCHITECTURES[self.architecture](classes=len(classes))
        fill(model, load_weights(_verified(f"{self.name}.safetensors", self.sha256)))
        return LoadedModel(
            name=f"acclimate:{self.name}",
            model=model.eval(),
            preprocessing=CIFAR_PREPROCESSING,
            classes=classes,
            source=(
                f"trained for this package on {self.trained_on}; {self.error:.1f} % error on "
                f"{self.images:,} images of {self.error_on}"
            ),
        )

    def head(self) -> Path | None:
        """The file of its head, None if it has none."""
        if self.head_sha256 is None:
            return None
        return _verified(f"{self.name}.head.safetensors", self.head_sha256)


@functools.cache
def checkpoints() -> dict[str, Checkpoint]:
    """All of them by name, whether or not their weights are installed.

    >>> checkpoints()["wrn-26-2-bn-cifar10"].architecture
    'wrn-26-2-bn'
    """
    text = (files("acclimate.models") / "checkpoints.json").read_text(encoding="utf-8")
    records: dict[str, dict[str, Any]] = json.loads(text)
    return {name: Checkpoint(name=name, **record) for name, record in records.items()}


def _find(name: str) -> Path:
    if (_CLONE / name).is_file():
        return _CLONE / name
    for entry in entry_points(group="acclimate.checkpoints"):
        try:
            path = Path(str(files(entry.module))) / name
        except ModuleNotFoundError:  # what an uninstalled package left behind
            continue
        if path.is_file():
            return path
    raise AcclimateError(
        f"the weights {name} are not installed; run: pip install acclimate-checkpoints "
        "(in a clone: pip install ./checkpoints)"
    )


def _verified(name: str, sha256: str) -> Path:
    """The file, once its bytes are those that were scored."""
    path = _find(name)
    found = file_sha256(path)
    if found != sha256:
        raise AcclimateError(
            f"expected the sha256 {sha256[:12]}… of {path}, got {found[:12]}…: the file is damaged "
            "or of another version; run: pip install --force-reinstall acclimate-checkpoints"
        )
    return path


def _class_names(which: str) -> tuple[str, ...]:
    if which == "cifar10":
        return cifar10_classes().names
    # Imported when asked for: the data sets are many modules to load for ten names.
    from acclimate.data.benchmarks.digits import DIGITS

    return DIGITS
