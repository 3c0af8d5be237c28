"""Copies of models, their precision and the choice of a device."""

from __future__ import annotations

import copy

import torch
from torch import nn

from acclimate.errors import AcclimateError
from acclimate.models.given import carry_preprocessing

__all__ = ["choose_device", "copy_model", "floating_dtype"]


def choose_device(device: str | torch.device | None) -> torch.device:
    """The device asked for, or CUDA when there is one, else the CPU."""
    try:
        chosen = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
        torch.zeros(1, device=chosen)
    except (RuntimeError, AssertionError) as error:
        full = "; something else fills its memory" if "out of memory" in str(error) else ""
        raise AcclimateError(
            f"cannot use the device {device!r}: {str(error).splitlines()[0]}{full}"
        ) from error
    return chosen


def copy_model(model: nn.Module) -> nn.Module:
    """A copy to learn in, so that the user's own model stays unchanged."""
    try:
        copied = copy.deepcopy(model)
    except Exception as error:
        raise AcclimateError(
            f"{type(model).__name__} cannot be copied ({error}); "
            "pass inplace=True to adapt it itself"
        ) from error
    carry_preprocessing(model, copied)
    return copied


def floating_dtype(model: nn.Module) -> torch.dtype:
    """The precision a model works in, and wants its images in."""
    return next((p.dtype for p in model.parameters() if p.is_floating_point()), torch.float32)
