"""What a run says of every number of epochs up to its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from acclimate.experiments.job import Job
from acclimate.experiments.result import Result
from acclimate.guard import Guard

__all__ = ["Place", "State", "place_of", "states_of"]


@dataclass(frozen=True, kw_only=True, order=True)
class Place:
    """What a run was on: images, and the seed.

    Attributes:
        words: the images, ``cifar10 cifar/spatter:3`` or ``camelyon17 val``.
        corruption: the same without the severity, which is averaged over first.
        severity: 1 to 5; 0 where there are none.
        seed: of the adaptation.
    """

    words: str
    corruption: str
    severity: int
    seed: int


def place_of(job: Job) -> Place:
    """Where a job runs.

    >>> place_of(Job(model="m", dataset="cifar10", recipe="ent", shift="cifar/spatter:3")).words
    'cifar10 cifar/spatter:3'
    """
    words = " ".join(word for word in (job.dataset, job.split, job.shift) if word)
    severity = job.severity or 0
    return Place(
        words=words,
        corruption=words.replace(f":{severity}", "") if severity else words,
        severity=severity,
        seed=job.seed,
    )


@dataclass(frozen=True, kw_only=True)
class State:
    """The model after some epochs.

    Attributes:
        error: in percent; None where it was not measured.
        score: the guard's, without labels; larger is better.
        drift: of the learning parameters, relative to their norm; None where it is not finite.
        collapsed: fewer than half of the classes are in use that were at the start.
        diverged: parameters or answers are not finite.
    """

    error: float | None
    score: float | None = None
    drift: float | None = None
    collapsed: bool = False
    diverged: bool = False


def states_of(result: Result) -> dict[int, State]:
    """The states after 1, 2, … epochs; at 0 the model before anything is learnt.

    Runs of one to n epochs are the first n epochs of a longer one: nothing hangs on how many there
    are going to be.

    >>> job = Job(model="m", dataset="mnist", recipe="ent")
    >>> states = states_of(Result(job=job, record={"errors": {"after_epoch": [9.0, 8.0]}}))
    >>> states[2].error, sorted(states)
    (8.0, [0, 1, 2])
    """
    record = result.record
    errors = record.get("errors") or {}
    after = errors.get("after_epoch") or []
    if not after:  # nothing is learnt, and the model handed back is all there is
        return {0: State(error=errors.get("final"))}
    found = {0: State(error=errors.get("start"))}
    start = ((record.get("label_free") or {}).get("start") or {}).get("diversity")
    for place, error in enumerate(after):
        found[place + 1] = _state(record, place, error, start)
    return found


def _state(
    record: Mapping[str, Any], place: int, error: float | None, start: float | None
) -> State:
    seen: Mapping[str, Any] = _at((record.get("label_free") or {}).get("after_epoch"), place) or {}
    drifts = record.get("drift") or []
    drift = _at(drifts, place)
    # A record is plain: what was not finite is None in it.
    infinite = place < len(drifts) and drift is None
    unsure = "confidence" in seen and seen["confidence"] is None
    classes = seen.get("diversity")
    collapsed = classes is not None and start is not None and classes < Guard.min_diversity * start
    return State(
        error=error,
        score=_at(record.get("scores"), place),
        drift=drift,
        collapsed=collapsed,
        diverged=infinite or unsure or error is None,
    )


def _at(values: Any, place: int) -> Any:
    return values[place] if values and place < len(values) else None
