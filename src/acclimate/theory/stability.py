"""Proposition 1 of the paper: which temperatures let self-learning collapse."""

from __future__ import annotations

from dataclasses import dataclass

from acclimate.theory._numerics import check_exponent, check_temperatures

__all__ = ["Collapse", "bound_on_student", "will_collapse"]


@dataclass(frozen=True)
class Collapse:
    """The answer, truthy when collapse is predicted, with the reason in words."""

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
    does not if τs > τt/2. On the boundary the linear analysis is silent and this answers no.
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
