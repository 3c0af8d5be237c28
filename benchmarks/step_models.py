"""The models whose steps are measured, with random weights: speed needs no trained ones.

ViT-S/16 and EfficientNet-L2 are put together from torchvision's blocks, which has neither by name;
their parameter counts are those of the published networks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import nn

from acclimate.models import load
from acclimate.models.libraries import import_torchvision

__all__ = ["CASES", "ON_CPU", "ON_GPU", "Case"]


@dataclass(frozen=True)
class Case:
    """A model at the size and batch it is measured at; which of its weights learn."""

    make: Callable[[], nn.Module]
    size: int
    batch: int
    selector: str = "affine"

    def build(self) -> nn.Module:
        """The model with weights that are random, but the same every time."""
        torch.manual_seed(0)
        return self.make().eval()


def _own(name: str) -> nn.Module:
    return load(f"acclimate:{name}").model


def _torchvision(name: str) -> nn.Module:
    model: nn.Module = import_torchvision().models.get_model(name, weights=None)
    return model


def _vit_s16() -> nn.Module:
    network: Any = import_torchvision().models.vision_transformer.VisionTransformer
    model: nn.Module = network(
        image_size=224, patch_size=16, num_layers=12, num_heads=6, hidden_dim=384, mlp_dim=1536
    )
    return model


def _efficientnet_l2() -> nn.Module:
    """EfficientNet-B0's stages, 4.3 times as wide and 5.3 times as deep (Xie et al. 2020)."""
    efficientnet: Any = import_torchvision().models.efficientnet
    stage = partial(efficientnet.MBConvConfig, width_mult=4.3, depth_mult=5.3)
    # expansion, kernel, stride, channels in and out, layers
    stages = [
        stage(1, 3, 1, 32, 16, 1),
        stage(6, 3, 2, 16, 24, 2),
        stage(6, 5, 2, 24, 40, 2),
        stage(6, 3, 2, 40, 80, 3),
        stage(6, 5, 1, 80, 112, 3),
        stage(6, 5, 2, 112, 192, 4),
        stage(6, 3, 1, 192, 320, 1),
    ]
    model: nn.Module = efficientnet.EfficientNet(stages, dropout=0.5)
    return model


CASES = {
    "resnet50": Case(partial(_torchvision, "resnet50"), 224, 128),
    "wrn-28-10": Case(partial(_own, "wrn-28-10"), 32, 200),
    "wrn-40-2": Case(partial(_own, "wrn-40-2"), 32, 200),
    "densenet161": Case(partial(_torchvision, "densenet161"), 224, 64),
    "resnext101": Case(partial(_torchvision, "resnext101_32x8d"), 224, 64),
    "efficientnet-b0": Case(partial(_torchvision, "efficientnet_b0"), 224, 128),
    "efficientnet-l2": Case(_efficientnet_l2, 475, 8),
    "vit-s16": Case(_vit_s16, 224, 128, "all"),
}
ON_GPU = tuple(CASES)
ON_CPU = ("wrn-40-2",)
