"""How long and how fast to train."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from itertools import chain
from typing import Any

from acclimate.errors import AcclimateError, unknown_name
from acclimate.parts.base import check_options, option
from acclimate.pretraining.methods import Method
from acclimate.registry import parse_assignments, parse_value

__all__ = ["Plan", "sorted_options"]


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How long and how fast to train.

    Attributes:
        epochs: passes over the images.
        batch_size: images per step.
        lr: the peak of the learning rate.
        weight_decay: of all weights but scales, shifts and biases.
        optimizer: "sgd", or "adam" with decoupled weight decay.
        momentum: of SGD, in Nesterov's form.
        clip: the largest norm of all gradients together; larger ones are scaled down to it, which
            holds a loss that would jump. None does not clip.
        seed: order, augmentation; the caller's for the initial weights.

    >>> Plan(momentum=2.0)
    Traceback (most recent call last):
    acclimate.errors.AcclimateError: expected momentum >= 0 and < 1, got 2.0
    """

    epochs: int = option(30, low=0, open_low=True)
    batch_size: int = option(256, low=0, open_low=True)
    lr: float = option(0.4, low=0, open_low=True)
    weight_decay: float = option(5e-4, low=0)
    optimizer: str = "sgd"
    momentum: float = option(0.9, low=0, high=1, open_high=True)
    clip: float | None = option(None, low=0, open_low=True)
    seed: int = 0

    def __post_init__(self) -> None:
        check_options(self)
        if self.optimizer not in ("sgd", "adam"):
            raise AcclimateError(f"expected an optimizer sgd or adam, got {self.optimizer!r}")
        if not 0 <= self.seed < 2**40:
            raise AcclimateError(f"expected a seed >= 0 and < 2**40, got {self.seed}")


def sorted_options(
    words: list[str], method: type[Method], *, elsewhere: Collection[str] = ()
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Options of the plan and of the method, in their types.

    A name that both have needs a prefix: ``plan.momentum=0.8``, ``method.momentum=0.99``.

    Args:
        words: as they were typed.
        method: the kind that is to be made.
        elsewhere: options of the plan that are not set here.

    >>> from acclimate.pretraining import Vanilla
    >>> sorted_options(["margin=2", "clip=1"], Vanilla)
    ({'clip': 1.0}, {'margin': 2})
    """
    kinds: dict[str, Any] = {"plan": Plan, "method": method}
    found: dict[str, dict[str, Any]] = {where: {} for where in kinds}
    for word, value in parse_assignments(words).items():
        prefix, _, last = word.rpartition(".")
        asked, name = ([prefix], last) if prefix in kinds else (list(kinds), word)
        fields = {where: kinds[where].__dataclass_fields__ for where in asked}
        having = [where for where in asked if name in fields[where]]
        if not having:
            raise unknown_name("option", name, chain.from_iterable(fields.values()))
        if len(having) > 1:
            raise AcclimateError(
                f"{name} is an option of plan and method; expected plan.{name} or method.{name}, "
                f"got {name}"
            )
        (where,) = having
        if where == "plan" and name in elsewhere:
            raise AcclimateError(
                f"--set {word}: expected --{name.replace('_', '-')} {value}, its own option"
            )
        annotation = str(fields[where][name].type)
        found[where][name] = (
            tuple(each.strip() for each in value.split(","))
            if annotation.startswith("tuple")
            else parse_value(name, value, annotation)
        )
    return found["plan"], found["method"]
