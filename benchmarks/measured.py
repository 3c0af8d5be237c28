"""The tables of docs/measured.md, each from the export of a plan.

    python benchmarks/measured.py domains                            # prints it
    python benchmarks/measured.py domains --write docs/measured.md   # or --check

It is made from results/NAME.json, which measure.py makes (self_ensembling: `acclimate reproduce
tbl:self-ensembling --json`), and stands between the marks of its name.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from math import isclose
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from page_table import Row, TableError, command, drawn

RESULTS = Path(__file__).parent / "results"
ORDER = ["none", "bn", "ent", "rpl"]
LEARNING = ["all", "linear", "affine", "adapters"]
USUAL_SIZE = 128
Words = Callable[[Row], str]
Value = Callable[[Row], float | None]


def mean(rows: Iterable[Row], value: Value) -> str:
    """Over the shifts, and its deviation over seeds where there are several.

    >>> places = [(seed, shift) for seed in (0, 1) for shift in (1, 2)]
    >>> rows = [{"seed": s, "shift": f"fog:{n}", "error": 10.0 * n + s} for s, n in places]
    >>> mean(rows, lambda row: row["error"]), mean([], lambda row: row["error"])
    ('15.5 ± 0.7', '–')
    """
    by_seed: dict[int, dict[str | None, float]] = {}
    for row in rows:
        found = value(row)
        if found is None:
            continue
        errors = by_seed.setdefault(row["seed"], {})
        if row["shift"] in errors:
            raise TableError(f"expected one run on {row['shift']} with seed {row['seed']}, got two")
        errors[row["shift"]] = found
    if not by_seed:
        return "–"
    if len({frozenset(each) for each in by_seed.values()}) > 1:
        counts = {seed: len(each) for seed, each in by_seed.items()}
        raise TableError(f"expected the same shifts with every seed, got so many: {counts}")
    means = [fmean(each.values()) for each in by_seed.values()]
    spread = f" ± {stdev(means):.1f}" if len(means) > 1 else ""
    return f"{fmean(means):.1f}{spread}"


def pivot(rows: Sequence[Row], *, line: Words, column: Words, corner: str) -> str:
    """Mean errors, by two things a result is known by, in the order they come."""
    columns = list(dict.fromkeys(map(column, rows)))
    lines = dict.fromkeys(map(line, rows))
    for each in lines:
        _check_places([row for row in rows if line(row) == each], column)
    return drawn(
        [corner, *columns],
        (
            [name, *(mean(_both(rows, line, name, column, each), _error) for each in columns)]
            for name in lines
        ),
    )


def _both(rows: Sequence[Row], line: Words, name: str, column: Words, other: str) -> Iterable[Row]:
    return (row for row in rows if line(row) == name and column(row) == other)


def _check_places(rows: Sequence[Row], column: Words) -> None:
    """Means that stand beside one another must be of the same shifts."""
    been: dict[str, set[str | None]] = {}
    for row in rows:
        been.setdefault(column(row), set()).add(row["shift"])
    if len({frozenset(each) for each in been.values()}) > 1:
        counts = {name: len(each) for name, each in been.items()}
        raise TableError(f"expected the same shifts in every column, got so many: {counts}")


def _error(row: Row) -> float | None:
    error: float | None = row["error"]
    return error


def _option(name: str, default: str = "–") -> Words:
    return lambda row: f"{row['options'].get(name, default)}"


def _model(row: Row) -> str:
    name: str = row["model"]
    return name.rpartition(":")[2]


def _recipe(row: Row) -> str:
    return f"`{row['recipe']}`"


def domains(rows: Sequence[Row]) -> str:
    """Models that were trained for a domain, adapted to it further."""
    rows = sorted(rows, key=lambda row: (row["model"], ORDER.index(row["recipe"])))
    return pivot(rows, line=_model, column=_recipe, corner="model")


def ablations(rows: Sequence[Row]) -> str:
    """A table for each option that was varied."""

    def having(option: str) -> list[Row]:
        found = [row for row in rows if option in row["options"]]
        return sorted(found, key=lambda row: (row["recipe"], _sortable(row["options"][option])))

    asked = {
        "objective.q": "q of the robust loss",
        "filter.threshold": "confidence that a hard label needs",
        "teacher": "teacher",
    }
    tables = [
        pivot(having(option), line=_recipe, column=_option(option), corner=words)
        for option, words in asked.items()
        if having(option)
    ]
    if sizes := having("batch_size"):
        tables.append(_batch_sizes(sizes))
    selected = sorted(having("selector"), key=lambda row: row["options"]["optimizer.lr"])
    if selected:
        tables.append(
            pivot(
                sorted(selected, key=_recipe),
                line=lambda row: f"{_recipe(row)}, {row['options']['selector']}",
                column=_option("optimizer.lr"),
                corner="what learns, by learning rate",
            )
        )
    return "\n\n".join(tables)


def _batch_sizes(rows: Sequence[Row]) -> str:
    """By batch size, with the rate of one size at all, and in proportion to the size."""
    usual = next((r["options"]["optimizer.lr"] for r in rows if _size(r) == USUAL_SIZE), None)
    if usual is None:
        raise TableError(f"expected runs with batches of {USUAL_SIZE}, got none")
    rates: dict[str, Callable[[int], float]] = {
        "with the same learning rate": lambda size: usual,
        "with one in proportion": lambda size: usual * size / USUAL_SIZE,
    }
    lines = [
        row | {"line": f"{_recipe(row)} {words}"}
        for words, rate in rates.items()
        if len({_size(row) for row in _at(rows, rate)}) > 1
        for row in _at(rows, rate)
    ]
    return pivot(
        lines, line=lambda row: row["line"], column=_option("batch_size"), corner="batch size"
    )


def _at(rows: Sequence[Row], rate: Callable[[int], float]) -> list[Row]:
    return [row for row in rows if isclose(row["options"]["optimizer.lr"], rate(_size(row)))]


def _size(row: Row) -> int:
    size: int = row["options"]["batch_size"]
    return size


def _of_size(rows: Sequence[Row], size: int) -> list[Row]:
    return [row for row in rows if _size(row) == size]


def _sortable(value: object) -> tuple[int, float, str]:
    if isinstance(value, int | float):
        return 0, float(value), ""
    return 1, 0.0, str(value)


def dino(rows: Sequence[Row]) -> str:
    """The transformer as it is, and by what of it learns."""
    return drawn(
        ["what learns", "learning rate", "epochs", "error before", "error after"],
        (
            [
                selector,
                _only(own, "optimizer.lr"),
                _only(own, "epochs"),
                mean(own, lambda row: row["unadapted"]),
                mean(own, _error),
            ]
            for selector, own in sorted(_grouped(rows, _option("selector")), key=_by_selector)
            if selector != "–"
        ),
    )


def _by_selector(group: tuple[str, list[Row]]) -> int:
    return LEARNING.index(group[0]) if group[0] in LEARNING else len(LEARNING)


def _only(rows: Sequence[Row], option: str) -> str:
    return ", ".join(sorted({str(row["options"][option]) for row in rows}))


def _grouped(rows: Sequence[Row], words: Words) -> list[tuple[str, list[Row]]]:
    return [
        (name, [row for row in rows if words(row) == name])
        for name in dict.fromkeys(map(words, rows))
    ]


def forgetting(rows: Sequence[Row]) -> str:
    """Error and calibration on the shifts, and what became of clean images."""
    figures: dict[str, Value] = {
        "error, %": _error,
        "calibration error, %": lambda row: None if row["ece"] is None else 100 * row["ece"],
        "clean error before, %": lambda row: (row["forgetting"] or {}).get("before"),
        "and after, %": lambda row: (row["forgetting"] or {}).get("after"),
    }
    rows = sorted(rows, key=lambda row: ORDER.index(row["recipe"]))
    return drawn(
        ["recipe", *figures],
        (
            [name, *(mean(own, value) for value in figures.values())]
            for name, own in _grouped(rows, _recipe)
        ),
    )


def photos(rows: Sequence[Row]) -> str:
    """Networks for ImageNet's classes, by model and severity."""

    def kept(row: Row) -> bool:
        return bool(row["options"].get("normalization") == "source")

    def severity(row: Row) -> str:
        return "as they are" if row["severity"] is None else f"severity {row['severity']}"

    order = ["none", "bn", "bn-prior", "ent", "rpl"]
    rows = sorted(
        rows,
        key=lambda r: (r["model"], r["severity"] or 0, kept(r), order.index(r["recipe"])),
    )
    return pivot(
        rows,
        line=lambda row: f"{_model(row)}, {severity(row)}",
        column=lambda row: f"{_recipe(row)}{', old statistics' if kept(row) else ''}",
        corner="model",
    )


def few_classes(rows: Sequence[Row]) -> str:
    """What the guard said of runs, by what became of the error."""

    def change(row: Row) -> str:
        points = row["error"] - row["unadapted"]
        return "within a point" if abs(points) <= 1 else "lower" if points < 0 else "higher"

    kinds = ("lower", "within a point", "higher")
    refused = {k: [r["verdict"] == "harmful" for r in rows if change(r) == k] for k in kinds}
    return drawn(
        ["error afterwards", "let through", "called harmful"],
        ([kind, str(len(said) - sum(said)), str(sum(said))] for kind, said in refused.items()),
    )


def sources(rows: Sequence[Row]) -> str:
    """Source models by how much learning takes off what new statistics leave; the shipped first."""
    rows = sorted(rows, key=lambda row: (row["weights"] is not None, row["model"]))
    for _, own in _grouped(rows, _source):
        _check_places(own, _recipe)
    return drawn(
        ["source", *(f"`{name}`" for name in ORDER), "reduction BN→ENT", "BN→RPL"],
        (
            [
                name,
                *(mean(_of(own, recipe), _error) for recipe in ORDER),
                *(_reduction(own, recipe) for recipe in ("ent", "rpl")),
            ]
            for name, own in _grouped(rows, _source)
        ),
    )


def self_ensembling(reproduced: dict[str, Any]) -> str:
    """What ``acclimate reproduce tbl:self-ensembling --json`` says was measured, as errors."""
    rows = [row for row in reproduced["tables"][0]["rows"] if row["measured"] is not None]
    columns = list(dict.fromkeys(row["column"] for row in rows))
    found = {
        (row["row"], row["column"]): f"{100 - row['measured']:.2f} ({100 - row['published']:.2f})"
        for row in rows
    }
    return drawn(
        ["trained for, with", *columns],
        (
            [name, *(found.get((name, column), "–") for column in columns)]
            for name in dict.fromkeys(row["row"] for row in rows)
        ),
    )


def statistics(rows: Sequence[Row]) -> str:
    """New statistics alone: of each batch by its size, and of all images."""
    rows = sorted(rows, key=lambda row: (row["model"], row["options"]["batch_size"]))
    sizes = sorted({row["options"]["batch_size"] for row in rows})
    for _, own in _grouped(rows, _model):
        _check_places(own, _option("batch_size"))

    return drawn(
        ["model", "unadapted", *(f"batches of {size}" for size in sizes), "all images"],
        (
            [
                name,
                mean(_of_size(own, sizes[-1]), lambda row: row["unadapted"]),
                *(mean(_of_size(own, size), _online) for size in sizes),
                mean(_of_size(own, sizes[-1]), _error),
            ]
            for name, own in _grouped(rows, _model)
        ),
    )


def small_batches(rows: Sequence[Row]) -> str:
    """What learning takes off, with the statistics of batches before and after, and of all."""
    lines = []
    for size in sorted({_size(row) for row in rows}):
        own = _of_size(rows, size)
        _check_places(own, _recipe)
        for words, before, after in (
            ("each batch", _online, _after_last_epoch),
            ("all images", _error, _error),
        ):
            errors = mean(_of(own, "bn"), before), mean(_of(own, "ent"), after)
            reduction = _reduction(own, "ent", before=before, after=after)
            lines.append([f"{size}, of {words}", *errors, reduction])
    return drawn(["batch size, statistics", "`bn`", "`ent`", "reduction"], lines)


def _after_last_epoch(row: Row) -> float | None:
    error: float | None = row["after_epoch"][-1]
    return error


def _online(row: Row) -> float | None:
    error: float | None = row["online"]
    return error


def _source(row: Row) -> str:
    return ", ".join(filter(None, (_model(row), Path(row["weights"] or "").stem)))


def _of(rows: Sequence[Row], recipe: str) -> list[Row]:
    return [row for row in rows if row["recipe"] == recipe]


def _reduction(
    rows: Sequence[Row], recipe: str, *, before: Value = _error, after: Value = _error
) -> str:
    old, new = map(before, _of(rows, "bn")), map(after, _of(rows, recipe))
    errors = [[each for each in values if each is not None] for values in (old, new)]
    if not all(errors):
        return "–"
    first, then = map(fmean, errors)
    return f"{100 * (first - then) / first:.0f} %"


TABLES: dict[str, Callable[[Any], str]] = {
    "domains": domains,
    "self_ensembling": self_ensembling,
    "ablations": ablations,
    "dino": dino,
    "few_classes": few_classes,
    "forgetting": forgetting,
    "photos": photos,
    "sources": sources,
    "small_batches": small_batches,
    "statistics": statistics,
}


def main(words: Sequence[str] | None = None) -> int:
    """Print, check or write one of them."""
    name, *rest = (sys.argv[1:] if words is None else words) or [""]
    if name not in TABLES:
        print(f"expected one of {', '.join(TABLES)}, got {name!r}", file=sys.stderr)
        return 2
    return command(
        TABLES[name], name=name, results=RESULTS / f"{name}.json", about=str(__doc__), words=rest
    )


if __name__ == "__main__":
    sys.exit(main())
