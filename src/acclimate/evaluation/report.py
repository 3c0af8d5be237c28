"""What the parts of an evaluation come to: tables by corruption and severity, mCE, mDE."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from acclimate.data.names import plain_shift
from acclimate.metrics import (
    CORRUPTIONS,
    DOMAINS,
    ErrorCounts,
    ErrorTable,
    Figure,
    RelativeError,
    mce,
    mde,
    mean_error,
)

__all__ = ["Report"]


@dataclass(frozen=True)
class Report:
    """An evaluation: what was evaluated (``identity``), and a record for each part."""

    identity: dict[str, Any]
    parts: list[dict[str, Any]]

    def counts(self) -> list[ErrorCounts]:
        """Wrong answers and images of each part, top-1 and, where it was counted, top-5."""
        return [_counts(part) for part in self.parts]

    def table(self) -> ErrorTable | None:
        """Errors by corruption and severity; None where there are no severities."""
        if any(part["severity"] is None for part in self.parts):
            return None
        cells = zip(self.parts, self.counts(), strict=True)
        return ErrorTable({(part["shift"], part["severity"]): counts for part, counts in cells})

    def error(self, *, interval: float | None = None) -> Figure:
        """The mean over shifts of the mean over severities, in percent."""
        table = self.table()
        if table is not None:
            return table.mean_error(interval=interval)
        names = [part["shift"] for part in self.parts]
        return mean_error(dict(zip(names, self.counts(), strict=True)), interval=interval)

    def relative_error(self, *, interval: float | None = None) -> RelativeError | None:
        """mCE or mDE, where the parts are all that these are the mean of; else None.

        They compare with AlexNet on ImageNet-C and ImageNet-D, and are meant for these alone.
        """
        data, table = self.identity["data"].get("dataset"), self.table()
        made_by_imagenet = all(part.get("preset") == "imagenet" for part in self.parts)
        if table is not None and (data == "imagenet-c" or made_by_imagenet):
            complete = set(map(plain_shift, table.corruptions()))
            if complete == set(CORRUPTIONS) and len(table.cells) == 5 * len(CORRUPTIONS):
                return mce(_by_shift(self.parts, self.counts()), interval=interval)
        if data == "imagenet-d" and {part["shift"] for part in self.parts} == set(DOMAINS):
            errors = {p["shift"]: c for p, c in zip(self.parts, self.counts(), strict=True)}
            return mde(errors, interval=interval)
        return None

    def top5_error(self, *, interval: float | None = None) -> Figure | None:
        """As `error`, but of the five highest answers; None where it was not counted."""
        if any("wrong_top5" not in part for part in self.parts):
            return None
        parts = [{**part, "wrong": part["wrong_top5"]} for part in self.parts]
        return Report(self.identity, parts).error(interval=interval)

    def mean_of(self, key: str, *, unit: str = "%") -> Figure | None:
        """The mean over shifts of the mean over severities of a number in the records.

        None where a part lacks it.
        """
        by_shift: dict[str, list[float]] = {}
        for part in self.parts:
            if part.get(key) is None:
                return None
            by_shift.setdefault(part["shift"], []).append(part[key])
        means = [sum(values) / len(values) for values in by_shift.values()]
        images = sum(part["labelled"] for part in self.parts)
        return Figure(value=sum(means) / len(means), images=images, unit=unit)

    def to_dict(self, *, interval: float | None = None) -> dict[str, Any]:
        """Plain values, as ``--json`` prints them."""
        relative = self.relative_error(interval=interval)
        metric = {}
        if relative is not None:
            details = {"parts": dict(relative.parts), "notes": list(relative.notes)}
            metric = {relative.metric: {**vars(relative.figure), **details}}
        return {
            "run": self.identity,
            "error": vars(self.error(interval=interval)),
            **metric,
            "parts": self.parts,
        }


def _counts(part: dict[str, Any]) -> ErrorCounts:
    top5 = part.get("wrong_top5")
    return ErrorCounts(
        images=part["images"],
        answers=1 if top5 is None else 5,
        labelled=torch.tensor(part["labelled"]),
        wrong_top1=torch.tensor(part["wrong"]),
        wrong_top5=torch.tensor(top5 or 0),
    )


def _by_shift(
    parts: Sequence[dict[str, Any]], counts: Sequence[ErrorCounts]
) -> dict[str, list[ErrorCounts]]:
    together: dict[str, list[ErrorCounts]] = {}
    for part, count in sorted(
        zip(parts, counts, strict=True), key=lambda pair: pair[0]["severity"]
    ):
        together.setdefault(part["shift"], []).append(count)
    return together
