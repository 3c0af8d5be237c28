"""Which modules cannot be run at all, or cannot learn: refused with what to do about it."""

from __future__ import annotations

from torch import nn
from torch.nn.parameter import is_lazy

from acclimate.errors import AcclimateError

__all__ = ["check_layers", "check_learnable"]


def check_layers(model: nn.Module, *, origin: str = "") -> None:
    """Refuse a model whose layers have no shapes or no values yet.

    >>> check_layers(nn.Linear(2, 3, device="meta"))
    Traceback (most recent call last):
    acclimate.errors.AcclimateError: expected a model with weights, got Linear as the model on the
    meta device, which has shapes alone; load its weights (models.load, or model.to_empty and
    load_state_dict) first
    """
    for name, module in model.named_modules():
        layer = f"{type(module).__name__} as {name or 'the model'}"
        own = [*module.parameters(recurse=False), *module.buffers(recurse=False)]
        if any(map(is_lazy, own)):
            raise AcclimateError(
                f"expected a model whose layers have their shapes{origin}, got {layer}, which "
                "waits for its first images; pass a batch through the model before it is "
                f"{'returned' if origin else 'adapted or evaluated'}"
            )
        if any(tensor.is_meta for tensor in own):
            raise AcclimateError(
                f"expected a model with weights, got {layer} on the meta device, which has shapes "
                "alone; load its weights (models.load, or model.to_empty and load_state_dict) first"
            )


def check_learnable(model: nn.Module, *, gradients: bool) -> None:
    """Refuse a model with quantised layers: no gradient passes them.

    Without ``gradients`` those that are quantised as they run (dynamically) may stay.
    """
    for name, module in model.named_modules():
        kind = type(module).__module__
        quantised = kind.startswith("torch.") and ".quantized" in kind
        if type(module).__name__ == "LinearPackedParams":  # the weights of a layer, of either kind
            continue
        if quantised and (gradients or ".dynamic" not in kind):
            raise AcclimateError(
                "expected a model in floating point, got a quantised layer "
                f"({type(module).__name__} as {name or 'the model'}); adapt the model from before "
                "it was quantised, then quantise what is returned"
            )
