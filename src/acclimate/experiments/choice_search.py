"""What a choice file says of the search behind a choice."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from acclimate.errors import AcclimateError
from acclimate.experiments.job import Value

__all__ = ["Labelled", "Search", "search_of"]


@dataclass(frozen=True, kw_only=True)
class Labelled:
    """The one choice for all shifts that labels make, beside one that had none."""

    options: Mapping[str, Value]
    error: float


@dataclass(frozen=True, kw_only=True)
class Search:
    """What was chosen from, and on what; empty where the file does not say.

    Attributes:
        searched: the values of each option among the candidates.
        chosen_on: the images, ``cifar10 cifar/spatter:3``.
        candidates: how many settings × epochs could have been chosen.
        error: in percent, the mean on these images; of a choice for each shift, with all of them.
        errors: the same for each shift, where each has its own choice.
        labelled: of a choice without labels, what it is compared with.
        regret: how many points more its error is than with labels.
        seeds: of the runs.
        images: how many of each shift; None is all.
    """

    searched: Mapping[str, tuple[Value, ...]] = field(default_factory=dict)
    chosen_on: tuple[str, ...] = ()
    candidates: int | None = None
    error: float | None = None
    errors: Mapping[str, float | None] = field(default_factory=dict)
    labelled: Labelled | None = None
    regret: float | None = None
    seeds: tuple[int, ...] = ()
    images: int | None = None


def search_of(entry: Mapping[str, Any], *, path: str | Path) -> Search:
    """The search of an entry that ``acclimate tune`` wrote.

    >>> entry = {"options": {"epochs": 2}, "dev_error": 9.5, "searched": {"epochs": [1, 2]}}
    >>> search = search_of(entry, path="choice.json")
    >>> search.error, search.searched
    (9.5, {'epochs': (1, 2)})
    """
    try:
        return _search(entry)
    except (AttributeError, TypeError, ValueError, KeyError) as error:
        raise AcclimateError(
            f"expected an entry as acclimate tune writes it in {path} (--choice), got one that "
            f"cannot be read ({error}): {str(dict(entry))[:80]}; write the file anew with "
            "acclimate tune --out"
        ) from error


def _search(entry: Mapping[str, Any]) -> Search:
    parts: Mapping[str, Mapping[str, Any]] = entry.get("by_shift") or {}
    each = [entry, *parts.values()]
    places = dict.fromkeys(str(name) for one in each for name in one.get("chosen_on") or ())
    counts = [int(one["candidates"]) for one in each if one.get("candidates") is not None]
    error = next((entry[k] for k in ("dev_error", "test_error", "error") if k in entry), None)
    labelled = entry.get("labelled")
    searched: Mapping[str, Any] = entry.get("searched") or {}
    return Search(
        searched={name: tuple(values) for name, values in searched.items()},
        chosen_on=tuple(places),
        candidates=max(counts, default=None),
        error=_number(error),
        errors={name: _number(one.get("error")) for name, one in parts.items()},
        labelled=None
        if labelled is None
        else Labelled(options=dict(labelled["options"]), error=float(labelled["error"])),
        regret=_number(entry.get("regret")),
        seeds=tuple(map(int, entry.get("seeds") or ())),
        images=entry.get("images_per_shift"),
    )


def _number(value: Any) -> float | None:
    return None if value is None else float(value)
