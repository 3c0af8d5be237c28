"""The result of a job: its record, or why there is none."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any, Literal, TypeAlias, get_args

from acclimate.bench.job import Job
from acclimate.errors import AcclimateError

__all__ = ["Result", "Status", "plain"]

Status: TypeAlias = Literal["done", "failed"]


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="seconds")


@dataclass(frozen=True, kw_only=True)
class Result:
    """What came of a job.

    The record is plain JSON. These keys are known to the store and the tables; all may be missing,
    and others may be there:

    ==================  ==========================================================================
    ``errors``          in percent: ``unadapted``; ``online`` (first epoch, before each update);
                        ``after_epoch``, a list; ``final``, of the model that was handed back
    ``wrong``           of ``labelled`` images, of ``images``: the counts behind ``final``
    ``score``           ``end`` where only the last of the epochs was scored
    ``ece``             calibration error of the model that was handed back
    ``verdict``         the guard's word
    ``scores``          the label-free score after each epoch
    ``forgetting``      ``before`` and ``after``: error on clean images
    ``data``            fingerprint of the images and labels
    ``preprocessing``   in words; the fingerprint of what is made on the way hangs on it
    ``corruption``      where it is not the one asked for: ``frost-procedural``
    ``weights``         fingerprint of the model's weights
    ``recipe``          in full, as ``Recipe.to_dict``
    ``batch_size``, ``seconds``, ``memory`` (bytes), ``device``, ``versions``, ``notes``
    ==================  ==========================================================================

    Attributes:
        job: what was run.
        status: "done", or "failed", which a later run may replace.
        record: see above; numbers that are not finite become None, since JSON has none.
        message: of a failed job, why.
        created: when, ISO 8601.

    >>> job = Job(model="acclimate:digits", dataset="mnist", recipe="ent")
    >>> result = Result(job=job, record={"errors": {"final": 7.5, "after_epoch": [8.0, 7.5]}})
    >>> result.error, result.after_epoch(1), result.online_error
    (7.5, 8.0, None)
    """

    job: Job
    status: Status = "done"
    record: Mapping[str, Any] = field(default_factory=dict)
    message: str = ""
    created: str = field(default_factory=_now)

    def __post_init__(self) -> None:
        if self.status not in get_args(Status):
            raise AcclimateError(f"expected status done or failed, got {self.status!r}")
        object.__setattr__(self, "record", plain(self.record))

    @classmethod
    def failed(cls, job: Job, message: str, *, record: Mapping[str, Any] | None = None) -> Result:
        """The result of a job that could not be run to its end."""
        return cls(job=job, status="failed", message=message, record=record or {})

    @property
    def key(self) -> str:
        """The job's."""
        return self.job.key

    @property
    def reason(self) -> str:
        """Why a job failed, in one line."""
        return next(iter(self.message.splitlines()), "no reason given")

    @property
    def error(self) -> float | None:
        """In percent, of the model that was handed back."""
        return self._error("final")

    @property
    def online_error(self) -> float | None:
        """In percent, of the predictions made before each update of the first epoch."""
        return self._error("online")

    @property
    def unadapted_error(self) -> float | None:
        """In percent, of the source model."""
        return self._error("unadapted")

    @property
    def ece(self) -> float | None:
        """Expected calibration error of the model that was handed back."""
        value: float | None = self.record.get("ece")
        return value

    @property
    def corruption(self) -> str | None:
        """The corruption or domain that was found, by the name results carry."""
        found: str | None = self.record.get("corruption", self.job.corruption)
        return found

    def after_epoch(self, number: int) -> float | None:
        """The error after an epoch, counted from 1; None where that was not measured."""
        errors = (self.record.get("errors") or {}).get("after_epoch") or []
        if number < 1:
            raise AcclimateError(f"expected an epoch >= 1, got {number}")
        return errors[number - 1] if number <= len(errors) else None

    def _error(self, name: str) -> float | None:
        value: float | None = (self.record.get("errors") or {}).get(name)
        return value

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON; :meth:`from_dict` reads them back."""
        return {
            "job": self.job.to_dict(),
            "status": self.status,
            "record": dict(self.record),
            "message": self.message,
            "created": self.created,
        }

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> Result:
        """Build a result from :meth:`to_dict`'s values."""
        try:
            return cls(**{**plain, "job": Job.from_dict(plain["job"])})
        except (KeyError, TypeError) as error:
            raise AcclimateError(f"expected the fields of a result, got {plain!r:.200}") from error


def plain(value: Any) -> Any:
    """A value as JSON gives it back: lists, mappings with words as keys, finite numbers or None.

    >>> plain({"loss": float("nan"), 3: (1, True)})
    {'loss': None, '3': [1, True]}
    """
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    raise AcclimateError(
        f"expected plain values in a record (words, numbers, lists, mappings), got "
        f"{type(value).__name__}: {value!r:.60}"
    )
