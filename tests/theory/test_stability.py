"""Proposition 1, with its boundaries."""

from __future__ import annotations

import pytest

from acclimate.errors import AcclimateError
from acclimate.theory import will_collapse

NAN = float("nan")


@pytest.mark.parametrize(
    ("tau_s", "tau_t", "stop_gradient", "collapses"),
    [
        (1.0, 1.0, False, False),  # entropy minimisation as published
        (1.0, 0.0, True, False),  # hard labels
        (1.0, 1.0, True, False),  # on the boundary the analysis is silent
        (0.5, 1.0, True, True),
        (0.5, 1.0, False, False),  # without stop-gradient the bound is half as high
        (0.49, 1.0, False, True),
        (0.1, 0.04, True, False),  # DINO's own
    ],
)
def test_which_temperatures_collapse(
    tau_s: float, tau_t: float, stop_gradient: bool, collapses: bool
) -> None:
    assert bool(will_collapse(tau_s, tau_t, stop_gradient)) is collapses


def test_the_reason_names_the_bound() -> None:
    assert "τs = 0.1 is below τt/2 = 0.5" in will_collapse(0.1, 1.0, False).reason
    assert will_collapse(0.6, 1.0, False).reason == "τs = 0.6 is not below τt/2 = 0.5"
    assert "τs = 1 is on the line" in will_collapse(1.0, 1.0, True).reason


@pytest.mark.parametrize(
    ("tau_s", "tau_t"), [(0.0, 1.0), (-1.0, 1.0), (1.0, -0.1), (NAN, 1.0), (1.0, NAN)]
)
def test_impossible_temperatures_are_refused(tau_s: float, tau_t: float) -> None:
    with pytest.raises(AcclimateError, match="expected temperatures tau_s > 0 and tau_t >= 0"):
        will_collapse(tau_s, tau_t, True)
