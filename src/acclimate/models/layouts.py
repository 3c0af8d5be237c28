"""Checkpoints of other code bases, renamed to the modules of this package.

A layout is known by its keys alone: RobustBench's wide residual networks (and those of AugMix,
TRADES and others that grew from the same file) by ``block1.layer.0``, the CIFAR ResNets of
kuangliu by ``layer1.0`` beside ``linear``, the depth-26 networks of test-time training by ``bn``
and ``fc`` beside it. Anything else is passed on as it is.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from itertools import accumulate

from torch import Tensor

from acclimate.errors import AcclimateError

__all__ = ["colour_scale", "to_ours"]

_WIDE = "block1.layer.0.conv1.weight"
_STAGED = "layer1.0.conv1.weight"
# What stands beside it in the networks whose names are ours: kuangliu's, and those of depth 26.
_BESIDE = (("linear.weight",), ("fc.weight", "bn.weight"))
_WIDE_BLOCK = re.compile(r"block([123])\.layer\.(\d+)\.(.+)")
_SHORTCUT = re.compile(r"^(?:convShortcut|conv_shortcut)\b")
# Some nets scale their own input and keep what they scale by: mu, model.sigma, normalize.mean, …
_MEAN = re.compile(r"(?:^|\.)(?:mu|mean)$")
_STD = re.compile(r"(?:^|\.)(?:sigma|std)$")


def to_ours(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """``state`` with this package's names, if it is in a layout known by its keys.

    Prefixes such as ``module.`` go, and so do the buffers of a net's own colour scale, which
    :func:`colour_scale` reads: here it belongs to the preprocessing.

    >>> import torch
    >>> names = ["mu", "module.block1.layer.0.conv1.weight", "module.bn1.bias"]
    >>> list(to_ours({name: torch.zeros(3) for name in names}))
    ['blocks.0.conv1.weight', 'bn.bias']
    """
    if (prefix := _prefix(state, _WIDE)) is not None:
        return _wide(_bare(state, prefix))
    if (prefix := _prefix(state, _STAGED)) is not None and any(
        all(prefix + name in state for name in names) for names in _BESIDE
    ):
        return _bare(state, prefix)
    return dict(state)


def colour_scale(
    state: Mapping[str, Tensor],
) -> tuple[tuple[float, ...], tuple[float, ...]] | None:
    """The mean and std that a net keeps beside its weights, None where it keeps none.

    >>> import torch
    >>> half = torch.full((1, 3, 1, 1), 0.5)
    >>> colour_scale({"mu": half, "sigma": half / 2, "conv1.weight": half})
    ((0.5, 0.5, 0.5), (0.25, 0.25, 0.25))
    """
    means, stds = (
        [_values(value) for name, value in state.items() if _is_scale(name, value, pattern)]
        for pattern in (_MEAN, _STD)
    )
    if not len(means) == len(stds) == 1:
        return None
    if not all(map(math.isfinite, (*means[0], *stds[0]))) or min(stds[0]) <= 0:
        raise AcclimateError(
            f"expected finite numbers and std > 0 in the colour scale beside the weights, got mean "
            f"{means[0]} and std {stds[0]}; the file is damaged: use another"
        )
    return means[0], stds[0]


def _prefix(names: Iterable[str], ending: str) -> str | None:
    """What stands before ``ending`` in the first name that is it, or has it after a dot."""
    for name in names:
        if name == ending or name.endswith(f".{ending}"):
            return name.removesuffix(ending)
    return None


def _bare(state: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {
        name.removeprefix(prefix): value
        for name, value in state.items()
        if not _is_scale(name, value, _MEAN) and not _is_scale(name, value, _STD)
    }


def _wide(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Three stages of blocks become one row of blocks; the last norm loses its number."""
    counts = [0, 0, 0]
    for found in map(_WIDE_BLOCK.fullmatch, state):
        if found:
            stage = int(found[1]) - 1
            counts[stage] = max(counts[stage], int(found[2]) + 1)
    starts = [0, *accumulate(counts)]
    ours = {}
    for name, value in state.items():
        # A copy of the first stage that some files carry, and that their forward never uses.
        if name.startswith("sub_block1."):
            continue
        if found := _WIDE_BLOCK.fullmatch(name):
            number = starts[int(found[1]) - 1] + int(found[2])
            name = f"blocks.{number}.{_SHORTCUT.sub('shortcut', found[3])}"
        elif name.startswith("bn1."):
            name = "bn." + name.removeprefix("bn1.")
        ours[name] = value
    return ours


def _is_scale(name: str, value: Tensor, pattern: re.Pattern[str]) -> bool:
    return pattern.search(name) is not None and value.numel() in (1, 3)


def _values(tensor: Tensor) -> tuple[float, ...]:
    # Of the file's float32, not the nearest of Python's numbers: 0.4914, not 0.49140000343….
    return tuple(round(value, 6) for value in tensor.flatten().tolist())
