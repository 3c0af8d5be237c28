"""Where the two-point model collapses: by Proposition 1, by the flow in time, and on a grid."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.integrate import trapezoid

from acclimate.errors import AcclimateError
from acclimate.theory import point
from acclimate.theory.point import Array, check_exponent, check_temperatures, inverse
from acclimate.theory.settings import Settings
from acclimate.theory.simulation import Simulation, simulate

__all__ = [
    "Collapse", "bound_on_student", "claimed_columns", "deviation", "edge", "overshoots",
    "predicted", "pull", "run_grid", "time_to_shrink", "will_collapse",
]  # fmt: skip

Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class Collapse:
    """A prediction, truthy where the model collapses, with the reason in words."""

    collapses: bool
    reason: str

    def __bool__(self) -> bool:
        return self.collapses


def bound_on_student(*, stop_gradient: bool, q: float = 0.0) -> float:
    """The τs/τt below which the trivial solution is stable: (1 - q), half of it for entropy.

    >>> bound_on_student(stop_gradient=False), round(bound_on_student(stop_gradient=True, q=0.8), 2)
    (0.5, 0.2)
    """
    check_exponent(q)
    return (1 - q) * (1.0 if stop_gradient else 0.5)


def will_collapse(
    tau_s: float, tau_t: float, stop_gradient: bool, *, q: float | None = None
) -> Collapse:
    """Whether the two-point model collapses at these student and teacher temperatures.

    With stop-gradient (pseudo-labels) it does not if τs > τt; without (entropy minimisation) it
    does not if τs > τt/2. On the boundary, where the linear analysis is silent, it does not either.
    With the generalised cross-entropy of exponent ``q``, (1 - q) τt takes the place of τt.

    >>> bool(will_collapse(1.0, 1.0, stop_gradient=False)), bool(will_collapse(0.1, 1.0, True))
    (False, True)
    >>> bool(will_collapse(0.3, 1.0, True)), bool(will_collapse(0.3, 1.0, True, q=0.8))
    (True, False)
    """
    check_temperatures(tau_s, tau_t)
    bound = bound_on_student(stop_gradient=stop_gradient, q=q or 0.0) * tau_t
    method = "pseudo-labels" if stop_gradient else "entropy minimisation"
    rule = "τt" if stop_gradient else "τt/2"
    if q:
        method, rule = f"{method} with q = {q:g}", f"(1 - q) {rule}"
    if tau_s < bound:
        reason = f"{method} need τs > {rule}: τs = {tau_s:g} is below {rule} = {bound:g}"
        return Collapse(True, reason)
    where = "on the line, not below it:" if tau_s == bound else "not below"
    return Collapse(False, f"τs = {tau_s:g} is {where} {rule} = {bound:g}")


def run_grid(settings: Settings, *, stop_gradient: bool, q: float = 0.0) -> Simulation:
    """Simulate the settings' grid; rows are student, columns teacher temperatures.

    >>> small = Settings(low=0.1, count=4, steps=100)
    >>> run_grid(small, stop_gradient=True).final.shape
    (4, 4, 2)
    """
    t = settings.temperatures
    return simulate(
        t[:, None], t[None, :], stop_gradient=stop_gradient, q=q, lr=settings.lr,
        momentum=settings.momentum, alpha=settings.alpha, start=settings.start,
        points=settings.points, steps=settings.steps, shrink=settings.shrink,
    )  # fmt: skip


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
        for part in np.linspace(0.05, 1, 20):  # the pull is largest somewhere between
            force = pull(part * start, t[:, None], t, stop_gradient=stop_gradient, q=q)
            too_long |= reach * -force > part * start
    return too_long


def _times(
    settings: Settings, tau_s: Array, tau_t: Array, *, stop_gradient: bool, q: float
) -> Array:
    # Only for points that do not overlap and have norm 1, as the paper's.
    outputs = np.unique(np.abs(np.asarray(settings.points) @ np.asarray(settings.start)))
    level = settings.shrink * outputs.max()
    times = [
        time_to_shrink(tau_s, tau_t, start=y, level=level, stop_gradient=stop_gradient, q=q)
        for y in outputs
    ]
    return np.asarray(np.max(times, axis=0))


NODES = 400
ROWS = 4096


def pull(
    y: ArrayLike, tau_s: ArrayLike, tau_t: ArrayLike, *, stop_gradient: bool, q: float = 0.0
) -> Array:
    """dy/dt of one point of norm 1 that overlaps with no other, its teacher at one with it.

    Without stop-gradient and below τs = τt/2 it leads to zero only from near zero: at larger
    outputs the loss falls outwards again.

    >>> [round(float(pull(y, 0.4, 1.0, stop_gradient=False)), 4) for y in (0.5, 2.0)]
    [-0.0933, 0.2437]
    """
    return point.pull(y, y, inverse(tau_s), inverse(tau_t), stop_gradient=stop_gradient, q=q)


def time_to_shrink(
    tau_s: ArrayLike,
    tau_t: ArrayLike,
    *,
    start: float,
    level: float,
    stop_gradient: bool,
    q: float = 0.0,
) -> Array:
    """The flow's time from output ``start`` down to ``level``: ∫ dy / |pull|; inf if it never is.

    >>> near_zero = time_to_shrink(1.0, 2.0, start=1e-3, level=1e-4, stop_gradient=True)
    >>> bool(np.isclose(near_zero, np.log(10) * 4 / (1 - 1 / 2)))  # the linear rate
    True
    >>> time_to_shrink([2.0, 0.4], 1.0, start=2.0, level=0.2, stop_gradient=False)
    array([inf, inf])
    """
    student, teacher = np.broadcast_arrays(*check_temperatures(tau_s, tau_t))
    check_exponent(q)
    if not level > 0:
        raise AcclimateError(f"expected level > 0, which is all that is ever reached, got {level}")
    if start <= level:
        return np.zeros(student.shape)
    # Even steps in log y suit both ends: near zero the pull is linear in y.
    log_y = np.linspace(np.log(level), np.log(start), NODES)
    y = np.exp(log_y)
    flat_s, flat_t = student.ravel(), teacher.ravel()
    times = np.empty(len(flat_s))
    for i in range(0, len(flat_s), ROWS):  # bounds the memory
        rows = slice(i, i + ROWS)
        speed = -pull(y, flat_s[rows, None], flat_t[rows, None], stop_gradient=stop_gradient, q=q)
        inward = np.asarray(np.all(speed > 0, axis=1))
        slowness = y / np.where(inward[:, None], speed, 1.0)
        times[rows] = np.where(inward, trapezoid(slowness, log_y, axis=1), np.inf)
    return times.reshape(student.shape)
