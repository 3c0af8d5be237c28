"""Small models and images that the tests of the core share."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from acclimate.models.libraries import import_torchvision

CLASSES = 5
torch.set_num_threads(1)  # These nets are too small to share out.


def images(n: int = 8, *, seed: int = 0, size: int = 8, shift: float = 0.5) -> Tensor:
    """Noise that is off-centre, as target images are."""
    draw = torch.Generator().manual_seed(seed)
    return 1.5 * torch.randn(n, 3, size, size, generator=draw) + shift


def _settle(net: nn.Module, seed: int) -> nn.Module:
    """Weights from a seed, and statistics as if the net had been trained on something."""
    draw = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, p in net.named_parameters():
            scale = 0.3 if p.ndim > 1 else 0.1
            start = 1.0 if p.ndim == 1 and name.endswith("weight") else 0.0
            p.copy_(start + scale * torch.randn(p.shape, generator=draw))
        for name, b in net.named_buffers():
            if name.endswith("running_mean"):
                b.copy_(0.3 * torch.randn(b.shape, generator=draw))
            elif name.endswith("running_var"):
                b.copy_(0.5 + torch.rand(b.shape, generator=draw))
    return net.eval()


def bn_net(seed: int = 0, *, classes: int = CLASSES) -> nn.Sequential:
    """Two convolutions with batch norm."""
    net = nn.Sequential(
        nn.Conv2d(3, 6, 3, padding=1),
        nn.BatchNorm2d(6),
        nn.ReLU(),
        nn.Conv2d(6, 8, 3, stride=2),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.Dropout(0.5),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(8, classes),
    )
    _settle(net, seed)
    return net


def gn_net(seed: int = 0) -> nn.Sequential:
    """The same with group norm."""
    net = nn.Sequential(
        nn.Conv2d(3, 6, 3, padding=1),
        nn.GroupNorm(2, 6),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(6, CLASSES),
    )
    _settle(net, seed)
    return net


def tiny_vit(seed: int = 0, **options: Any) -> nn.Module:
    """timm's vision transformer, a few thousand parameters small."""
    import_torchvision()
    import timm

    torch.manual_seed(seed)
    small = {"img_size": 16, "patch_size": 8, "embed_dim": 16, "depth": 2, "num_heads": 2}
    net: nn.Module = timm.models.VisionTransformer(**{**small, "num_classes": CLASSES, **options})
    return net.eval()


def same_tensors(a: dict[str, Tensor], b: dict[str, Tensor]) -> bool:
    """Bit by bit, NaN equal to NaN."""
    return a.keys() == b.keys() and all(
        torch.equal(a[k].nan_to_num(7.0), b[k].nan_to_num(7.0))
        if a[k].is_floating_point()
        else torch.equal(a[k], b[k])
        for k in a
    )


def snapshot(module: nn.Module) -> dict[str, Tensor]:
    """A copy of a module's state."""
    return {k: v.clone() for k, v in module.state_dict().items()}


class Residual(nn.Module):
    """A stem, a residual block and all that a batch norm may take in."""

    def __init__(self, channels: int = 16) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.stem = nn.Conv2d(3, channels, 7, 2, 3, bias=False)
        self.first = nn.BatchNorm2d(channels)
        self.pool = nn.MaxPool2d(3, 2, 1)
        self.conv = nn.Conv2d(channels, channels, 3, 1, 1, bias=False)
        self.second = nn.BatchNorm2d(channels)
        self.relu = nn.ReLU(inplace=True)
        self.last = nn.Linear(channels, 5)
        for module in self.modules():
            if isinstance(module, nn.BatchNorm2d):
                assert module.running_mean is not None
                assert module.running_var is not None
                module.running_mean.normal_()
                module.running_var.uniform_(0.5, 2)
                nn.init.uniform_(module.weight, 0.5, 2)
                nn.init.normal_(module.bias)

    def forward(self, x: Tensor) -> Tensor:
        x = self.pool(self.relu(self.first(self.stem(x))))
        out = self.second(self.conv(x))
        out += x
        out = self.relu(out)
        logits: Tensor = self.last(out.mean(dim=(2, 3)))
        return logits
