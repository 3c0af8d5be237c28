"""Results as the lines that the repository keeps of them, and back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from acclimate.bench import Job, Record, Result
from page_table import Row

ERRORS = {
    "unadapted": "unadapted", "error": "final", "after_epoch": "after_epoch", "online": "online",
}  # fmt: skip
FIGURES = (
    "ece", "forgetting", "by_shift", "forwards", "backwards", "seconds", "speed", "device",
    "verdict",
)  # fmt: skip
RESTORED = "restored"
"""Marks a result that was made of a line."""
NOT_KEPT = "not kept"
"""In place of the checksum of weights that nobody wrote down: no file has it."""


def row(result: Result) -> Row:
    """What the tables need of a result, and the job that it is of."""
    job, record = result.job, result.record.to_dict()
    plain = _without_folders(job)
    return {
        "model": job.model,
        "weights": plain["weights"]["path"] if "weights" in plain else None,
        "dataset": job.dataset,
        "setting": job.setting,
        "recipe": job.recipe,
        "options": dict(job.options),
        "shift": job.shift,
        "corruption": job.corruption,
        "severity": job.severity,
        "seed": job.seed,
        "images": record["images"],
        **{name: record["errors"].get(theirs) for name, theirs in ERRORS.items()},
        **{name: record.get(name) for name in FIGURES},
        "job": plain,
    }


def identity(kept: Row) -> str:
    """The key of its job: of two lines with the same, the newer stands."""
    return _job_of(kept).key


def restored(kept: Row) -> Result:
    """A result with what is known of it."""
    errors = {theirs: kept[name] for name, theirs in ERRORS.items()}
    figures = {name: kept[name] for name in FIGURES}
    counts = {"images": kept["images"], "labelled": kept["images"]}  # all of ours have labels
    record = {**counts, "errors": errors, **figures, RESTORED: True}
    return Result(job=_job_of(kept), record=Record.from_dict(record))


def _job_of(kept: Row) -> Job:
    """The job of a line, of which the oldest do not have it whole."""
    if "job" in kept:
        return Job.from_dict(kept["job"])
    names = ("model", "dataset", "recipe", "shift", "options", "seed", "setting")
    known = {name: kept[name] for name in names if kept[name] is not None}
    return Job.from_dict({**known, "weights": {"path": kept["weights"], "sha256": NOT_KEPT}})


def _without_folders(job: Job) -> dict[str, Any]:
    """A job in plain values, its weights known by their content, wherever they lay."""
    plain = job.to_dict()
    if "weights" in plain:
        plain["weights"]["path"] = Path(plain["weights"]["path"]).name
    return plain
