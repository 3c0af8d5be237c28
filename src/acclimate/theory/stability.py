"""Proposition 1 of the paper: which temperatures let self-learning collapse."""

from __future__ import annotations

from dataclasses import dataclass

from acclimate.errors import AcclimateError

__all__ = ["Collapse", "will_collapse"]


@dataclass(frozen=True)
class Collapse:
    """The answer, truthy when collapse is predicted, with the reason in words."""

    collapses: bool
    reason: str

    def __bool__(self) -> bool:
        return self.collapses


def will_collapse(tau_s: float, tau_t: float, stop_gradient: bool) -> Collapse:
    """Whether the two-point model collapses at these student and teacher temperatures.

    With stop-gradient (pseudo-labels) it does not if τs > τt; without (entropy minimisation) it
    does not if τs > τt/2. On the boundary the linear analysis is silent and this answers no.

    >>> bool(will_collapse(1.0, 1.0, stop_gradient=False)), bool(will_collapse(0.1, 1.0, True))
    (False, True)
    """
    if tau_s <= 0 or tau_t < 0:
        raise AcclimateError(
            f"expected temperatures tau_s > 0 and tau_t >= 0, got {tau_s}, {tau_t}"
        )
    bound = tau_t if stop_gradient else tau_t / 2
    method = "pseudo-labels" if stop_gradient else "entropy minimisation"
    rule = "τt" if stop_gradient else "τt/2"
    if tau_s < bound:
        reason = f"{method} need τs > {rule}: τs = {tau_s:g} is below {rule} = {bound:g}"
        return Collapse(True, reason)
    return Collapse(False, f"τs = {tau_s:g} is not below {rule} = {bound:g}")
