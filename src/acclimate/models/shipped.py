"""The networks of this package for 32 × 32 pictures: bare, or with weights that come along."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from dataclasses import dataclass
from importlib import resources
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

from torch import nn

from acclimate.data.labels import ClassList
from acclimate.data.preprocessing import Preprocessing
from acclimate.errors import AcclimateError, unknown_name
from acclimate.models.filling import fill
from acclimate.models.networks.cifar_resnet import resnet18, resnet50
from acclimate.models.networks.depth26 import ResNet26
from acclimate.models.networks.vision_transformer import VisionTransformer
from acclimate.models.networks.wide_resnet import WideResNet
from acclimate.models.record import LoadedModel
from acclimate.models.weights import load_weights

__all__ = [
    "ARCHITECTURES",
    "CIFAR_PREPROCESSING",
    "PAPER_NAMES",
    "UNTRAINED",
    "Architecture",
    "Checkpoint",
    "checkpoints",
    "trained",
]

# How the package feeds its own, as AugMix's code does. Others differ: kuangliu centres by
# CIFAR-10's own means, RobustBench's "Standard" takes values of 0 to 1.
CIFAR_PREPROCESSING = Preprocessing(size=(32, 32), mean=(0.5,) * 3, std=(0.5,) * 3)

UNTRAINED = "untrained: give weights (weights=FILE, on the command line --weights FILE)"


@dataclass(frozen=True, kw_only=True)
class Architecture:
    """A network without weights, by the class count it is made for.

    >>> print(ARCHITECTURES["wrn-26-1-gn"].untrained().describe())
    wrn-26-1-gn
      architecture   ResNet26, 366,938 parameters
      normalisation  25 GroupNorm
      preprocessing  32×32, mean (0.5, 0.5, 0.5), std (0.5, 0.5, 0.5)
      classes        10, airplane … truck
      weights        untrained: give weights (weights=FILE, on the command line --weights FILE)
    """

    name: str
    build: Callable[[int], nn.Module]

    def untrained(self, classes: int | None = None) -> LoadedModel:
        """The network as made; ten classes are CIFAR-10's, of any other count nothing is known."""
        known = classes is None or classes == len(_cifar10())
        return LoadedModel(
            name=self.name,
            model=self.build(len(_cifar10()) if classes is None else classes),
            preprocessing=CIFAR_PREPROCESSING,
            classes=_cifar10() if known else None,
            source=UNTRAINED,
        )


def _depth26(width: int, norm: str) -> Architecture:
    return Architecture(
        name=f"wrn-26-{width}-{norm}",
        build=lambda classes: ResNet26(width, norm=norm, classes=classes),
    )


def _wide(depth: int, width: int) -> Architecture:
    return Architecture(
        name=f"wrn-{depth}-{width}",
        build=lambda classes: WideResNet(depth, width, classes=classes),
    )


ARCHITECTURES = {
    architecture.name: architecture
    for architecture in (
        _wide(28, 10),
        _wide(40, 2),
        *(_depth26(width, norm) for width in (1, 2, 16) for norm in ("bn", "gn")),
        Architecture(name="resnet18-cifar", build=lambda classes: resnet18(classes=classes)),
        Architecture(name="resnet50-cifar", build=lambda classes: resnet50(classes=classes)),
        Architecture(
            name="vit-cifar",
            build=lambda classes: VisionTransformer(
                size=32, patch=4, width=192, depth=6, heads=3, classes=classes
            ),
        ),
    )
}

PAPER_NAMES = {
    "WRN-28-10 vanilla": "wrn-28-10",
    "WRN-40": "wrn-40-2",
    "WRN-40-2 AM": "wrn-40-2",
    "WRN-26-1-BN": "wrn-26-2-bn",
    "WRN-26-1-BN vanilla": "wrn-26-2-bn",
    "WRN-26-1-GN": "wrn-26-2-gn",
    "WRN-26-1-GN vanilla": "wrn-26-2-gn",
    "WRN-26-2 DANN": "wrn-26-2-bn",
    "WRN-26-16 vanilla": "wrn-26-16-bn",
    "WRN-26-16 UDA-SS": "wrn-26-16-bn",
    "WRN-26-16 DANN": "wrn-26-16-bn",
}
"""Which architecture stands behind a row of the paper's tables.

The paper prints 1.5 million parameters for "WRN-26-1" and, in the same table, for "WRN-26-2": a
depth-26 network has that many at width 2 (1,456,858), and 366,938 at width 1. So both mean width 2
here, and ``wrn-26-1-bn`` is the network that its name says.
"""


def trained(
    architecture: str,
    file: str | Path,
    *,
    preprocessing: Preprocessing,
    classes: ClassList,
    notes: str,
) -> LoadedModel:
    """An architecture with weights that come with the package.

    Args:
        architecture: A name of ``ARCHITECTURES``.
        file: A file in the package's ``models/checkpoints``, by name, or a path to one
            elsewhere; half precision is made float32.
        preprocessing: How the network was fed when it was trained.
        classes: The classes of its outputs.
        notes: How it was trained, in a line; ``describe`` prints it as where the weights are from.
    """
    if architecture not in ARCHITECTURES:
        raise unknown_name("architecture", architecture, ARCHITECTURES)
    found = file if isinstance(file, Path) else files("acclimate.models") / "checkpoints" / file
    if not found.is_file():
        raise AcclimateError(
            f"the weights {found.name} are missing from this installation; install acclimate again"
        )
    model = ARCHITECTURES[architecture].build(len(classes))
    with as_file(found) as path:
        fill(model, load_weights(path))
    return LoadedModel(
        name=f"acclimate:{Path(found.name).stem}",
        model=model.eval(),
        preprocessing=preprocessing,
        classes=classes,
        source=notes,
    )


def _cifar10() -> ClassList:
    # Imported when it is asked for: the benchmark datasets are many modules to load for ten names.
    from acclimate.data.benchmarks.cifar import CIFAR10_CLASSES

    return ClassList(CIFAR10_CLASSES)


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


def _trained_on_cifar10() -> tuple[str, ...]:
    from acclimate.data.benchmarks.cifar import CIFAR10_CLASSES

    return CIFAR10_CLASSES


def _digits() -> tuple[str, ...]:
    from acclimate.data.benchmarks.digits import DIGITS

    return DIGITS


# Imported when asked for: the data sets are many modules to load for ten names.
_CLASSES: dict[str, Callable[[], tuple[str, ...]]] = {
    "cifar10": _trained_on_cifar10,
    "digits": _digits,
}
