"""Wide residual networks for 32 × 32 images (Zagoruyko & Komodakis 2016), depth 6n + 4."""

from __future__ import annotations

from itertools import pairwise

import torch.nn.functional as F
from torch import Tensor, nn

from acclimate.errors import AcclimateError

__all__ = ["WideResNet"]


class _Block(nn.Module):
    """Norm, ReLU, convolution, twice; a widening shortcut starts after the first activation."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.bn1 = nn.BatchNorm2d(inputs)
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        widens = inputs != outputs
        self.shortcut = nn.Conv2d(inputs, outputs, 1, stride=stride, bias=False) if widens else None

    def forward(self, x: Tensor) -> Tensor:
        active = F.relu(self.bn1(x), inplace=True)
        residual = x if self.shortcut is None else self.shortcut(active)
        change: Tensor = self.conv2(F.relu(self.bn2(self.conv1(active)), inplace=True))
        return residual + change


class WideResNet(nn.Module):
    """WRN-depth-width: three stages of (depth - 4) / 6 blocks.

    >>> sum(p.numel() for p in WideResNet(40, 2).parameters())
    2243546
    """

    def __init__(self, depth: int, width: int, *, classes: int = 10) -> None:
        super().__init__()
        if (depth - 4) % 6 or depth < 10:
            raise AcclimateError(f"expected a depth of 6n + 4 (10, 16, 28, 40), got {depth}")
        widths = [16, 16 * width, 32 * width, 64 * width]
        self.conv1 = nn.Conv2d(3, widths[0], 3, padding=1, bias=False)
        blocks = []
        for stage, (inputs, outputs) in enumerate(pairwise(widths)):
            for number in range((depth - 4) // 6):
                stride = 2 if stage and number == 0 else 1
                blocks.append(_Block(inputs if number == 0 else outputs, outputs, stride))
        self.blocks = nn.Sequential(*blocks)
        self.bn = nn.BatchNorm2d(widths[-1])
        self.fc = nn.Linear(widths[-1], classes)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.bn(self.blocks(self.conv1(x))), inplace=True)
        logits: Tensor = self.fc(x.mean(dim=(2, 3)))
        return logits
