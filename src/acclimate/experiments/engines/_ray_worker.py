"""What runs on a node of a Ray cluster: a worker, and plain values in and out."""

from __future__ import annotations

from typing import Any

from acclimate.errors import AcclimateError
from acclimate.experiments.engines.settings import WorkerSettings
from acclimate.experiments.job import Job

__all__ = ["RayWorker"]


class RayWorker:
    """An actor. It is made empty: what can go wrong is said by `ready`, and not lost on the way."""

    def __init__(self, settings: WorkerSettings, threads: int) -> None:
        self._settings, self._threads, self._worker = settings, threads, None  # type: Any, int, Any

    def ready(self) -> str | None:
        """Make the worker; why that cannot be done, None where it can."""
        try:
            import torch

            torch.set_num_threads(self._threads)
            self._worker = self._settings.worker()
        except AcclimateError as error:
            return str(error)
        except Exception as error:  # an old driver, a library that a node lacks
            return f"a Ray worker cannot begin: {type(error).__name__}: {error}"
        return None

    def run(self, plain: dict[str, Any]) -> tuple[dict[str, Any], bool]:
        """The result of a job, and whether this worker is of no more use."""
        result = self._worker.run(Job.from_dict(plain))
        return result.to_dict(), self._worker.broken
