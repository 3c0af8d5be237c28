"""Results of a search, without running one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from acclimate.bench import Job, Result
from acclimate.bench.selection import Searched, settings_of

Errors = Mapping[tuple[Any, str], Sequence[float | None]]


def search_job(lr: float, shift: str | None, *, epochs: int = 2, **changes: Any) -> Job:
    options = {"optimizer.lr": lr, "epochs": epochs, **changes.pop("options", {})}
    values = {"model": "m", "dataset": "cifar10", "recipe": "ent", "shift": shift}
    return Job.of(**{**values, **changes}, options=options)


def search_result(job: Job, after: Sequence[float | None], **record: Any) -> Result:
    errors = {"start": 50.0, "after_epoch": list(after), "final": after[-1] if after else 50.0}
    return Result(job=job, record={"errors": errors, **record})


def searched(
    errors: Errors, *, records: Mapping[Any, Mapping[str, Any]] | None = None, **changes: Any
) -> tuple[list[Job], dict[str, Result]]:
    """Jobs and their results, from the errors after each epoch by learning rate and shift."""
    jobs = {key: search_job(*key, epochs=len(after), **changes) for key, after in errors.items()}
    results = [
        search_result(jobs[key], after, **(records or {}).get(key, {}))
        for key, after in errors.items()
    ]
    return list(jobs.values()), {result.key: result for result in results}


def searched_settings(errors: Errors, **more: Any) -> list[Searched]:
    return settings_of(*searched(errors, **more))
