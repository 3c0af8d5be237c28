"""The tables of a store, and a result as a row of them."""

from __future__ import annotations

import json
from typing import Any

from acclimate.experiments.job import group_of
from acclimate.experiments.result import Result

__all__ = ["APPLICATION", "COLUMNS", "CREATE", "UPGRADES", "VERSION", "result_of", "row_of"]

VERSION = 2
"""Of the schema. A later one adds columns and says how to fill them from the records."""

APPLICATION = 0x61636331  # "acc1": tells a store from any other SQLite file

COLUMNS = {
    "key": "TEXT PRIMARY KEY",
    "model": "TEXT NOT NULL",
    "weights": "TEXT",
    "dataset": "TEXT NOT NULL",
    "split": "TEXT",
    "shift": "TEXT",
    "preset": "TEXT",
    "corruption": "TEXT",
    "severity": "INTEGER",
    "draw": "INTEGER NOT NULL",
    '"group"': "TEXT",
    "images": "INTEGER",
    "recipe": "TEXT NOT NULL",
    "options": "TEXT NOT NULL",
    "seed": "INTEGER NOT NULL",
    "status": "TEXT NOT NULL",
    "error": "REAL",
    "unadapted": "REAL",
    "online": "REAL",
    "ece": "REAL",
    "wrong": "INTEGER",
    "labelled": "INTEGER",
    "seconds": "REAL",
    "memory": "INTEGER",
    "device": "TEXT",
    "data": "TEXT",
    "preprocessing": "TEXT",
    "created": "TEXT NOT NULL",
    "message": "TEXT NOT NULL",
    "job": "TEXT NOT NULL",
    "record": "TEXT NOT NULL",
    "setting": "TEXT",
}

UPGRADES = {1: ("ALTER TABLE results ADD COLUMN setting TEXT",)}
"""What makes a store of one version one of the next; the record of version 1 knew no settings."""

# What tables are filtered by comes first in an index, so that few rows are looked at; the second
# answers the guard against other data, once for each result that is added.
CREATE = (
    f"CREATE TABLE results ({', '.join(f'{name} {kind}' for name, kind in COLUMNS.items())})",
    "CREATE INDEX by_model ON results (model, dataset, recipe, corruption, severity)",
    "CREATE INDEX by_data ON results (dataset, shift, images, data)",
    "CREATE INDEX by_status ON results (status, key)",
    f"PRAGMA application_id = {APPLICATION}",
    f"PRAGMA user_version = {VERSION}",
)


def row_of(result: Result) -> tuple[Any, ...]:
    """A result's values, in the order of the columns."""
    job, record = result.job, result.record
    return (
        result.key,
        job.model,
        None if job.weights is None else job.weights.sha256[:16],
        job.dataset,
        job.split,
        job.shift,
        job.preset,
        result.corruption,
        job.severity,
        job.draw,
        group_of(result.corruption),
        job.images,
        job.recipe,
        _json(job.to_dict().get("options", {})),
        job.seed,
        result.status,
        result.error,
        result.unadapted_error,
        result.online_error,
        result.ece,
        record.get("wrong"),
        record.get("labelled"),
        record.get("seconds"),
        record.get("memory"),
        record.get("device"),
        record.get("data"),
        record.get("preprocessing"),
        result.created,
        result.message,
        _json(job.to_dict()),
        _json(result.record),
        job.setting,
    )


def result_of(job: str, status: str, record: str, message: str, created: str) -> Result:
    """A result read back from its columns."""
    return Result.from_dict(
        {
            "job": json.loads(job),
            "status": status,
            "record": json.loads(record),
            "message": message,
            "created": created,
        }
    )


def _json(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
