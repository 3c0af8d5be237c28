"""What a forward pass gives, whatever shape the model returns it in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from acclimate.errors import AcclimateError

__all__ = ["Outputs", "checked_logits", "classifier_weight", "find_classifier", "logits_of"]


@dataclass(frozen=True)
class Outputs:
    """Logits (N × classes) and, where a part asked for them, what the classifier was fed."""

    logits: Tensor
    features: Tensor | None = None
    projections: Tensor | None = None


def logits_of(returned: Any) -> Tensor:
    """Find the logits in what a model returned: a tensor, ``.logits``, ``["logits"]`` or a tuple.

    >>> import torch
    >>> logits_of((torch.zeros(2, 3), "something else")).shape
    torch.Size([2, 3])
    """
    found = returned
    if isinstance(found, Mapping) and "logits" in found:
        found = found["logits"]
    elif hasattr(found, "logits"):
        found = found.logits
    elif isinstance(found, tuple | list) and found:
        found = found[0]
    if not isinstance(found, Tensor):
        raise AcclimateError(
            "expected a model that returns logits (a tensor, an object with .logits, or a tuple "
            f"that starts with a tensor), got {type(returned).__name__}"
        )
    if found.ndim != 2:
        raise AcclimateError(
            f"expected logits of shape images × classes, got {tuple(found.shape)}; "
            "acclimate adapts classifiers (one row of class scores per image)"
        )
    return found


def find_classifier(model: nn.Module) -> tuple[str, nn.Module]:
    """The layer that turns features into logits: the last linear layer, or else 1×1 convolution.

    >>> find_classifier(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)))
    ('2', Linear(in_features=8, out_features=2, bias=True))
    """
    own = getattr(model, "get_classifier", None)  # timm's models have it
    if callable(own):
        layer = own()
        for name, module in model.named_modules():
            if module is layer and any(True for _ in module.parameters()):
                return name, module
    named = list(model.named_modules())
    linear = [(name, m) for name, m in named if isinstance(m, nn.Linear)]
    pointwise = [
        (name, m) for name, m in named if isinstance(m, nn.Conv2d) and m.kernel_size == (1, 1)
    ]
    if not (linear or pointwise):
        raise AcclimateError(
            f"found no linear layer in {type(model).__name__} to be the classifier"
        )
    return (linear or pointwise)[-1]


def classifier_weight(model: nn.Module) -> Tensor:
    """The weight of that layer: classes × features (× 1 × 1)."""
    weight = find_classifier(model)[1].weight
    assert isinstance(weight, Tensor)
    return weight


def checked_logits(model: nn.Module, images: Tensor) -> Tensor:
    """The logits for a first batch; an error names the shape of images the model failed on."""
    try:
        with torch.no_grad():
            returned = model(images)
    except Exception as error:
        shape = " × ".join(map(str, images.shape))
        reason = _unlike_first_layer(model, images) or f"{type(error).__name__}: {error}"
        raise AcclimateError(
            f"the model failed on images of shape {shape} (images × channels × height × width): "
            f"{reason}"
        ) from error
    return logits_of(returned)


def _unlike_first_layer(model: nn.Module, images: Tensor) -> str | None:
    """What the first convolution expects, where these images are not of that shape."""
    first = next((m for m in model.modules() if isinstance(m, nn.Conv2d)), None)
    if first is None:
        return None
    if images.ndim != 4:
        return "expected four dimensions; one image is images[None]"
    if images.shape[1] == first.in_channels:
        return None
    return (
        f"expected {first.in_channels} channels, as its first convolution takes them, got "
        f"{images.shape[1]}; preprocessing with one mean and std for each channel makes uint8 "
        "images fit (Preprocessing(mean=, std=), on the command line --size, --mean and --std)"
    )
