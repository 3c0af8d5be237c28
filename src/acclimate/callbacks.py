"""Callbacks: what is called while a model adapts, and loggers for the usual trackers."""

from __future__ import annotations

import csv
import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from acclimate.errors import AcclimateError
from acclimate.guard.history import EpochRecord, Event
from acclimate.models.libraries import import_optional
from acclimate.text import spreadsheet_cell

__all__ = [
    "CSV", "Callback", "JobRecord", "MLflow", "StepRecord", "TensorBoard", "WandB",
    "check_callbacks",
]  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class StepRecord:
    """One step: how many steps were taken so far, and the loss before the update.

    ``loss`` lies where the model does: reading it waits for a GPU. It is None where nothing was
    learnt from the batch.
    """

    step: int
    images: int
    loss: Tensor | None


@dataclass(frozen=True, kw_only=True)
class JobRecord:
    """One job of a sweep that has ended: how many have so far, and what came of it.

    Errors are in percent, of the model returned and of the source model; ``reason`` is why the job
    failed, None where it did not.
    """

    number: int
    model: str
    dataset: str
    shift: str | None
    recipe: str
    options: Mapping[str, Any]
    seed: int
    error: float | None
    unadapted: float | None
    seconds: float | None
    reason: str | None = None


class Callback:
    """Called by ``adapt``, ``Stream`` and ``bench.run_plan``: override what you need.

    Of several processes only the first one calls. What a callback raises ends the run.

    >>> import acclimate, torch
    >>> class Print(Callback):
    ...     def on_step_end(self, step):
    ...         print(step.step, step.images)
    >>> net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(12, 3))
    >>> stream = acclimate.Stream(net, "ent", options={"selector": "all"}, callbacks=[Print()])
    >>> stream(torch.rand(32, 3, 2, 2)).shape
    1 32
    torch.Size([32, 3])
    """

    def on_step_end(self, step: StepRecord) -> None:
        """After each step."""

    def on_epoch_end(self, epoch: EpochRecord) -> None:
        """After each epoch of ``adapt``; a stream has none."""

    def on_event(self, event: Event) -> None:
        """When the guard saw something; a stream with callbacks does not warn of it as well."""

    def on_job_end(self, job: JobRecord) -> None:
        """After each job of a sweep, in the process that writes the store."""


def check_callbacks(callbacks: Sequence[Callback]) -> tuple[Callback, ...]:
    """The callbacks, each of which is one.

    >>> [type(each).__name__ for each in check_callbacks(Callback())]
    ['Callback']
    """
    if isinstance(callbacks, Callback):
        return (callbacks,)
    for each in callbacks:
        if not isinstance(each, Callback):
            raise AcclimateError(
                "expected callbacks=[...] of acclimate.callbacks.Callback, got "
                f"{type(each).__name__}"
            )
    return tuple(callbacks)


def _numbers(epoch: EpochRecord) -> Iterator[tuple[str, float]]:
    """What is known of an epoch, by name."""
    for when, scores in (("before_update", epoch.before_update), ("after", epoch.after_epoch)):
        if scores is None:
            continue
        for name in ("loss", "error", "agreement", "confidence", "entropy", "diversity"):
            value = getattr(scores, name)
            if value is not None:
                yield f"{name}_{when}", float(value)
    yield "drift", epoch.drift
    if epoch.estimated_change is not None:
        yield "estimated_change", epoch.estimated_change.value


class _Tracker(Callback, ABC):
    """Numbers by name go to :meth:`log`, events to :meth:`note`; every so many steps."""

    def __init__(self, *, every: int = 1) -> None:
        if every < 1:
            raise AcclimateError(f"expected every >= 1, got {every}")
        self.every = every
        self._step = 0

    @abstractmethod
    def log(self, values: dict[str, float], *, step: int) -> None:
        """Keep numbers by name."""

    @abstractmethod
    def note(self, text: str, *, step: int) -> None:
        """Keep the words of an event."""

    def on_step_end(self, step: StepRecord) -> None:
        self._step = step.step
        if step.step % self.every == 0 and step.loss is not None:
            self.log({"step/loss": float(step.loss)}, step=step.step)

    def on_epoch_end(self, epoch: EpochRecord) -> None:
        values = {f"epoch/{name}": value for name, value in _numbers(epoch)}
        self.log({**values, "epoch/epoch": float(epoch.epoch)}, step=self._step)

    def on_event(self, event: Event) -> None:
        self.note(str(event), step=event.step)

    def on_job_end(self, job: JobRecord) -> None:
        known = {"error": job.error, "unadapted": job.unadapted, "seconds": job.seconds}
        values = {f"job/{job.recipe}/{k}": v for k, v in known.items() if v is not None}
        self.log(values, step=job.number)
        if job.reason is not None:
            self.note(f"{job.model}, {job.recipe} on {job.shift or 'clean images'} failed: "
                      f"{job.reason}", step=job.number)  # fmt: skip


class CSV(_Tracker):
    """Rows of step, name and value in a CSV file; events have their text as value.

    A file that is there is continued, so a run that resumes adds to what it had written.

    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "log.csv"
    >>> CSV(file).on_event(Event(step=3, trouble="drift", action="warned"))
    >>> print(file.read_text(), end="")
    step,name,value
    3,event,step 3: drift; warned
    """

    def __init__(self, path: str | Path, *, every: int = 1) -> None:
        super().__init__(every=every)
        self.path = Path(path)

    def log(self, values: dict[str, float], *, step: int) -> None:
        """A row for each number."""
        self._write([[step, name, f"{value:.9g}"] for name, value in values.items()])

    def note(self, text: str, *, step: int) -> None:
        """A row for an event."""
        self._write([[step, "event", text]])

    def _write(self, rows: list[list[Any]]) -> None:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("a", encoding="utf-8", newline="") as file:
                writer = csv.writer(file, lineterminator="\n")
                if file.tell() == 0:
                    writer.writerow(["step", "name", "value"])
                writer.writerows([[spreadsheet_cell(cell) for cell in row] for row in rows])
        except OSError as error:
            raise AcclimateError(f"could not write {self.path}: {error.strerror}") from error


def _finite(values: dict[str, float]) -> dict[str, float]:
    return {name: value for name, value in values.items() if math.isfinite(value)}


class TensorBoard(_Tracker):
    """Scalars and events for TensorBoard (pip install tensorboard)."""

    def __init__(self, folder: str | Path, *, every: int = 1) -> None:
        super().__init__(every=every)
        _want("tensorboard")
        from torch.utils.tensorboard import SummaryWriter

        self._writer: Any = SummaryWriter(str(folder))

    def log(self, values: dict[str, float], *, step: int) -> None:
        """A scalar for each number."""
        for name, value in values.items():
            self._writer.add_scalar(name, value, step)

    def note(self, text: str, *, step: int) -> None:
        """A text for an event, at once on the disk."""
        self._writer.add_text("event", text, step)
        self._writer.flush()


class WandB(_Tracker):
    """Numbers and events for Weights & Biases (pip install wandb); options are ``wandb.init``'s.

    A run that is open already is used.
    """

    def __init__(self, *, every: int = 1, **options: Any) -> None:
        super().__init__(every=every)
        wandb = _want("wandb")
        self._run = wandb.run if wandb.run is not None else wandb.init(**options)

    def log(self, values: dict[str, float], *, step: int) -> None:
        """All numbers at once."""
        self._run.log(values, step=step)

    def note(self, text: str, *, step: int) -> None:
        """An alert, which Weights & Biases can send on."""
        self._run.alert(title="acclimate", text=text)


class MLflow(_Tracker):
    """Metrics and events of the active run of MLflow (pip install mlflow), or of a new one."""

    def __init__(self, *, every: int = 1) -> None:
        super().__init__(every=every)
        self._mlflow = _want("mlflow")

    def log(self, values: dict[str, float], *, step: int) -> None:
        """A metric for each finite number: MLflow's stores refuse others."""
        self._mlflow.log_metrics(_finite(values), step=step)

    def note(self, text: str, *, step: int) -> None:
        """A tag for an event, by its step."""
        self._mlflow.set_tag(f"event.{step}", text)


def _want(package: str) -> Any:
    try:
        return import_optional(package, extra="")
    except AcclimateError as error:
        raise AcclimateError(
            f"this needs {package}, which is not installed; run: pip install {package}"
        ) from error
