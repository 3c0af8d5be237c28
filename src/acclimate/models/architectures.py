"""The networks of this package for 32 × 32 images, without weights."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import nn

from acclimate.data.labels import ClassList
from acclimate.data.preprocessing import Preprocessing
from acclimate.models.networks.cifar_resnet import resnet18, resnet50
from acclimate.models.networks.depth26 import ResNet26
from acclimate.models.networks.vision_transformer import VisionTransformer
from acclimate.models.networks.wide_resnet import WideResNet
from acclimate.models.record import LoadedModel

__all__ = [
    "ARCHITECTURES",
    "CIFAR_PREPROCESSING",
    "PAPER_NAMES",
    "UNTRAINED",
    "Architecture",
    "cifar10_classes",
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
        known = classes is None or classes == len(cifar10_classes())
        return LoadedModel(
            name=self.name,
            model=self.build(len(cifar10_classes()) if classes is None else classes),
            preprocessing=CIFAR_PREPROCESSING,
            classes=cifar10_classes() if known else None,
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


def cifar10_classes() -> ClassList:
    """Those of CIFAR-10."""
    # Imported when it is asked for: the benchmark datasets are many modules to load for ten names.
    from acclimate.data.benchmarks.cifar import CIFAR10_CLASSES

    return ClassList(CIFAR10_CLASSES)
