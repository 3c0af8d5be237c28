"""What the parts remember, as flat tensors: for checkpoints, snapshots and ``state_dict``.

A state is a dataclass whose public fields hold tensors, dictionaries of tensors, modules,
generators or numbers; a torch optimiser; or None. Fields that start with an underscore are not
kept. A dictionary of anything else is left alone: it describes the model, and does not change.
Where the class says ``restored_in_place``, tensors in dictionaries are filled and not replaced.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import torch
from torch import Tensor, nn

__all__ = ["pack", "transform", "under", "unpack"]


def pack(state: Any) -> dict[str, Tensor]:
    """Flatten a state to named tensors (not copied).

    >>> from dataclasses import dataclass
    >>> @dataclass
    ... class Memory:
    ...     centre: Tensor
    ...     seen: int = 0
    >>> pack(Memory(torch.zeros(2), seen=3))
    {'centre': tensor([0., 0.]), 'seen': tensor(3)}
    """
    if state is None:
        return {}
    if isinstance(state, torch.optim.Optimizer):
        return _pack_optimizer(state)
    packed: dict[str, Tensor] = {}
    for name, value in _public_fields(state):
        if isinstance(value, Tensor):
            packed[name] = value
        elif isinstance(value, nn.Module):
            packed |= {f"{name}.{key}": tensor for key, tensor in value.state_dict().items()}
        elif isinstance(value, torch.Generator):
            packed[name] = value.get_state()
        elif isinstance(value, Mapping):
            packed |= {f"{name}.{k}": v for k, v in value.items() if isinstance(v, Tensor)}
        elif isinstance(value, bool | int):
            packed[name] = torch.tensor(int(value))
        elif isinstance(value, float):
            packed[name] = torch.tensor(value, dtype=torch.float64)
        else:
            raise TypeError(
                f"{type(state).__name__}.{name} is a {type(value).__name__}, which no checkpoint "
                "can hold: use tensors, dictionaries of tensors, modules, generators or numbers, "
                "or start the name with an underscore if it need not be kept"
            )
    return packed


def under(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors whose names begin with a prefix, by the rest of their names.

    >>> under("a/", {"a/x": torch.tensor(1), "b/x": torch.tensor(2)})
    {'x': tensor(1)}
    """
    return {k[len(prefix) :]: v for k, v in tensors.items() if k.startswith(prefix)}


def unpack(state: Any, packed: Mapping[str, Tensor]) -> None:
    """Put packed values back into a state of the same shape."""
    if state is None:
        return
    if isinstance(state, torch.optim.Optimizer):
        _unpack_optimizer(state, packed)
        return
    for name, value in _public_fields(state):
        inner = under(f"{name}.", packed)
        if isinstance(value, nn.Module):
            value.load_state_dict(inner)
        elif isinstance(value, dict) and inner:
            _fill(value, inner, in_place=getattr(state, "restored_in_place", False))
        elif name in packed:
            stored = packed[name]
            if isinstance(value, Tensor):
                setattr(state, name, stored.to(value.device).clone())
            elif isinstance(value, torch.Generator):
                value.set_state(stored.cpu())
            else:
                setattr(state, name, type(value)(stored.item()))


def _fill(held: dict[str, Tensor], inner: Mapping[str, Tensor], *, in_place: bool) -> None:
    for name, tensor in inner.items():
        if in_place and name in held:
            held[name].copy_(tensor)
        else:
            held[name] = tensor.to(held.get(name, tensor)).clone()


def transform(state: Any, change: Callable[[Tensor], Tensor]) -> None:
    """Put ``change(tensor)`` in every tensor's place: what ``module.to(...)`` does to a module."""
    if state is None:
        return
    if isinstance(state, torch.optim.Optimizer):
        for moments in state.state.values():
            for key, value in moments.items():
                if isinstance(value, Tensor) and value.ndim:
                    moments[key] = change(value)
        _place_counters(state)
        return
    for name, value in _public_fields(state):
        if isinstance(value, Tensor):
            setattr(state, name, change(value))
        elif isinstance(value, nn.Module):
            value._apply(change)
        elif isinstance(value, dict):
            value.update({k: change(v) for k, v in value.items() if isinstance(v, Tensor)})


def _public_fields(state: Any) -> list[tuple[str, Any]]:
    if not is_dataclass(state):
        raise TypeError(f"a part's state must be a dataclass or None, got {type(state).__name__}")
    return [(f.name, getattr(state, f.name)) for f in fields(state) if not f.name.startswith("_")]


def _parameters(optimizer: torch.optim.Optimizer) -> list[Tensor]:
    return [p for group in optimizer.param_groups for p in group["params"]]


def _pack_optimizer(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    packed = {"lr": torch.tensor(optimizer.param_groups[0]["lr"], dtype=torch.float64)}
    for index, parameter in enumerate(_parameters(optimizer)):
        for key, value in optimizer.state.get(parameter, {}).items():
            if isinstance(value, Tensor):
                packed[f"{index}.{key}"] = value
    return packed


def _unpack_optimizer(optimizer: torch.optim.Optimizer, packed: Mapping[str, Tensor]) -> None:
    for group in optimizer.param_groups:
        group["lr"] = float(packed["lr"])
    optimizer.state.clear()
    for index, parameter in enumerate(_parameters(optimizer)):
        for key, value in under(f"{index}.", packed).items():
            optimizer.state[parameter][key] = value.to(parameter.device).clone()
    _place_counters(optimizer)


def _place_counters(optimizer: torch.optim.Optimizer) -> None:
    """Adam's counters of steps belong with the parameters on a GPU, else on the CPU."""
    for group in optimizer.param_groups:
        if "capturable" not in group:
            continue
        group["capturable"] = all(p.is_cuda for p in group["params"])
        for parameter in group["params"]:
            moments = optimizer.state.get(parameter, {})
            if "step" in moments:
                device = parameter.device if group["capturable"] else "cpu"
                moments["step"] = moments["step"].to(device)
