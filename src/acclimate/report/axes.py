"""From values to places on the paper: linear and logarithmic axes, and the frame they span."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from acclimate.errors import AcclimateError
from acclimate.report.svg import element, group, text

__all__ = ["Axis", "Frame", "axes", "inside"]


@dataclass(frozen=True, kw_only=True)
class Axis:
    """A range of values; ``marks`` are places that take a label instead of round numbers.

    >>> axis = Axis(label="τ", low=0.001, high=10, log=True)
    >>> float(axis.share(0.1)), axis.ticks()[0]
    (0.5, (0.001, '0.001'))
    """

    label: str
    low: float
    high: float
    log: bool = False
    marks: tuple[tuple[float, str], ...] = ()

    def __post_init__(self) -> None:
        if not self.low < self.high or (self.log and self.low <= 0):
            raise AcclimateError(
                f"expected {'0 < ' if self.log else ''}low < high, got {self.low}, {self.high}"
            )

    def share(self, value: ArrayLike) -> NDArray[np.float64]:
        """Where along the axis, from 0 to 1."""
        v = np.asarray(value, dtype=float)
        if self.log:
            return np.asarray(np.log(v / self.low) / np.log(self.high / self.low))
        return np.asarray((v - self.low) / (self.high - self.low))

    def ticks(self) -> list[tuple[float, str]]:
        """Values worth a label, a handful of them."""
        if self.marks:
            return list(self.marks)
        if self.log:
            first = math.ceil(math.log10(self.low) - 1e-9)
            last = math.floor(math.log10(self.high) + 1e-9)
            return [(10.0**k, f"{10.0**k:g}") for k in range(first, last + 1)]
        rough = (self.high - self.low) / 5
        power = 10.0 ** math.floor(math.log10(rough))
        step = power * next(m for m in (1, 2, 5, 10) if m * power >= rough * 0.999)
        first, last = math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9)
        return [(k * step, f"{k * step:g}") for k in range(first, last + 1)]


@dataclass(frozen=True, kw_only=True)
class Frame:
    """A rectangle on the paper with an axis each way."""

    left: float
    top: float
    width: float
    height: float
    x: Axis
    y: Axis

    def place(self, x: ArrayLike, y: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Values as pixels, relative to the frame's corner at the top left."""
        return self.x.share(x) * self.width, (1 - self.y.share(y)) * self.height


def inside(frame: Frame, marks: Sequence[str]) -> str:
    """Marks, cut off at the frame's edge. They are drawn relative to its corner."""
    box = {"x": frame.left, "y": frame.top, "width": frame.width, "height": frame.height}
    return element("svg", "".join(marks), overflow="hidden", **box)


def axes(frame: Frame, *, title: str = "", label_y: bool = True) -> str:
    """The frame's border, ticks, labels and title."""
    left, top, width, height = frame.left, frame.top, frame.width, frame.height
    parts = [element("rect", class_="rule", x=left, y=top, width=width, height=height)]
    for value, words in frame.x.ticks():
        x = left + float(frame.x.share(value)) * width
        parts.append(element("path", class_="rule", d=f"M{x:.2f} {top + height:.2f}v4"))
        parts.append(text(x, top + height + 17, words, text_anchor="middle"))
    for value, words in frame.y.ticks():
        y = top + (1 - float(frame.y.share(value))) * height
        parts.append(element("path", class_="rule", d=f"M{left:.2f} {y:.2f}h-4"))
        if label_y:
            parts.append(text(left - 7, y + 4, words, text_anchor="end"))
    parts.append(text(left + width / 2, top + height + 34, frame.x.label, text_anchor="middle"))
    if label_y:
        parts.append(
            group(
                [text(0, 0, frame.y.label, text_anchor="middle")],
                transform=f"translate({left - 42:.2f} {top + height / 2:.2f}) rotate(-90)",
            )
        )
    if title:
        middle = left + width / 2
        parts.append(text(middle, top - 8, title, class_="title", text_anchor="middle"))
    return group(parts)
