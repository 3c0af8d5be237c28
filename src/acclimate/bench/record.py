"""The result of a job: its typed record, or why there is none."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime, timezone
from functools import cache
from typing import Any, Literal, TypeAlias, TypeVar, get_args

from acclimate.bench.job import Job
from acclimate.errors import AcclimateError

__all__ = [
    "Balance",
    "Errors",
    "Forgetting",
    "LabelFreeScores",
    "Record",
    "Result",
    "Signals",
    "Span",
    "Status",
    "plain",
]

Status: TypeAlias = Literal["done", "failed"]
_Read: TypeAlias = Callable[[Any], Any]


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="seconds")


@dataclass(frozen=True, kw_only=True)
class _Part:
    """A mapping of JSON with named fields, all of which may be missing.

    Attributes:
        more: what no field has: other keys, and keys that were there without a value. It is kept so
            that a record is written as it was read.
    """

    more: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def from_dict(cls: type[P], values: Mapping[str, Any]) -> P:
        """Build from plain values, as JSON has them."""
        kind: Any = cls  # mypy takes no type[P] for hashable
        readers, found, more = _readers(kind), {}, {}
        for name, value in values.items():
            read = readers.get(name)
            if read is None or value in _EMPTY:
                more[name] = value
            else:
                found[name] = read(value)
        return cls(more=more, **found)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON; :meth:`from_dict` reads them back."""
        kind: Any = type(self)
        found = ((name, _written(getattr(self, name))) for name in _readers(kind))
        return {**self.more, **{name: value for name, value in found if value not in _EMPTY}}


P = TypeVar("P", bound=_Part)
_EMPTY: tuple[Any, ...] = (None, [], {})


@cache
def _readers(cls: Any) -> Mapping[str, _Read]:
    return {f.name: f.metadata.get("read", _value) for f in fields(cls) if f.name != "more"}


def _value(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _part(kind: type[_Part]) -> Mapping[str, _Read]:
    return {"read": kind.from_dict}


def _parts(kind: type[_Part]) -> Mapping[str, _Read]:
    return {"read": lambda values: tuple(kind.from_dict(each or {}) for each in values)}


def _written(value: Any) -> Any:
    if isinstance(value, _Part):
        return value.to_dict() or None
    return [_written(each) for each in value] if isinstance(value, tuple) else value


@dataclass(frozen=True, kw_only=True)
class Errors(_Part):
    """Top-1 errors in percent.

    Attributes:
        unadapted: of the source model.
        start: with the recipe's statistics, before anything is learnt.
        online: of the predictions made before each update of the first epoch.
        before_update: the same for each epoch.
        after_epoch: of the model after each epoch.
        final: of the model that was returned.
    """

    unadapted: float | None = None
    start: float | None = None
    online: float | None = None
    before_update: tuple[float | None, ...] = ()
    after_epoch: tuple[float | None, ...] = ()
    final: float | None = None


@dataclass(frozen=True, kw_only=True)
class Forgetting(_Part):
    """Error in percent on clean images, before and after adaptation to others.

    Attributes:
        before: of the source model, unadapted.
        after: of the adapted model.
        images: how many clean ones were scored.
        statistics_estimated_anew: whether the adapted model's statistics were, on the clean images;
            False where it has no batch norm.
        data: fingerprint of the clean images and labels.
    """

    before: float | None = None
    after: float | None = None
    images: int | None = None
    statistics_estimated_anew: bool | None = None
    data: str | None = None


@dataclass(frozen=True, kw_only=True)
class Balance(_Part):
    """How evenly classes are predicted: a collapse shows here.

    Attributes:
        classes: how many are in use, evenly counted.
        largest: share of the images that get the most frequent prediction.
        unused: classes that are never predicted.
        counts: images by class, where classes are few.
    """

    classes: float | None = None
    largest: float | None = None
    unused: int | None = None
    counts: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Signals(_Part):
    """Label-free scores of a model on the images."""

    agreement: float | None = None
    confidence: float | None = None
    entropy: float | None = None
    diversity: float | None = None
    nuclear_norm: float | None = None

    @property
    def diverged(self) -> bool:
        """Whether predictions were no numbers: a confidence was measured, and was not finite."""
        return self.confidence is None and "confidence" in self.more


@dataclass(frozen=True, kw_only=True)
class LabelFreeScores(_Part):
    """Label-free scores of the source model, before learning, after each epoch, at the end."""

    source: Signals = field(default=Signals(), metadata=_part(Signals))
    start: Signals = field(default=Signals(), metadata=_part(Signals))
    after_epoch: tuple[Signals, ...] = field(default=(), metadata=_parts(Signals))
    final: Signals = field(default=Signals(), metadata=_part(Signals))


@dataclass(frozen=True, kw_only=True)
class Span(_Part):
    """One part of a stream: its error, and the share of the most frequent prediction."""

    images: int | None = None
    error: float | None = None
    largest: float | None = None


@dataclass(frozen=True, kw_only=True)
class Record(_Part):
    """What was measured, and on what.

    Attributes:
        errors: top-1, in percent.
        images: that were adapted to; of these ``labelled`` have a label, and ``wrong`` (or
            ``wrong_top5``) are the counts behind ``errors.final``.
        score: "end" where only the last of the epochs was scored.
        ece: calibration error of the model that was returned; ``reliability`` is its curve.
        filtered_error: of predictions that a map to the data set's labels knows, in percent;
            ``unmappable_percent`` is the share of the others, ``most_predicted`` names the most
            frequent outputs, ``confusions`` the most frequent mistakes among the data set's
            classes, ``answered_as_another`` the classes that another is predicted for more often.
        verdict: the guard's; ``reason`` says why, ``events`` what it saw.
        scores: the label-free score after each epoch.
        label_free: what that score is made of.
        drift: of the parameters, after each epoch.
        balance: of the classes after each epoch; ``start_balance`` before.
        batch_norm_layers: how many the model has.
        forgetting: error on clean images.
        by_shift: of a stream, the errors each time a shift came.
        spans: of a stream, part by part in the order of time.
        data: fingerprint of the images and labels.
        preprocessing: in words; the fingerprint of what is made on the fly depends on it.
        corruption: where it is not the one asked for, frost-procedural.
        weights: fingerprint of the model's weights.
        recipe: in full, as ``Recipe.to_dict``; None where nothing was adapted.
        batch_size: that was used.
        seconds: of adapting and scoring; ``loading_seconds`` of what came before.
        memory: bytes at the peak.
        device: cpu, or the name of the GPU.
        versions: of what it ran with.
        unlike_classes: a warning that the model's classes may not be the data set's.
        notes: warnings of the run.

    >>> values = {"errors": {"final": 7.5, "after_epoch": [8.0, 7.5]}, "loss": 2, "ece": None}
    >>> record = Record.from_dict(values)
    >>> record.errors.after_epoch, record.seconds, record.more
    ((8.0, 7.5), None, {'loss': 2, 'ece': None})
    >>> record.to_dict() == values
    True
    """

    errors: Errors = field(default=Errors(), metadata=_part(Errors))
    images: int | None = None
    labelled: int | None = None
    wrong: int | None = None
    wrong_top5: int | None = None
    score: str | None = None
    ece: float | None = None
    reliability: tuple[Mapping[str, Any], ...] = ()
    filtered_error: float | None = None
    unmappable_percent: float | None = None
    most_predicted: tuple[Mapping[str, Any], ...] = ()
    confusions: tuple[Mapping[str, Any], ...] = ()
    answered_as_another: tuple[str, ...] = ()
    verdict: str | None = None
    reason: str | None = None
    events: tuple[Mapping[str, Any], ...] = ()
    scores: tuple[float | None, ...] = ()
    label_free: LabelFreeScores = field(default=LabelFreeScores(), metadata=_part(LabelFreeScores))
    drift: tuple[float | None, ...] = ()
    start_balance: Balance = field(default=Balance(), metadata=_part(Balance))
    balance: tuple[Balance, ...] = field(default=(), metadata=_parts(Balance))
    statistics_gap: float | None = None
    batch_norm_layers: int | None = None
    forgetting: Forgetting = field(default=Forgetting(), metadata=_part(Forgetting))
    by_shift: Mapping[str, list[float | None]] = field(default_factory=dict)
    spans: tuple[Span, ...] = field(default=(), metadata=_parts(Span))
    forwards: int | None = None
    backwards: int | None = None
    data: str | None = None
    preprocessing: str | None = None
    corruption: str | None = None
    weights: str | None = None
    recipe: Mapping[str, Any] | None = None
    batch_size: int | None = None
    speed: str | None = None
    seconds: float | None = None
    loading_seconds: float | None = None
    memory: int | None = None
    memory_of: str | None = None
    device: str | None = None
    threads: int | None = None
    versions: Mapping[str, str] = field(default_factory=dict)
    unlike_classes: str | None = None
    notes: tuple[str, ...] = ()

    def stored(self) -> Record:
        """As a store gives it back: numbers that are not finite are None, since JSON has none."""
        return Record.from_dict(plain(self.to_dict()))

    @property
    def rate(self) -> float | None:
        """The learning rate the recipe ended up with."""
        lr = ((self.recipe or {}).get("optimizer") or {}).get("lr")
        return lr if isinstance(lr, int | float) else None


@dataclass(frozen=True, kw_only=True)
class Result:
    """What came of a job.

    Attributes:
        job: what was run.
        status: "done", or "failed", which a later run may replace.
        record: a `Record`, or the plain values of one; numbers that are not finite become None,
            since JSON has none.
        message: of a failed job, why.
        created: when, ISO 8601.

    >>> job = Job(model="acclimate:digits", dataset="mnist", recipe="ent")
    >>> result = Result(job=job, record={"errors": {"final": 7.5, "after_epoch": [8.0, 7.5]}})
    >>> result.error, result.after_epoch(1), result.online_error
    (7.5, 8.0, None)
    """

    job: Job
    status: Status = "done"
    record: Record = field(default_factory=Record)
    message: str = ""
    created: str = field(default_factory=_now)

    def __post_init__(self) -> None:
        if self.status not in get_args(Status):
            raise AcclimateError(f"expected status done or failed, got {self.status!r}")
        given: Any = self.record
        if not isinstance(given, Record):
            object.__setattr__(self, "record", Record.from_dict(plain(given)))

    @classmethod
    def failed(cls, job: Job, message: str) -> Result:
        """The result of a job that could not be run to its end."""
        return cls(job=job, status="failed", message=message)

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
        """In percent, of the model that was returned."""
        return self.record.errors.final

    @property
    def online_error(self) -> float | None:
        """In percent, of the predictions made before each update of the first epoch."""
        return self.record.errors.online

    @property
    def unadapted_error(self) -> float | None:
        """In percent, of the source model."""
        return self.record.errors.unadapted

    @property
    def ece(self) -> float | None:
        """Expected calibration error of the model that was returned."""
        return self.record.ece

    @property
    def corruption(self) -> str | None:
        """The corruption or domain that was found, by the name results carry."""
        return self.record.corruption or self.job.corruption

    def after_epoch(self, number: int) -> float | None:
        """The error after an epoch, counted from 1; None where that was not measured."""
        errors = self.record.errors.after_epoch
        if number < 1:
            raise AcclimateError(f"expected an epoch >= 1, got {number}")
        return errors[number - 1] if number <= len(errors) else None

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON; :meth:`from_dict` reads them back."""
        return {
            "job": self.job.to_dict(),
            "status": self.status,
            "record": self.record.to_dict(),
            "message": self.message,
            "created": self.created,
        }

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> Result:
        """Build a result from :meth:`to_dict`'s values."""
        try:
            return cls(**{**plain, "job": Job.from_dict(plain["job"])})
        except (AttributeError, KeyError, TypeError) as error:
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
