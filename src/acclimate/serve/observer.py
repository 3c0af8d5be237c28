"""What a server reports of its work: each call a no-op, for metrics to override."""

from __future__ import annotations

from acclimate.guard.history import Event
from acclimate.serve.versions import Version

__all__ = ["Observer"]


class Observer:
    """Called by the server's threads; must be quick, and must not raise."""

    def on_batch(self, *, images: int, requests: int, seconds: float) -> None:
        """After a batch was answered; ``seconds`` is the model's own time."""

    def on_step(self, *, images: int, seconds: float, drift: float) -> None:
        """After a learning step."""

    def on_dropped(self, images: int) -> None:
        """When images were answered and not learnt from: the learner is busy, or of one client."""

    def on_event(self, event: Event) -> None:
        """When the guard saw something, or a version was held back."""

    def on_version(self, version: Version) -> None:
        """When another version came to be served, or in shadow mode would be."""
