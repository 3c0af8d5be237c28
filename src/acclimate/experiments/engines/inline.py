"""All jobs in this process, one after the other."""

from __future__ import annotations

from collections.abc import Sequence

from acclimate.errors import AcclimateError
from acclimate.experiments.engines.base import Engine, OnResult
from acclimate.experiments.engines.settings import WorkerSettings
from acclimate.experiments.job import Job

__all__ = ["InlineEngine"]


class InlineEngine(Engine):
    """One worker, here. What it has loaded is kept for the next call.

    >>> results = []
    >>> job = Job(model="acclimate:digits", dataset="mnist", recipe="ent")
    >>> InlineEngine(WorkerSettings(device="cpu")).run([job], results.append)
    >>> results[0].status
    'failed'
    """

    def __init__(self, settings: WorkerSettings) -> None:
        super().__init__(settings)
        self._worker = settings.worker()

    def run(self, jobs: Sequence[Job], on_result: OnResult) -> None:
        """Run every job."""
        for job in jobs:
            on_result(self._worker.run(job))
            if self._worker.broken:
                raise AcclimateError(
                    f"the device {self._worker.device} can no longer be used by this process, and "
                    "the jobs that are left would all fail; run the same again, or with processes, "
                    "which are replaced"
                )
