"""What a server reports of its work: each call a no-op, for metrics to override."""

from __future__ import annotations

from dataclasses import dataclass

from acclimate.guard.estimate import ErrorEstimate
from acclimate.guard.history import Event
from acclimate.serve.versions import Version

__all__ = ["Observer", "StepReport"]


@dataclass(frozen=True, kw_only=True)
class StepReport:
    """A learning step: what it cost, how far parameters have moved, and what the guard estimates.

    ``contained`` is whether the unadapted model predicts, since adapting is estimated to do harm.
    """

    images: int
    seconds: float
    drift: float
    estimate: ErrorEstimate | None
    contained: bool


class Observer:
    """Called by the server's threads; must be quick, and must not raise."""

    def on_batch(self, *, images: int, requests: int, seconds: float) -> None:
        """After a batch was predicted; ``seconds`` is the model's own time."""

    def on_step(self, report: StepReport) -> None:
        """After a learning step."""

    def on_dropped(self, images: int) -> None:
        """When images were predicted and not learnt from: the learner is busy, or of one client."""

    def on_event(self, event: Event) -> None:
        """When the guard saw something, or a version was held back."""

    def on_version(self, version: Version) -> None:
        """When another version came to be served, or in shadow mode would be."""
