"""What happened during an adaptation: scores before updates and after epochs, kept apart."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from acclimate.guard.estimate import ErrorEstimate, Interval
from acclimate.metrics import Scores
from acclimate.text import counted

__all__ = ["EpochRecord", "Event", "History"]


@dataclass(frozen=True)
class Event:
    """Something the guard saw, and what was done about it."""

    step: int
    trouble: str
    action: str

    def __str__(self) -> str:
        return f"step {self.step}: {self.trouble}; {self.action}"


@dataclass(frozen=True)
class EpochRecord:
    """One epoch, before updates and after the epoch.

    ``before_update`` are the online predictions, each made before learning from its image;
    ``after_epoch`` come from a pass over all images with the parameters the epoch ended with.
    ``drift`` is how far the parameters moved from the source, relative to their norm;
    ``estimated_change`` what learning changed the error by so far, in points, where estimated.
    """

    epoch: int
    before_update: Scores
    after_epoch: Scores | None
    drift: float
    estimated_change: Interval | None = None


@dataclass
class History:
    """Everything recorded.

    ``source`` is the unadapted model, ``start`` the recipe's statistics before anything is learnt,
    ``final`` the model returned.

    ``statistics_gap`` is the share of images on which the model returned (stored statistics, image
    by image) predicts another class than the same parameters with the recipe's batch statistics.
    ``statistics_shift`` is how far the images' statistics are from the source's, layer by layer, in
    units of the source's standard deviation.

    ``estimate`` is the error without labels, before and after adaptation, ``temperature`` what the
    returned model's logits are divided by for calibrated probabilities; None where not estimated.
    """

    source: Scores | None = None
    start: Scores | None = None
    epochs: list[EpochRecord] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    final: Scores | None = None
    statistics_gap: float | None = None
    statistics_shift: list[float] = field(default_factory=list)
    kept_epoch: int | None = None
    estimate: ErrorEstimate | None = None
    temperature: float | None = None

    def describe(self) -> str:
        """One line.

        >>> History(events=[Event(step=3, trouble="not finite", action="stopped")]).describe()
        '0 epochs, 1 guard event'
        """
        parts = [counted(len(self.epochs), "epoch")]
        losses = [e.before_update.loss for e in self.epochs if e.before_update.loss is not None]
        if losses:
            first = f"{losses[0]:.4f} -> " if len(losses) > 1 else ""
            parts.append(f"loss {first}{losses[-1]:.4f}")
        if self.epochs:
            parts.append(f"parameters moved by {self.epochs[-1].drift:.3f} of their norm")
        if self.kept_epoch is not None:
            parts.append(f"kept epoch {self.kept_epoch}")
        if self.events:
            parts.append(counted(len(self.events), "guard event"))
        return ", ".join(parts)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, plain: dict[str, Any]) -> History:
        """Read :meth:`to_dict`'s values back."""

        def scores(value: dict[str, Any] | None) -> Scores | None:
            return None if value is None else Scores.from_dict(value)

        values = dict(plain)
        values |= {name: scores(plain[name]) for name in ("source", "start", "final")}
        if plain.get("estimate") is not None:
            values["estimate"] = ErrorEstimate.from_dict(plain["estimate"])
        values["events"] = [Event(**event) for event in plain["events"]]
        values["epochs"] = [
            EpochRecord(
                epoch=record["epoch"],
                before_update=Scores.from_dict(record["before_update"]),
                after_epoch=scores(record["after_epoch"]),
                drift=record["drift"],
                estimated_change=Interval(**change)
                if (change := record.get("estimated_change"))
                else None,
            )
            for record in plain["epochs"]
        ]
        return cls(**values)
