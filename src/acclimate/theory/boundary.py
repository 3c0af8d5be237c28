"""The edge of the collapsed region, in grid cells from the line of Proposition 1."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from acclimate.theory._numerics import Array
from acclimate.theory.settings import Settings
from acclimate.theory.simulation import Simulation, simulate
from acclimate.theory.stability import bound_on_student
from acclimate.theory.timescale import pull, time_to_shrink

__all__ = ["claimed_columns", "deviation", "edge", "overshoots", "predicted", "run_grid"]

Mask = NDArray[np.bool_]


def run_grid(settings: Settings, *, stop_gradient: bool, q: float = 0.0) -> Simulation:
    """Simulate the settings' grid; rows are student, columns teacher temperatures.

    >>> small = Settings(low=0.1, count=4, steps=100)
    >>> run_grid(small, stop_gradient=True).final.shape
    (4, 4, 2)
    """
    t = settings.temperatures
    return simulate(
        t[:, None],
        t[None, :],
        stop_gradient=stop_gradient,
        lr=settings.lr,
        momentum=settings.momentum,
        alpha=settings.alpha,
        start=settings.start,
        points=settings.points,
        steps=settings.steps,
        shrink=settings.shrink,
        q=q,
    )


def edge(collapsed: Mask) -> Array:
    """By column, the row halfway between the last collapsed cell and the next; nan if none is.

    >>> edge(np.array([[True, False], [True, False], [False, False]]))
    array([1.5, nan])
    """
    rows = np.arange(len(collapsed))[:, None]
    last = np.where(collapsed, rows, -1).max(axis=0)
    # A region that reaches the top row has no edge in sight.
    seen = (last >= 0) & (last < len(collapsed) - 1)
    return np.where(seen, last + 0.5, np.nan)


def deviation(collapsed: Mask, settings: Settings, *, stop_gradient: bool, q: float = 0.0) -> Array:
    """By column, the edge minus the line's row, in cells.

    ±½ is the best a grid can do: the line is crossed somewhere between two cells.
    """
    line = settings.temperatures * bound_on_student(stop_gradient=stop_gradient, q=q)
    row = np.log(line / settings.low) / np.log(settings.cell)
    return np.asarray(edge(collapsed) - row)


def claimed_columns(settings: Settings, *, stop_gradient: bool, q: float = 0.0) -> Mask:
    """Where the claim is made: one cell below the line, the flow collapses well in time.

    Only for columns in which that cell is on the grid.
    """
    t = settings.temperatures
    below = t * bound_on_student(stop_gradient=stop_gradient, q=q) / settings.cell
    times = _times(settings, below, t, stop_gradient=stop_gradient, q=q)
    seen = below >= settings.low * (1 - 1e-9)
    return np.asarray(seen & (times * settings.margin <= settings.duration))


def predicted(settings: Settings, *, stop_gradient: bool, q: float = 0.0) -> Mask:
    """The cells that the flow collapses within the settings' time."""
    t = settings.temperatures
    times = _times(settings, t[:, None], t[None, :], stop_gradient=stop_gradient, q=q)
    return np.asarray(times <= settings.duration)


def overshoots(settings: Settings, *, stop_gradient: bool, q: float = 0.0) -> Mask:
    """The cells whose steps are too long for the flow: one from the start would pass zero."""
    t = settings.temperatures
    reach = settings.lr / (1 - settings.momentum)
    y = np.abs(np.asarray(settings.points) @ np.asarray(settings.start))
    too_long = np.zeros((len(t), len(t)), dtype=bool)
    for start in np.unique(y):
        for part in np.linspace(0.05, 1, 20):  # the pull is largest somewhere on the way
            force = pull(part * start, t[:, None], t, stop_gradient=stop_gradient, q=q)
            too_long |= reach * -force > part * start
    return too_long


def _times(
    settings: Settings, tau_s: Array, tau_t: Array, *, stop_gradient: bool, q: float
) -> Array:
    # Only for points that do not overlap and have norm 1, as the paper's.
    outputs = np.abs(np.asarray(settings.points) @ np.asarray(settings.start))
    level = settings.shrink * outputs.max()
    times = [
        time_to_shrink(tau_s, tau_t, start=y, level=level, stop_gradient=stop_gradient, q=q)
        for y in np.unique(outputs)
    ]
    return np.asarray(np.max(times, axis=0))
