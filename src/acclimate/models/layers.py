"""Which layers of a model normalise: one way to know them, whatever library they come from."""

from __future__ import annotations

from collections import Counter

from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

__all__ = ["batch_norm_layers", "norm_kind", "norm_layers"]

_KINDS = ("BatchNorm", "GroupNorm", "LayerNorm", "InstanceNorm", "RMSNorm")


def norm_kind(module: nn.Module) -> str | None:
    """The kind of normalisation layer ``module`` is, or None.

    Subclasses of torch's own count (timm's BatchNormAct2d, LayerNorm2d), and so do look-alikes
    whose name says so and that hold one scale per channel (FrozenBatchNorm2d, EvoNorm); a block
    that merely contains a layer does not.

    >>> norm_kind(nn.BatchNorm1d(4)), norm_kind(nn.Linear(4, 4))
    ('BatchNorm', None)
    """
    named = [(cls, kind) for cls in type(module).__mro__ for kind in _KINDS if kind in cls.__name__]
    kind = named[0][1] if named else type(module).__name__
    if any(cls.__module__.startswith("torch.nn.") for cls, _ in named):
        return kind
    weight = getattr(module, "weight", None)
    per_channel = isinstance(weight, Tensor) and weight.numel() == max(weight.shape, default=0)
    return kind if per_channel and "norm" in kind.lower() else None


def norm_layers(model: nn.Module) -> dict[str, int]:
    """How many normalisation layers of each kind are in ``model``, most frequent first.

    >>> norm_layers(nn.Sequential(nn.BatchNorm2d(3), nn.GroupNorm(1, 3), nn.BatchNorm2d(3)))
    {'BatchNorm': 2, 'GroupNorm': 1}
    """
    kinds = (norm_kind(module) for module in model.modules())
    return dict(Counter(kind for kind in kinds if kind).most_common())


def batch_norm_layers(model: nn.Module) -> dict[str, _BatchNorm]:
    """The layers that hold statistics of the source data, by name.

    >>> list(batch_norm_layers(nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))))
    ['1']
    """
    return {
        name: module
        for name, module in model.named_modules()
        if isinstance(module, _BatchNorm) and module.running_mean is not None
    }
