"""Results as the lines that the repository keeps of them, and back."""

from __future__ import annotations

import json
from pathlib import Path

from acclimate.experiments import Job, Result
from page_table import Row

WHAT_RAN = (
    "model", "weights", "dataset", "setting", "recipe", "options", "shift", "seed", "images",
)  # fmt: skip
ERRORS = {
    "unadapted": "unadapted", "error": "final", "after_epoch": "after_epoch", "online": "online",
}  # fmt: skip
FIGURES = (
    "ece", "forgetting", "by_shift", "forwards", "backwards", "seconds", "speed", "device",
    "verdict",
)  # fmt: skip


def row(result: Result) -> Row:
    """What the tables need of a result."""
    job, errors = result.job, result.record["errors"]
    return {
        "model": job.model,
        "weights": None if job.weights is None else Path(job.weights.path).name,
        "dataset": job.dataset,
        "setting": job.setting,
        "recipe": job.recipe,
        "options": dict(job.options),
        "shift": job.shift,
        "corruption": job.corruption,
        "severity": job.severity,
        "seed": job.seed,
        "images_per_shift": job.images,
        "images": result.record["images"],
        **{name: errors.get(theirs) for name, theirs in ERRORS.items()},
        **{name: result.record.get(name) for name in FIGURES},
    }


def identity(kept: Row) -> str:
    """What was run, in words: of two lines with the same, the newer stands."""
    return json.dumps([kept[name] for name in WHAT_RAN], sort_keys=True)


def restored(kept: Row) -> Result | None:
    """A result with what is known of it; None where a line does not tell all that was run.

    A file of weights is known by its name alone, and may hold others now.
    """
    if kept["weights"] is not None or "images_per_shift" not in kept:
        return None
    job = Job.of(
        model=kept["model"],
        dataset=kept["dataset"],
        setting=kept["setting"],
        recipe=kept["recipe"],
        options=kept["options"],
        shift=kept["shift"],
        seed=kept["seed"],
        images=kept["images_per_shift"],
        forgetting=kept["forgetting"] is not None,
    )
    errors = {theirs: kept[name] for name, theirs in ERRORS.items()}
    figures = {name: kept.get(name) for name in FIGURES}
    return Result(job=job, record={"images": kept["images"], "errors": errors, **figures})
