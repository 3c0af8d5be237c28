"""Results for tests, without running anything."""

from __future__ import annotations

from typing import Any

from acclimate.bench import Job, Record, Result

MODEL = "acclimate:wrn-40-2"


def job(**changes: Any) -> Job:
    values = {"model": MODEL, "dataset": "cifar10", "recipe": "ent", "shift": "cifar/fog:3"}
    return Job.of(**{**values, **changes})


def result(*, error: float = 20.0, data: str = "d0", record: Any = None, **changes: Any) -> Result:
    made = {
        "errors": {"unadapted": error + 5, "online": error + 1, "after_epoch": [error]},
        "wrong": round(error),
        "labelled": 100,
        "ece": 0.1,
        "seconds": 2.5,
        "memory": 1000,
        "device": "cpu",
        "data": f"{data} {changes.get('shift', 'cifar/fog:3')}",
    }
    made["errors"]["final"] = error
    return Result(job=job(**changes), record=made | (record or {}))


def change(of: Result, *, errors: Any = None, **values: Any) -> Result:
    """Other numbers in the record of a result that a test has already built upon."""
    plain = of.record.to_dict()
    plain["errors"] = plain.get("errors", {}) | (errors or {})
    object.__setattr__(of, "record", Record.from_dict(plain | values))
    return of
