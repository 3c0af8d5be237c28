"""Who answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from acclimate.parts import PARTS, Part

__all__ = ["Predictor", "Student"]


@dataclass(frozen=True, kw_only=True)
class Predictor(Part):
    """Who answers, and how.

    Subclasses write ``predict``. Those whose answers a plain model can give write that model in
    ``export``; the others set ``exports = False``, and ``adapt`` takes the answers from them.
    """

    exports: ClassVar[bool] = True


@PARTS["predictor"].register("student")
@dataclass(frozen=True, kw_only=True)
class Student(Predictor):
    """The model that learns."""
