"""The model of the last job, loaded once."""

from __future__ import annotations

from dataclasses import replace

import torch

from acclimate.errors import AcclimateError
from acclimate.experiments.job import Job, Weights
from acclimate.models import LoadedModel, load, want_trained
from acclimate.run_folder import fingerprint

__all__ = ["ModelCache"]


class ModelCache:
    """Loads the models of jobs onto a device, and keeps the last one.

    Attributes:
        fingerprint: a checksum of the last one's weights.
    """

    def __init__(self, device: torch.device) -> None:
        self.device, self.fingerprint = device, ""
        self._last: tuple[tuple[str, Weights | None], LoadedModel] | None = None

    def load(self, job: Job) -> LoadedModel:
        """The model of a job, filled with its weights."""
        key = (job.model, job.weights)
        if self._last is None or self._last[0] != key:
            self._last = None  # before the next one takes its memory
            _check_weights(job.weights)
            want_trained(job.model, None if job.weights is None else job.weights.path)
            loaded = load(job.model, weights=None if job.weights is None else job.weights.path)
            loaded = replace(loaded, model=loaded.model.to(self.device))
            self.fingerprint = fingerprint(loaded.model.state_dict())
            self._last = key, loaded
        return self._last[1]


def _check_weights(weights: Weights | None) -> None:
    """A result is kept by what the file held when the plan was made."""
    if weights is None:
        return
    now = Weights.of(weights.path)
    if now != weights:
        raise AcclimateError(
            f"the weights file {weights.path} is another than when the plan was made (sha256 "
            f"{now.sha256[:12]}, then {weights.sha256[:12]}); put it back, or make the plan anew"
        )
