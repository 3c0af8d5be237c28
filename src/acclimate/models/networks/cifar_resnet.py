"""ResNets in their CIFAR form: a 3 × 3 stem without stride or pooling, then the four usual stages.

The modules have the names of the widely used ``kuangliu/pytorch-cifar``, whose code the paper
trained its ResNet18 and ResNet50 with, so that checkpoints made by it load unchanged.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch.nn.functional as F
from torch import Tensor, nn

__all__ = ["CifarResNet", "resnet18", "resnet50"]


class _Basic(nn.Module):
    """Two 3 × 3 convolutions; the second activation comes after the sum."""

    expansion = 1

    def __init__(self, inputs: int, planes: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, planes, 3, stride=stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(planes)
        self.conv2 = nn.Conv2d(planes, planes, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(planes)
        self.shortcut = _shortcut(inputs, planes, stride)

    def forward(self, x: Tensor) -> Tensor:
        change = F.relu(self.bn1(self.conv1(x)), inplace=True)
        change = self.bn2(self.conv2(change))
        return F.relu(change + self.shortcut(x), inplace=True)


class _Bottleneck(nn.Module):
    """1 × 1, 3 × 3 (which carries the stride), 1 × 1 to four times the planes."""

    expansion = 4

    def __init__(self, inputs: int, planes: int, stride: int) -> None:
        super().__init__()
        outputs = self.expansion * planes
        self.conv1 = nn.Conv2d(inputs, planes, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(planes)
        self.conv2 = nn.Conv2d(planes, planes, 3, stride=stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(planes)
        self.conv3 = nn.Conv2d(planes, outputs, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(outputs)
        self.shortcut = _shortcut(inputs, outputs, stride)

    def forward(self, x: Tensor) -> Tensor:
        change = F.relu(self.bn1(self.conv1(x)), inplace=True)
        change = F.relu(self.bn2(self.conv2(change)), inplace=True)
        change = self.bn3(self.conv3(change))
        return F.relu(change + self.shortcut(x), inplace=True)


class CifarResNet(nn.Module):
    """A ResNet for small images, with ``counts`` blocks in its four stages.

    >>> import torch
    >>> resnet18(classes=7).eval()(torch.zeros(1, 3, 32, 32)).shape
    torch.Size([1, 7])
    """

    def __init__(
        self,
        block: type[_Basic] | type[_Bottleneck],
        counts: Sequence[int],
        *,
        classes: int = 10,
        channels: int = 3,
    ) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, 64, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        inputs, stages = 64, []
        for stage, count in enumerate(counts):
            planes, blocks = 64 * 2**stage, []
            for number in range(count):
                blocks.append(block(inputs, planes, 2 if stage and number == 0 else 1))
                inputs = planes * block.expansion
            stages.append(nn.Sequential(*blocks))
        self.layer1, self.layer2, self.layer3, self.layer4 = stages
        self.linear = nn.Linear(inputs, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.bn1(self.conv1(x)), inplace=True)
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        logits: Tensor = self.linear(x.mean(dim=(2, 3)))
        return logits


def resnet18(*, classes: int = 10, channels: int = 3) -> CifarResNet:
    """ResNet18 for CIFAR.

    >>> sum(p.numel() for p in resnet18().parameters())
    11173962
    """
    return CifarResNet(_Basic, (2, 2, 2, 2), classes=classes, channels=channels)


def resnet50(*, classes: int = 10, channels: int = 3) -> CifarResNet:
    """ResNet50 for CIFAR.

    >>> sum(p.numel() for p in resnet50().parameters())
    23520842
    """
    return CifarResNet(_Bottleneck, (3, 4, 6, 3), classes=classes, channels=channels)


def _shortcut(inputs: int, outputs: int, stride: int) -> nn.Sequential:
    """Nothing where the shapes agree, else a 1 × 1 convolution with its own norm."""
    if stride == 1 and inputs == outputs:
        return nn.Sequential()
    convolution = nn.Conv2d(inputs, outputs, 1, stride=stride, bias=False)
    return nn.Sequential(convolution, nn.BatchNorm2d(outputs))
