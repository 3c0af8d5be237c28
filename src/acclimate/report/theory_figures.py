"""The theory's figures by name, each with how many panels it takes to compute."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial

from acclimate.report.path_figures import field_figure, trajectory_figure
from acclimate.report.phase_figures import phase_figure
from acclimate.theory.settings import FIGURES, MAIN_FIGURE, Settings

__all__ = ["QUICK", "TheoryFigure", "theory_figures"]

QUICK = 60
"""Temperatures a side of a quick phase diagram; the paper's have 250."""

_TITLES = {
    "phase": "The two-point model",
    "2p-momentum": "Learning rates, with momentum",
    "2p-standard": "Learning rates, without momentum",
    "2p-weight": "Learning rates, from another start",
}


@dataclass(frozen=True)
class TheoryFigure:
    """A figure to be drawn: ``draw`` takes what is to be called after each of its panels."""

    name: str
    panels: int
    draw: Callable[[Callable[[], object]], str]


def theory_figures(*, quick: bool = False) -> Iterator[TheoryFigure]:
    """All of them, from the main text's to the field; nothing is computed yet.

    >>> [figure.name for figure in theory_figures()]
    ['phase', '2p-momentum', '2p-standard', '2p-weight', 'trajectories', 'field']
    """
    for name, series in {"phase": (MAIN_FIGURE,), **FIGURES}.items():
        chosen = [replace(s, count=QUICK) for s in series] if quick else list(series)
        yield TheoryFigure(name, 2 * len(chosen), partial(_phase, name, chosen))
    yield TheoryFigure("trajectories", 1, partial(_once, trajectory_figure))
    yield TheoryFigure("field", 1, partial(_once, field_figure))


def _phase(name: str, series: list[Settings], step: Callable[[], object]) -> str:
    return phase_figure(series, title=_TITLES[name], step=step)


def _once(figure: Callable[[], str], step: Callable[[], object]) -> str:
    drawn = figure()
    step()
    return drawn
