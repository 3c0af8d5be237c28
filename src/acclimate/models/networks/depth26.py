"""The depth-26 residual networks of test-time training (Sun et al. 2020): 6n + 2, n = 4.

They differ from a :class:`~acclimate.models.networks.wide_resnet.WideResNet` (6n + 4) in their
shortcuts, which have no parameters: where a stage begins, the image is averaged down and the new
channels are
zeros. Batch norm or group norm; the norms are called ``bn`` in both cases, as in the code of
test-time training and of UDA-SS, so that checkpoints of either load unchanged.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import torch.nn.functional as F
from torch import Tensor, nn

from acclimate.errors import AcclimateError, unknown_name

__all__ = ["ResNet26"]

_BLOCKS = 4
_GROUPS = 8
_Norm = Callable[[int], nn.Module]
_NORMS: dict[str, _Norm] = {
    "bn": nn.BatchNorm2d,
    "gn": lambda channels: nn.GroupNorm(_GROUPS, channels),
}


class _Block(nn.Module):
    """Norm, ReLU, convolution, twice, beside a shortcut that takes the block's bare input."""

    def __init__(self, inputs: int, outputs: int, stride: int, norm: _Norm) -> None:
        super().__init__()
        self.stride, self.extra = stride, outputs - inputs
        self.bn1 = norm(inputs)
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1, bias=False)
        self.bn2 = norm(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        change = self.conv1(F.relu(self.bn1(x), inplace=True))
        change = self.conv2(F.relu(self.bn2(change), inplace=True))
        if self.stride > 1:
            # Odd sides are rounded up, as the strided convolution beside it rounds them.
            x = F.avg_pool2d(x, self.stride, ceil_mode=True)
        if self.extra:
            x = F.pad(x, (0, 0, 0, 0, 0, self.extra))
        total: Tensor = x + change
        return total


class ResNet26(nn.Module):
    """Three stages of four blocks with 16, 32 and 64 times ``width`` channels.

    ``norm`` is ``"bn"`` or ``"gn"`` (eight groups); ``channels`` is 1 for grey images. Width 1
    has 0.37 million parameters and width 2 the 1.5 million that the paper prints for "WRN-26-1".

    >>> [sum(p.numel() for p in ResNet26(width).parameters()) for width in (1, 2)]
    [366938, 1456858]
    """

    def __init__(
        self, width: int, *, norm: str = "bn", classes: int = 10, channels: int = 3
    ) -> None:
        super().__init__()
        if width < 1:
            raise AcclimateError(f"expected a width >= 1, got {width}")
        if norm not in _NORMS:
            raise unknown_name("norm of a depth-26 network", norm, _NORMS)
        make, widths = _NORMS[norm], [16, 16 * width, 32 * width, 64 * width]
        self.conv1 = nn.Conv2d(channels, widths[0], 3, padding=1, bias=False)
        stages = []
        for stage, (inputs, outputs) in enumerate(pairwise(widths)):
            first = _Block(inputs, outputs, 2 if stage else 1, make)
            rest = (_Block(outputs, outputs, 1, make) for _ in range(_BLOCKS - 1))
            stages.append(nn.Sequential(first, *rest))
        self.layer1, self.layer2, self.layer3 = stages
        self.bn = make(widths[-1])
        self.fc = nn.Linear(widths[-1], classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def features(self, x: Tensor) -> Tensor:
        """What the classifier sees: one vector per image."""
        x = self.layer3(self.layer2(self.layer1(self.conv1(x))))
        return F.relu(self.bn(x), inplace=True).mean(dim=(2, 3))

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.fc(self.features(x))
        return logits
