"""The optimiser a plan asks for."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from acclimate.pretraining.plan import Plan

__all__ = ["make_optimizer"]


def make_optimizer(model: nn.Module, plan: Plan) -> torch.optim.Optimizer:
    """SGD or Adam over everything in a module that learns.

    >>> type(make_optimizer(nn.Linear(2, 2), Plan(optimizer="adam"))).__name__
    'AdamW'
    """
    groups = _groups(model, plan.weight_decay)
    if plan.optimizer == "adam":
        return torch.optim.AdamW(groups, lr=plan.lr)
    momentum, on_gpu = plan.momentum, next(model.parameters()).is_cuda
    return torch.optim.SGD(
        groups, lr=plan.lr, momentum=momentum, nesterov=momentum > 0, fused=on_gpu
    )


def _groups(model: nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    """Weights decay; scales, shifts and biases, which have one dimension, do not."""
    parameters = [p for p in model.parameters() if p.requires_grad]
    return [
        {"params": [p for p in parameters if p.ndim > 1], "weight_decay": weight_decay},
        {"params": [p for p in parameters if p.ndim <= 1], "weight_decay": 0.0},
    ]
