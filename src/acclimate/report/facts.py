"""A store in a few words: what stands at the head of a report, or why there is none."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from acclimate.bench import Condition, Store
from acclimate.bench.record import Result
from acclimate.text import counted

__all__ = ["counted", "facts", "why_nothing"]


def facts(
    done: Sequence[Result], failed: Sequence[Result], where: Iterable[Condition]
) -> list[str]:
    """How many results, of what, when, and how long they took."""
    days = sorted({result.created[:10] for result in done})
    hours = sum(result.record.seconds or 0 for result in done) / 3600
    span = days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"
    chosen = ", ".join(f"{each.column}={','.join(each.values)}" for each in where)
    said = [
        counted(len(done), "result")
        + (f", {counted(len(failed), 'failed job')}" if failed else ""),
        ", ".join(
            counted(len({getattr(result.job, what) for result in done}), what)
            for what in ("model", "recipe", "seed")
        ),
        f"run {span}, {hours:.1f} hours" if hours >= 1 else f"run {span}, {60 * hours:.1f} minutes",
    ]
    return [*said, f"only {chosen}"] if chosen else said


def why_nothing(store: Store, where: Sequence[Condition], failed: Sequence[Result]) -> str:
    """Why there is nothing to report, and what to do about it."""
    chosen = " and ".join(f"{each.column}={','.join(each.values)}" for each in where)
    asked = f" with {chosen}" if chosen else ""
    if not failed:
        return f"{store.path} has no results{asked}; acclimate bench fills it"
    why = failed[0].reason
    jobs = counted(len(failed), "failed job")
    return (
        f"{store.path} has no results{asked} but {jobs}, the first because: {why}; mend that and "
        "run the same sweep again"
    )
