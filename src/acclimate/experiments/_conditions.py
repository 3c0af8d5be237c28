"""Conditions on results as words, ``model=wrn*``, and as SQL."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from acclimate.errors import AcclimateError, unknown_name
from acclimate.experiments._schema import COLUMNS
from acclimate.experiments.settings import SEQUENCES, STATIONARY

__all__ = ["Condition", "column_sql", "conditions", "where_sql"]

_OPTION = "options."
_NOTHING = {
    "recipe": (),  # none is one
    "corruption": ("none", "clean"),
    "shift": ("none", "clean"),
    "setting": ("none", STATIONARY),
}
"""How tables and people say that a column has no value, where not by "none" alone."""
_NAMES = [name.strip('"') for name in COLUMNS if name not in ("job", "record")]

_SEQUENCES = ", ".join(f"'{name}'" for name in sorted(SEQUENCES))
# What no column has is read from the records, which takes longer.
_IN_RECORDS = {
    "forgetting": "json_extract(record, '$.forgetting.after')"
    " - json_extract(record, '$.forgetting.before')",
    "forgetting_images": "json_extract(record, '$.forgetting.images')",
    "by_shift": f"CASE WHEN setting IN ({_SEQUENCES}) THEN json_extract(record, '$.by_shift') END",
}


@dataclass(frozen=True)
class Condition:
    """A column must have one of some values, in which ``*``, ``?`` and ``[…]`` are wildcards."""

    column: str
    values: tuple[str, ...]

    def __post_init__(self) -> None:
        column_sql(self.column)


def conditions(words: Iterable[str]) -> list[Condition]:
    """Read ``column=value`` words; several values are set apart by commas, "none" is no value.

    >>> conditions(["severity=1,5", "options.optimizer.lr=1e-3"])[0]
    Condition(column='severity', values=('1', '5'))
    """
    found = []
    for word in words:
        column, equals, value = word.partition("=")
        values = tuple(each.strip() for each in value.split(","))
        if not (column and equals and all(values)):
            raise AcclimateError(
                f"expected column=value (model=wrn*, severity=5, options.optimizer.lr=1e-3), got "
                f"{word!r}"
            )
        found.append(Condition(column.strip(), values))
    return found


def column_sql(name: str) -> str:
    """A column as SQL has it; ``options.optimizer.lr`` is looked up in the options."""
    if name.startswith(_OPTION):
        option = name.removeprefix(_OPTION)
        if not option.replace(".", "").replace("_", "").isalnum():
            raise AcclimateError(f"expected the name of an option, got {option!r}")
        return f"json_extract(options, '$.\"{option}\"')"
    if name in _IN_RECORDS:
        return f"({_IN_RECORDS[name]})"
    if name not in _NAMES:
        raise unknown_name("column", name, [*_NAMES, f"{_OPTION}NAME"])
    return f'"{name}"'


def where_sql(conditions: Sequence[Condition]) -> tuple[str, list[str | float]]:
    """The conditions as a WHERE with marks, and the values for them.

    >>> where_sql(conditions(["recipe=rpl*"]))
    ('WHERE ("recipe" GLOB ?)', ['rpl*'])
    """
    clauses: list[str] = []
    filled: list[str | float] = []
    for condition in conditions:
        name, parts = column_sql(condition.column), []
        for value in condition.values:
            if value.lower() in _NOTHING.get(condition.column, ("none",)):
                parts.append(f"{name} IS NULL")
                continue
            number = _number(value)
            if number is None:
                parts.append(f"{name} GLOB ?")
                filled.append(value)
            else:  # a number as it is, or a word that looks like one
                parts.append(f"{name} IN (?, ?)")
                filled += [number, value]
        clauses.append(f"({' OR '.join(parts)})")
    return ("WHERE " + " AND ".join(clauses) if clauses else ""), filled


def _number(value: str) -> float | None:
    words = {"true": 1.0, "false": 0.0}  # as json_extract gives them
    try:
        return words[value.lower()] if value.lower() in words else float(value)
    except ValueError:
        return None
