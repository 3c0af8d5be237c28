"""The networks of this package for 32 × 32 images, without weights."""

from __future__ import annotations

from functools import partial
from typing import Protocol

from torch import nn

from acclimate.data.labels import ClassList
from acclimate.data.preprocessing import Preprocessing
from acclimate.models.networks.cifar_resnet import resnet18, resnet50
from acclimate.models.networks.depth26 import ResNet26
from acclimate.models.networks.vision_transformer import VisionTransformer
from acclimate.models.networks.wide_resnet import WideResNet
from acclimate.models.record import LoadedModel

__all__ = ["ARCHITECTURES", "CIFAR_PREPROCESSING", "UNTRAINED", "cifar10_classes", "untrained"]

# How the package feeds its own, as AugMix's code does. Others differ: kuangliu centres by
# CIFAR-10's own means, RobustBench's "Standard" takes values of 0 to 1.
CIFAR_PREPROCESSING = Preprocessing(size=(32, 32), mean=(0.5,) * 3, std=(0.5,) * 3)

UNTRAINED = "untrained: give weights (weights=FILE, on the command line --weights FILE)"


class Build(Protocol):
    """A network for a class count."""

    def __call__(self, *, classes: int) -> nn.Module: ...


# The paper prints 1.5 million parameters for "WRN-26-1" and for "WRN-26-2": a depth-26 network has
# that many at width 2 (1,456,858), and 366,938 at width 1. So its rows are wrn-26-2-bn and -gn.
ARCHITECTURES: dict[str, Build] = {
    "wrn-28-10": partial(WideResNet, 28, 10),
    "wrn-40-2": partial(WideResNet, 40, 2),
    **{
        f"wrn-26-{width}-{norm}": partial(ResNet26, width, norm=norm)
        for width in (1, 2, 16)
        for norm in ("bn", "gn")
    },
    "resnet18-cifar": resnet18,
    "resnet50-cifar": resnet50,
    "vit-cifar": partial(VisionTransformer, size=32, patch=4, width=192, depth=6, heads=3),
}


def untrained(name: str, classes: int | None = None) -> LoadedModel:
    """A network without weights; ten classes are CIFAR-10's, those of other counts are unknown.

    >>> print(untrained("wrn-26-1-gn").describe())
    acclimate:wrn-26-1-gn
      architecture   ResNet26, 366,938 parameters
      normalisation  25 GroupNorm
      preprocessing  32×32, mean (0.5, 0.5, 0.5), std (0.5, 0.5, 0.5)
      classes        10, airplane … truck
      weights        untrained: give weights (weights=FILE, on the command line --weights FILE)
    """
    known = cifar10_classes()
    count = len(known) if classes is None else classes
    return LoadedModel(
        name=f"acclimate:{name}",
        model=ARCHITECTURES[name](classes=count),
        preprocessing=CIFAR_PREPROCESSING,
        classes=known if count == len(known) else None,
        source=UNTRAINED,
    )


def cifar10_classes() -> ClassList:
    """Those of CIFAR-10."""
    # Imported when it is asked for: the benchmark datasets are many modules to load for ten names.
    from acclimate.data.benchmarks.cifar import CIFAR10_CLASSES

    return ClassList(CIFAR10_CLASSES)
