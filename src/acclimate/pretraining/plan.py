"""How long and how fast to train."""

from __future__ import annotations

from dataclasses import dataclass

from acclimate.errors import AcclimateError
from acclimate.parts import check_range

__all__ = ["Plan"]


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How long and how fast to train.

    Attributes:
        epochs: passes over the pictures.
        batch_size: pictures per step.
        lr: the peak of the learning rate.
        weight_decay: of all weights but scales, shifts and biases.
        optimizer: "sgd", or "adam" with decoupled weight decay.
        momentum: of SGD, in Nesterov's form.
        clip: the largest norm of all gradients together; larger ones are scaled down to it, which
            holds a loss that would jump. None leaves them as they are.
        seed: order, augmentation; the caller's for the initial weights.

    >>> Plan(momentum=2.0)
    Traceback (most recent call last):
    acclimate.errors.AcclimateError: expected momentum >= 0 and < 1, got 2.0
    """

    epochs: int = 30
    batch_size: int = 256
    lr: float = 0.4
    weight_decay: float = 5e-4
    optimizer: str = "sgd"
    momentum: float = 0.9
    clip: float | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("epochs", "batch_size", "lr", "clip"):
            check_range(self, name, low=0, open_low=True)
        check_range(self, "weight_decay", low=0)
        check_range(self, "momentum", low=0, high=1, open_high=True)
        if self.optimizer not in ("sgd", "adam"):
            raise AcclimateError(f"expected an optimizer sgd or adam, got {self.optimizer!r}")
        if not 0 <= self.seed < 2**40:
            raise AcclimateError(f"expected a seed >= 0 and < 2**40, got {self.seed}")
