"""Which normalisation layers a model has."""

from __future__ import annotations

from collections import Counter

from torch import nn

__all__ = ["norm_kind", "norm_layers"]

_KINDS = ("BatchNorm", "GroupNorm", "LayerNorm", "InstanceNorm", "RMSNorm")


def norm_kind(module: nn.Module) -> str | None:
    """The kind of normalisation layer ``module`` is, or None.

    Subclasses count (timm's BatchNormAct2d, LayerNorm2d), and so do look-alikes that hold their
    own affines under a telling name (FrozenBatchNorm2d); a block that merely contains a layer
    does not.

    >>> norm_kind(nn.BatchNorm1d(4)), norm_kind(nn.Linear(4, 4))
    ('BatchNorm', None)
    """
    for cls in type(module).__mro__:
        for kind in _KINDS:
            if kind.lower() in cls.__name__.lower():
                return (
                    kind if cls.__module__.startswith("torch.nn.") or _owns_state(module) else None
                )
    return None


def norm_layers(model: nn.Module) -> dict[str, int]:
    """How many normalisation layers of each kind are in ``model``, most frequent first.

    >>> norm_layers(nn.Sequential(nn.BatchNorm2d(3), nn.GroupNorm(1, 3), nn.BatchNorm2d(3)))
    {'BatchNorm': 2, 'GroupNorm': 1}
    """
    kinds = (norm_kind(module) for module in model.modules())
    return dict(Counter(kind for kind in kinds if kind).most_common())


def _owns_state(module: nn.Module) -> bool:
    own = [*module.parameters(recurse=False), *module.buffers(recurse=False)]
    return bool(own)
