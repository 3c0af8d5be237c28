"""What holds the learner back."""

from __future__ import annotations

from dataclasses import dataclass

from acclimate.parts import PARTS, Part

__all__ = ["NoRegularizer", "Regularizer"]


@dataclass(frozen=True, kw_only=True)
class Regularizer(Part):
    """A term added to the loss, or a pull after each step."""


@PARTS["regularizer"].register("none")
@dataclass(frozen=True, kw_only=True)
class NoRegularizer(Regularizer):
    """Nothing: the paper's own methods add no term to the objective."""
