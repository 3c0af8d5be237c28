"""Fill a model with tensors by name, and report exactly what does not fit."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from itertools import accumulate

import torch
from torch import Tensor, nn

from acclimate.errors import AcclimateError

__all__ = ["ClassCountError", "colour_scale", "fill", "to_ours"]


class ClassCountError(AcclimateError):
    """Weights that fit a model but for the number of classes, which is ``count`` in the file."""

    def __init__(self, message: str, count: int) -> None:
        super().__init__(message)
        self.count = count


_WIDE = "block1.layer.0.conv1.weight"
_STAGED = "layer1.0.conv1.weight"
# What stands beside it in the networks whose names are ours: kuangliu's, and those of depth 26.
_BESIDE = (("linear.weight",), ("fc.weight", "bn.weight"))
_WIDE_BLOCK = re.compile(r"block([123])\.layer\.(\d+)\.(.+)")
# The files torchvision publishes for DenseNets have names with a dot too many: norm.1 for norm1.
_DENSE = "features.denseblock1.denselayer1.norm1.weight"
_OLD_DENSE = re.compile(r"(denselayer\d+\.(?:norm|relu|conv))\.([12]\.)")
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
    state = {_OLD_DENSE.sub(r"\1\2", name): value for name, value in state.items()}
    prefix = _prefix(state, _DENSE)
    return state if prefix is None else _bare(state, prefix)


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


def fill(model: nn.Module, tensors: Mapping[str, Tensor], *, settled: bool = False) -> None:
    """Copy ``tensors`` into ``model``; every parameter and statistic must be there and fit.

    A prefix that all names share (``module.``, ``model.``, ``_orig_mod.``) is taken off where
    that makes them match, and the layouts of other code bases (:func:`to_ours`) are renamed where
    that does. Absent ``num_batches_tracked`` counters are fine; numbers that are not finite, or
    not of a floating type where the model's are, are refused.

    A model with ``settled`` takes no other class count, so that none is advised.

    >>> import torch
    >>> source, copy = nn.Linear(2, 3), nn.Linear(2, 3)
    >>> fill(copy, {f"module.{name}": value for name, value in source.state_dict().items()})
    >>> torch.equal(copy.weight, source.weight)
    True
    >>> fill(nn.Linear(2, 4), source.state_dict())
    Traceback (most recent call last):
    acclimate.models.filling.ClassCountError: the weights are for 3 classes, the model has 4;
    make it for 3: num_classes=3, on the command line --num-classes 3
    (weight: 3×2 in the file, 4×2 in the model)
    """
    expected = model.state_dict()
    given = _renamed(tensors, expected)
    used = {name: given[name] for name in expected if name in given}
    _check_names_and_shapes(used, given, expected, type(model).__name__, settled=settled)
    _check_numbers(used, expected, {name for name, _ in model.named_buffers()})
    model.load_state_dict(used, strict=False)


def _renamed(tensors: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """By the names that fit the model best: as given, less a common prefix, or as ``to_ours``."""
    averaged = "n_averaged"  # torch's AveragedModel has it beside the "module." of all others
    given = {k: v for k, v in tensors.items() if k != averaged or averaged in expected}
    candidates = [given]
    while given:
        head, dot, _ = next(iter(given)).partition(".")
        if not dot or not all(name.startswith(head + dot) for name in given):
            break
        given = {name.removeprefix(head + dot): value for name, value in given.items()}
        candidates.append(given)
    best = max(candidates, key=lambda names: len(names.keys() & expected.keys()))

    def fit(names: Mapping[str, Tensor]) -> tuple[int, int]:
        matching = len(names.keys() & expected.keys())
        return matching, matching - len(names)

    ours = to_ours(candidates[0])
    return ours if fit(ours) > fit(best) else best


def _check_names_and_shapes(
    used: Mapping[str, Tensor],
    given: Mapping[str, Tensor],
    expected: Mapping[str, Tensor],
    kind: str,
    *,
    settled: bool,
) -> None:
    def wanted(names: Iterable[str]) -> list[str]:
        return [name for name in names if not name.endswith("num_batches_tracked")]

    missing = wanted(name for name in expected if name not in given)
    unexpected = wanted(name for name in given if name not in expected)
    shapes = {
        name: (value.shape, expected[name].shape)
        for name, value in used.items()
        if value.shape != expected[name].shape
    }
    if not (missing or unexpected or shapes):
        return
    mismatches = [
        f"{name}: {_shape(ours)} in the file, {_shape(theirs)} in the model"
        for name, (ours, theirs) in shapes.items()
    ]
    # Class counts are what differs if every mismatch is one and the same first dimension.
    counts = {
        (ours[0], theirs[0]) if ours and theirs and ours[1:] == theirs[1:] else None
        for ours, theirs in shapes.values()
    }
    only = counts.pop() if len(counts) == 1 else None
    if only is not None and not missing and not unexpected:
        count, own = only
        advice = (
            f" and takes no other count; use one that is made for {count}"
            if settled
            else f"; make it for {count}: num_classes={count}, on the command line "
            f"--num-classes {count}"
        )
        raise ClassCountError(
            f"the weights are for {count} classes, the model has {own}{advice} ({mismatches[0]})",
            count,
        )
    fitting = [name for name in wanted(used) if name not in shapes]
    raise AcclimateError(
        f"the weights do not fit this {kind}: {len(fitting)} of {len(wanted(expected))} tensors "
        "match"
        + _first_few("missing in the file", missing)
        + _first_few("unknown to the model", unexpected)
        + _first_few("of another shape", mismatches)
        + "; check that the file was made for this architecture"
    )


def _check_numbers(
    used: Mapping[str, Tensor], expected: Mapping[str, Tensor], buffers: set[str]
) -> None:
    for name, value in used.items():
        if not expected[name].is_floating_point():
            continue
        if not value.is_floating_point():
            raise AcclimateError(
                "expected floating-point numbers in the weights, got "
                f"{str(value.dtype).removeprefix('torch.')} for {name}; "
                "save them as float32 or float16"
            )
        # A mask that a model was made with is a buffer too, and minus infinity is what it holds.
        is_mask = name in buffers and not _finite(expected[name])
        if not is_mask and not _finite(value):
            raise AcclimateError(
                f"the weights hold numbers that are not finite, {name} the first of them: the "
                "file is damaged or its training diverged; use another checkpoint"
            )


def _finite(tensor: Tensor) -> bool:
    # A sum needs no mask of the tensor's size; where it overflowed, the mask decides.
    return bool(tensor.sum().isfinite()) or bool(torch.isfinite(tensor).all())


def _shape(shape: torch.Size) -> str:
    return "×".join(map(str, shape)) or "one value"


def _first_few(what: str, names: list[str]) -> str:
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return f"; {what}: {', '.join(names[:3])}{more}" if names else ""
