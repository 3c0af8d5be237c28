"""What a server reports, for Prometheus."""

from __future__ import annotations

import math
from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from acclimate.guard.history import Event
from acclimate.serve.observer import Observer, StepReport
from acclimate.serve.settings import Settings
from acclimate.serve.versions import Version

__all__ = ["Metrics"]

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_FILL = (0.0625, 0.125, 0.25, 0.5, 0.75, 1.0)


class Metrics(Observer):
    """Counters, gauges and histograms of one server, in a registry of its own.

    >>> metrics = Metrics(Settings())
    >>> metrics.on_batch(images=8, requests=3, seconds=0.01)
    >>> "acclimate_answered_images_total 8.0" in metrics.text().decode()
    True
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.registry = registry = CollectorRegistry()

        def counter(name: str, words: str, *labels: str) -> Counter:
            return Counter(f"acclimate_{name}", words, labels, registry=registry)

        def gauge(name: str, words: str) -> Gauge:
            return Gauge(f"acclimate_{name}", words, registry=registry)

        def histogram(name: str, words: str, buckets: tuple[float, ...]) -> Histogram:
            return Histogram(f"acclimate_{name}", words, buckets=buckets, registry=registry)

        self._latency = histogram("request_seconds", "From request to response", _SECONDS)
        self._responses = counter("responses", "Responses by status", "status")
        self._model = histogram("model_seconds", "The model's own time for a batch", _SECONDS)
        self._fill = histogram("batch_fill", "Images of a batch, of batch_size", _FILL)
        self._answered = counter("answered_images", "Images answered")
        self._learnt = counter("learnt_images", "Images learnt from")
        self._dropped = counter("dropped_images", "Images answered and not learnt from")
        self._step = histogram("learning_step_seconds", "A learning step", _SECONDS)
        self._drift = gauge("drift", "How far the learning parameters moved, of their norm")
        self._shift = gauge(
            "statistics_shift", "Batch-norm statistics from the source's, in standard deviations"
        )
        self._changed = gauge(
            "changed_predictions", "Share of recent images predicted otherwise than by the source"
        )
        self._error = Gauge(
            "acclimate_estimated_error",
            "Error on recent images, 0 to 1, estimated without labels; NaN while unknown",
            ["model"],
            registry=registry,
        )
        for model in ("unadapted", "adapted"):
            self._error.labels(model).set(math.nan)
        self._contained = gauge(
            "contained", "1 while the unadapted model predicts, since adapting is estimated to harm"
        )
        self._events = counter("guard_events", "Times the guard saw something")
        self._rollbacks = counter("rollbacks", "Times an earlier version came back", "cause")
        for cause in ("rollback", "reset", "guard"):
            self._rollbacks.labels(cause)
        self._version = gauge("version", "The newest version")
        self._queue = gauge("queue_images", "Images that wait")

    def watch_queue(self, waiting: Callable[[], int]) -> None:
        """Read the length of the queue whenever metrics are asked for."""
        self._queue.set_function(waiting)

    def on_response(self, *, status: int, seconds: float) -> None:
        """After a response to a prediction."""
        self._responses.labels(str(status)).inc()
        self._latency.observe(seconds)

    def on_batch(self, *, images: int, requests: int, seconds: float) -> None:
        """After a batch was answered."""
        self._answered.inc(images)
        self._fill.observe(images / self._settings.batch_size)
        self._model.observe(seconds)

    def on_step(self, report: StepReport) -> None:
        """After a learning step."""
        self._learnt.inc(report.images)
        self._step.observe(report.seconds)
        self._drift.set(report.drift)
        self._contained.set(report.contained)
        if (known := report.estimate) is not None:
            self._error.labels("unadapted").set(known.before.value / 100)
            self._error.labels("adapted").set(known.after.value / 100)

    def on_dropped(self, images: int) -> None:
        """When images were not learnt from."""
        self._dropped.inc(images)

    def on_event(self, event: Event) -> None:
        """When the guard saw something."""
        self._events.inc()

    def on_version(self, version: Version) -> None:
        """When there is another version."""
        self._version.set(version.number)
        self._drift.set(version.drift)
        self._shift.set(version.statistics_shift or 0)
        self._changed.set(version.changed or 0)
        if version.restored_from is not None:
            self._rollbacks.labels(version.cause).inc()

    def text(self) -> bytes:
        """What /metrics returns."""
        return generate_latest(self.registry)
