"""How much hangs on the learning rate and the epochs: the tables of the paper's Appendix C."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from acclimate.experiments._selection_settings import Setting
from acclimate.experiments.job import Options
from acclimate.experiments.selection import Choice, options_with

__all__ = ["LEGEND", "Sensitivity", "SensitivityCell", "sensitivity"]

_RATE = "optimizer.lr"
LEGEND = (
    "* chosen; † collapsed somewhere: fewer than half of the classes in use; div: diverged; "
    "epoch 0: before anything is learnt"
)


@dataclass(frozen=True, kw_only=True)
class SensitivityCell:
    """A mean error, and what happened to the runs behind it.

    Attributes:
        error: in percent, over what is there; None where nothing is.
        missing: how many runs are not there.
        collapsed: in how many classes were no longer answered.
        diverged: in how many something was not finite.
        chosen: whether these are the chosen options.
    """

    error: float | None
    missing: int = 0
    collapsed: int = 0
    diverged: int = 0
    chosen: bool = False

    def __str__(self) -> str:
        if self.diverged:
            return "div"
        if self.error is None:
            return "-"
        gaps = f" ({self.missing} missing)" if self.missing else ""
        return f"{self.error:.1f}{'†' * (self.collapsed > 0)}{'*' * self.chosen}{gaps}"


@dataclass(frozen=True, kw_only=True)
class Sensitivity:
    """Mean errors by epoch and learning rate, where all other options are the same.

    Attributes:
        options: the others.
        rates: the columns, smallest first; None where the recipe's own was taken.
        epochs: the rows.
        cells: by epoch and rate.
    """

    options: Options
    rates: tuple[float | None, ...]
    epochs: tuple[int, ...]
    cells: dict[tuple[int, float | None], SensitivityCell]

    @property
    def rows(self) -> list[list[str]]:
        """As a table shows it: the epoch, and a cell for each rate."""
        return [
            [str(epoch), *(str(self.cells.get((epoch, rate), "-")) for rate in self.rates)]
            for epoch in self.epochs
        ]

    @property
    def header(self) -> list[str]:
        """The names of the columns."""
        return ["epoch", *("lr " + ("?" if r is None else f"{r:g}") for r in self.rates)]

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        cells = [
            {"epochs": epoch, "lr": rate, **vars(cell)}
            for (epoch, rate), cell in self.cells.items()
        ]
        return {"options": dict(self.options), "cells": cells}


def sensitivity(settings: Sequence[Setting], choice: Choice | None = None) -> list[Sensitivity]:
    """A table for each combination of the options other than learning rate and epochs."""
    sorted_in: dict[Options, list[Setting]] = {}
    for setting in settings:
        others = tuple(pair for pair in setting.options if pair[0] != _RATE)
        sorted_in.setdefault(others, []).append(setting)
    return [_table(options, each, choice) for options, each in sorted_in.items()]


def _table(options: Options, settings: Sequence[Setting], choice: Choice | None) -> Sensitivity:
    cells: dict[tuple[int, float | None], SensitivityCell] = {}
    for setting in settings:
        most = max((max(states) for states in setting.runs.values()), default=0)
        for epoch in range(most + 1):
            cells[epoch, setting.lr] = _cell(setting, epoch, choice)
    rates = sorted({setting.lr for setting in settings}, key=lambda rate: rate or 0.0)
    return Sensitivity(
        options=options,
        rates=tuple(rates),
        epochs=tuple(sorted({epoch for epoch, _ in cells})),
        cells=cells,
    )


def _cell(setting: Setting, epoch: int, choice: Choice | None) -> SensitivityCell:
    states = [state for p in setting.places() if (state := setting.state(p, epoch)) is not None]
    is_choice = choice is not None and options_with(setting, epoch) == choice.options
    return SensitivityCell(
        error=setting.error(epoch),
        missing=len(setting.expected) - len(states),
        collapsed=sum(state.collapsed for state in states),
        diverged=sum(state.diverged for state in states),
        chosen=is_choice and (epoch > 0 or setting.epochs == [0]),
    )
