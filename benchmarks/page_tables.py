"""The tables of README and docs, made from stored results.

    python benchmarks/page_tables.py --check             # 1 where a page has another table
    python benchmarks/page_tables.py --write             # puts all tables into their pages
    python benchmarks/page_tables.py headline sources    # prints these

A table stands in its page between two marks, ``<!-- NAME -->`` and ``<!-- /NAME -->``. The results
are lists of stored results (results/NAME.json, which measure.py exports), but for `speed`, which
step.py writes, and `self_ensembling` (`acclimate reproduce tbl:self-ensembling --json`).
"""

from __future__ import annotations

import argparse
import gzip
import json
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import isclose
from pathlib import Path
from typing import Any

from acclimate.bench.table import cell_of
from acclimate.data.corruptions import SEVERITIES, TEST
from acclimate.data.shift import STAND_INS, group_of, plain_shift
from acclimate.metrics.mean import by_seeds, mean, mean_over_shifts, spread
from acclimate.paper.tables import printed

sys.path.insert(0, str(Path(__file__).parent))  # where tests run it from elsewhere

import bank
import cifar_tables
import defaults
import estimates
import faults
import fuzz
import imagenet_tables
import precision
import rates
import soak
import streams
from page_markdown import markdown

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"
HARDEST = 5
USUAL_SIZE = 128
LEARNING = ["all", "linear", "affine", "adapters"]
ORDER = ["none", "bn", "ent", "rpl"]
GROUP_NORM = "acclimate:wrn-26-2-gn-cifar10"
SETTINGS = {
    "online": "online",
    "correlated:0.1": "correlated",
    "continual": "continual",
    "gradual": "gradual",
    "mixed": "mixed",
    "single": "one image",
}

Row = dict[str, Any]
Words = Callable[[Row], str]
Value = Callable[[Row], float | None]


class TableError(Exception):
    """The table cannot be made, or put where it was asked for."""


# The headline: CIFAR-10-C, with the published numbers beside ours.

METHODS = {"bn": "BN", "ent": "ENT", "rpl": "RPL"}
LABELS = {"hard": "hard", "soft": "soft"}
REDUCTION = "reduction BN→ENT / BN→RPL (published)"


@dataclass(frozen=True, kw_only=True)
class Mean:
    """A mean over some places (corruptions × severities) of all, and its deviation over seeds."""

    value: float
    std: float | None = None
    places: int
    of: int

    def __str__(self) -> str:
        seeds = "" if self.std is None else f" ± {self.std:.1f}"
        less = "" if self.places == self.of else f" ({self.places} of {self.of})"
        return f"{self.value:.1f}{seeds}{less}"


def headline(rows: Sequence[Row]) -> str:
    """The tables, as Markdown, and how to read them."""
    if not rows:
        raise TableError("expected results, got none")
    rows = [_named(row) for row in rows]
    _check_rows(rows)
    at_all = {(row["model"], row["recipe"]) for row in rows if row["severity"] != HARDEST}
    all_severities = [row for row in rows if (row["model"], row["recipe"]) in at_all]
    there = {row["recipe"] for row in all_severities}
    labels = {name: words for name, words in LABELS.items() if name in there}
    every = _headline_table(all_severities, METHODS | labels, None)
    there_hardest = [row for row in rows if row["severity"] == HARDEST]
    hardest = _headline_table(there_hardest, METHODS | LABELS, HARDEST)
    less = ", or over how many shifts a mean is where not over all"
    some = less if " of " in every + hardest else ""
    seeds = "±: over seeds; " if "±" in every + hardest else ""
    return "\n".join(
        [
            "Top-1 error in percent, of the images adapted to; in brackets what the paper prints "
            f"(on the published images, with its own networks){some}; {seeds}"
            "–: not run, or not possible. BN: new statistics of all images; reduction: the share "
            "of that error which learning removes.",
            "",
            f"Mean over {len(TEST)} corruptions × {len(SEVERITIES)} severities:",
            "",
            every,
            "",
            *(line for words in _seeds_in_part(all_severities) for line in (words, "")),
            f"At severity {HARDEST}:",
            "",
            hardest,
        ]
    )


def _headline_table(rows: Sequence[Row], recipes: dict[str, str], severity: int | None) -> str:
    models = sorted({row["model"] for row in rows}, key=_shown)
    columns = ["model", "unadapted", *recipes.values(), REDUCTION]
    lines = [_headline_line(model, rows, recipes, severity) for model in models]
    return markdown(columns, lines)


def _seeds_in_part(rows: Sequence[Row]) -> list[str]:
    """Means of further seeds that did not run on all shifts, over the shifts that all ran on."""
    found: dict[str, list[str]] = {}
    for model, recipe in sorted({(row["model"], row["recipe"]) for row in rows}):
        own = [row for row in rows if (row["model"], row["recipe"]) == (model, recipe)]
        counts = Counter(row["seed"] for row in own)
        there = _shared(own, "seed")
        if len(set(counts.values())) == 1 or all(row["severity"] == HARDEST for row in there):
            continue
        ours = mean_error(there, of=len(TEST) * len(SEVERITIES))
        found.setdefault(model, []).append(f"{METHODS.get(recipe, recipe)} {ours}")
    return [
        f"Not all seeds of {_shown(model)} ran on every shift; on those that all ran on: "
        f"{', '.join(means)}."
        for model, means in found.items()
    ]


def _named(row: Row) -> Row:
    """A model that was trained again, or of which other weights learn, counts as another model."""
    options = dict(row.get("options") or {})
    selector, file = options.pop("selector", None), Path(row.get("weights") or "").stem
    name: str = row["model"]
    if not _shown(name).startswith(file):  # resnet50.safetensors is that of resnet50-cifar
        name = f"{_shown(name)}, {file.replace('-', ' ')}"
    if selector is not None:
        name = f"{_shown(name)}, {selector} weights"
    return row | {"model": name, "options": options}


def _shown(model: str) -> str:
    return model.removeprefix("acclimate:").removesuffix("-cifar10")


def mean_error(rows: Iterable[Row], *, of: int) -> Mean | None:
    """Severities first, then corruptions, then the seeds that went to the most, and the same."""
    by_seed = by_seeds((r["seed"], r["corruption"], r["severity"], r["error"]) for r in rows)
    if not by_seed:
        return None
    cell = cell_of(by_seed, measure=mean_over_shifts, shifts=of, severities=1)
    assert cell.value is not None
    return Mean(value=cell.value, std=cell.std, places=cell.parts // cell.seeds, of=of)


def published(
    model: str, recipe: str, severity: int | None = None, *, shift: str = "test"
) -> float | None:
    """What the paper prints for a model and a recipe on CIFAR-10-C; None where it does not."""
    where = {"dataset": "cifar10-c", "metric": "error", "shift": shift}
    return printed(model=model, recipe=recipe, severity=severity, **where)


def _headline_line(
    model: str, rows: Sequence[Row], recipes: dict[str, str], severity: int | None
) -> list[str]:
    own = _shared([row for row in rows if row["model"] == model], "recipe")
    of = len(TEST) * (1 if severity else len(SEVERITIES))
    found = {name: mean_error((r for r in own if r["recipe"] == name), of=of) for name in recipes}
    printed = {name: published(model, name, severity) for name in ("none", *recipes)}
    ours = {name: None if each is None else each.value for name, each in found.items()}
    return [
        _shown(model),
        _beside(_unadapted(own, of=of), printed["none"]),
        *(_beside(found[name], printed[name]) for name in recipes),
        _reductions(ours) + _bracketed(_reductions(printed)),
    ]


def _shared(rows: Sequence[Row], by: str) -> list[Row]:
    """Only the shifts that all recipes, or seeds, ran on, so that means are of the same images."""
    ran: dict[Any, set[tuple[str, int]]] = {}
    for row in rows:
        ran.setdefault(row[by], set()).add((row["corruption"], row["severity"]))
    shared = set.intersection(*ran.values())
    return [row for row in rows if (row["corruption"], row["severity"]) in shared]


def _unadapted(rows: Sequence[Row], *, of: int) -> Mean | None:
    """Of the unadapted model, which no seed changes: by itself, or before recipes begin."""
    alone = [row | {"unadapted": row["error"]} for row in rows if row["recipe"] == "none"]
    places: dict[tuple[str, int], list[float]] = {}
    for row in alone or rows:
        if row.get("unadapted") is not None:
            places.setdefault((row["corruption"], row["severity"]), []).append(row["unadapted"])
    errors = (
        {"corruption": corruption, "severity": severity, "seed": 0, "error": mean(errors)}
        for (corruption, severity), errors in places.items()
    )
    return mean_error(errors, of=of)


def _beside(ours: Mean | None, printed: float | None) -> str:
    if ours is None:
        return "–"
    # What is printed is of all places, and does not compare with a mean over some.
    return f"{ours}{'' if printed is None or ours.places < ours.of else f' ({printed:.1f})'}"


def _reductions(errors: dict[str, float | None]) -> str:
    """How much of the error with new statistics alone each method takes off, in percent."""
    source = errors["bn"]
    after = [errors[name] for name in ("ent", "rpl")]
    if not source or all(each is None for each in after):
        return "–"
    return " / ".join(
        "–" if each is None else f"{100 * (source - each) / source:.0f} %" for each in after
    )


def _bracketed(words: str) -> str:
    return "" if words == "–" else f" ({words})"


def _check_rows(rows: Sequence[Row]) -> None:
    """A mean must not mix settings, count a run twice or take in what options were chosen on."""
    settings: dict[tuple[str, str], str] = {}
    seen: set[tuple[Any, ...]] = set()
    for row in rows:
        key = (row["model"], row["recipe"])
        options = json.dumps(row.get("options") or {}, sort_keys=True)
        if settings.setdefault(key, options) != options:
            both = f"{settings[key]} and {options}"
            raise TableError(f"expected one setting of {key[1]} with {key[0]}, got {both}")
        run = (*key, row["corruption"], row["severity"], row["seed"])
        if run in seen:
            raise TableError(f"expected each run once, got {run} again")
        seen.add(run)
        if group_of(row["corruption"]) != "test":
            raise TableError(f"expected test corruptions, got {row['corruption']!r}")


# docs/measured.md: means over shifts, by two things a result is known by.


def mean_of(rows: Iterable[Row], value: Value) -> str:
    """Over the shifts, and its deviation over seeds where there are several.

    >>> places = [(seed, shift) for seed in (0, 1) for shift in (1, 2)]
    >>> rows = [{"seed": s, "shift": f"fog:{n}", "error": 10.0 * n + s} for s, n in places]
    >>> mean_of(rows, lambda row: row["error"]), mean_of([], lambda row: row["error"])
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
        raise TableError(f"expected the same shifts with every seed, got these counts: {counts}")
    means = [mean(list(each.values())) for each in by_seed.values()]
    std = spread(means)
    return f"{mean(means):.1f}" + ("" if std is None else f" ± {std:.1f}")


def pivot(rows: Sequence[Row], *, line: Words, column: Words, corner: str) -> str:
    """Mean errors, by two things a result is known by, in the order they come."""
    columns = list(dict.fromkeys(map(column, rows)))
    lines = dict.fromkeys(map(line, rows))
    for each in lines:
        _check_places([row for row in rows if line(row) == each], column)
    return markdown(
        [corner, *columns],
        (
            [name, *(mean_of(_both(rows, line, name, column, each), _error) for each in columns)]
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
        raise TableError(f"expected the same shifts in every column, got these counts: {counts}")


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
    """The transformer before adapting, and by what of it learns."""
    return markdown(
        ["what learns", "learning rate", "epochs", "error before", "error after"],
        (
            [
                selector,
                _only(own, "optimizer.lr"),
                _only(own, "epochs"),
                mean_of(own, lambda row: row["unadapted"]),
                mean_of(own, _error),
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
    return markdown(
        ["recipe", *figures],
        (
            [name, *(mean_of(own, value) for value in figures.values())]
            for name, own in _grouped(rows, _recipe)
        ),
    )


def photos(rows: Sequence[Row]) -> str:
    """Networks for ImageNet's classes, by model and severity."""

    def old_statistics(row: Row) -> bool:
        return bool(row["options"].get("normalization") == "source")

    def severity(row: Row) -> str:
        return "as they are" if row["severity"] is None else f"severity {row['severity']}"

    order = ["none", "bn", "bn-prior", "ent", "rpl"]
    rows = sorted(
        rows,
        key=lambda r: (r["model"], r["severity"] or 0, old_statistics(r), order.index(r["recipe"])),
    )
    return pivot(
        rows,
        line=lambda row: f"{_model(row)}, {severity(row)}",
        column=lambda row: f"{_recipe(row)}{', old statistics' if old_statistics(row) else ''}",
        corner="model",
    )


def few_classes(rows: Sequence[Row]) -> str:
    """The guard's verdict on runs, by what became of the error."""

    def change(row: Row) -> str:
        points = row["error"] - row["unadapted"]
        return "within a point" if abs(points) <= 1 else "lower" if points < 0 else "higher"

    kinds = ("lower", "within a point", "higher")
    refused = {k: [r["verdict"] == "harmful" for r in rows if change(r) == k] for k in kinds}
    return markdown(
        ["error afterwards", "let through", "called harmful"],
        ([kind, str(len(each) - sum(each)), str(sum(each))] for kind, each in refused.items()),
    )


def sources(rows: Sequence[Row]) -> str:
    """Source models by how much learning takes off what new statistics leave; the shipped first."""
    rows = sorted(rows, key=lambda row: (row["weights"] is not None, row["model"]))
    for _, own in _grouped(rows, _source):
        _check_places(own, _recipe)
    return markdown(
        ["source", *(f"`{name}`" for name in ORDER), "reduction BN→ENT", "BN→RPL"],
        (
            [
                name,
                *(mean_of(_of(own, recipe), _error) for recipe in ORDER),
                *(_reduction(own, recipe) for recipe in ("ent", "rpl")),
            ]
            for name, own in _grouped(rows, _source)
        ),
    )


def self_ensembling(reproduced: dict[str, Any]) -> str:
    """What ``acclimate reproduce tbl:self-ensembling --json`` measured, as errors."""
    rows = [row for row in reproduced["tables"][0]["rows"] if row["measured"] is not None]
    columns = list(dict.fromkeys(row["column"] for row in rows))
    found = {
        (row["row"], row["column"]): f"{100 - row['measured']:.2f} ({100 - row['published']:.2f})"
        for row in rows
    }
    return markdown(
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

    return markdown(
        ["model", "unadapted", *(f"batches of {size}" for size in sizes), "all images"],
        (
            [
                name,
                mean_of(_of_size(own, sizes[-1]), lambda row: row["unadapted"]),
                *(mean_of(_of_size(own, size), _online) for size in sizes),
                mean_of(_of_size(own, sizes[-1]), _error),
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
            errors = mean_of(_of(own, "bn"), before), mean_of(_of(own, "ent"), after)
            reduction = _reduction(own, "ent", before=before, after=after)
            lines.append([f"{size}, of {words}", *errors, reduction])
    return markdown(["batch size, statistics", "`bn`", "`ent`", "reduction"], lines)


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
    first, then = map(mean, errors)
    return f"{100 * (first - then) / first:.0f} %"


def group_norm(rows: Sequence[Row]) -> str:
    """The network with group norm beside what the paper prints, by corruption and over all.

    Frost of our own textures is no frost of photographs: each has its own line.
    """
    recipes = ("none", "ent", "rpl")
    own = {recipe: [row for row in rows if _is_group_norm(row, recipe)] for recipe in recipes}
    for recipe, found in own.items():
        shifts = Counter((plain_shift(row["corruption"]), row["severity"]) for row in found)
        wanted = {(name, severity) for name in TEST for severity in SEVERITIES}
        if set(shifts) != wanted or len(set(shifts.values())) > 1:
            seeds = sorted(set(shifts.values()))
            raise TableError(
                f"expected {len(wanted)} shifts with {recipe}, each with as many seeds, got "
                f"{len(shifts)} with {' or '.join(map(str, seeds)) or 0}"
            )
    ran = {row["corruption"] for found in own.values() for row in found}

    def cell(recipe: str, shift: str) -> str:
        ours = (row for row in own[recipe] if shift in ("test", row["corruption"]))
        theirs = published(GROUP_NORM, recipe, shift=shift)
        return mean_of(ours, _error) + ("" if theirs is None else f" ({theirs})")

    lines = [name for shift in TEST for name in (shift, *STAND_INS) if plain_shift(name) == shift]
    kept = [shift for shift in lines if shift in ran or shift in TEST]
    return markdown(
        ["corruption", *(f"`{recipe}`" for recipe in recipes)],
        (
            ["all" if shift == "test" else shift, *(cell(recipe, shift) for recipe in recipes)]
            for shift in (*kept, "test")
        ),
    )


def _is_group_norm(row: Row, recipe: str) -> bool:
    own = (row["model"], row["recipe"]) == (GROUP_NORM, recipe)
    return own and "selector" not in row["options"]


# docs/methods.md: all methods in all settings.


def methods_table(rows: Sequence[Row]) -> str:
    """The mean error of each method in each setting, and the rate that was chosen for it."""
    if not rows:
        raise TableError("expected results, got none")

    def first(name: str) -> tuple[float, str]:
        """The best in the plain stream first."""
        errors = [r["online"] for r in rows if (r["recipe"], r["setting"]) == (name, "online")]
        return mean(errors) if errors else float("inf"), name

    lines = []
    for name in sorted({row["recipe"] for row in rows}, key=first):
        own = [row for row in rows if row["recipe"] == name]
        cells = [_methods_mean([r for r in own if r["setting"] == each]) for each in SETTINGS]
        lines.append([f"`{name}`", _rate(own), *cells])
    return markdown(["recipe", "learning rate", *SETTINGS.values()], lines)


def equality(result: Mapping[str, Any]) -> str:
    """How far recipes are from their authors' code, a line for each recipe and code."""
    by_code: dict[tuple[str, str, str], list[Row]] = {}
    for row in result["rows"]:
        key = row["recipe"], row["code"], row["commit"][:7]
        by_code.setdefault(key, []).append(row)
    lines = [
        [
            f"`{recipe}`",
            f"[{code}](https://github.com/{code}), {commit}",
            "; ".join(dict.fromkeys(row["model"].removeprefix("acclimate:") for row in rows)),
            rows[0]["held_alike"] or "nothing",
            f"{max(row['difference'] for row in rows):.0e}",
        ]
        for (recipe, code, commit), rows in sorted(by_code.items())
    ]
    header = ["recipe", "authors' code", "network", "set alike", "logits differ by"]
    return markdown(header, lines)


def _methods_mean(rows: Sequence[Row]) -> str:
    """Over the corruptions: a result for each, or one that ran through all."""
    if not rows:
        return "–"
    apart = [row for row in rows if not row["by_shift"]]
    if apart and len(apart) != len(TEST):
        raise TableError(
            f"expected {len(TEST)} corruptions of {rows[0]['recipe']} {rows[0]['setting']}, "
            f"got {len(apart)}"
        )
    return f"{mean([row['online'] for row in rows]):.1f}"


def _rate(rows: Sequence[Row]) -> str:
    """The rate; behind a semicolon that for single images, if it is another."""
    learning = [row for row in rows if row["options"]]
    batches, single = (
        sorted(
            {r["options"]["optimizer.lr"] for r in learning if (r["setting"] == "single") is one}
        )
        for one in (False, True)
    )
    words = [", ".join(f"{rate:g}" for rate in rates) for rates in (batches, single) if rates]
    return "; ".join(dict.fromkeys(words)) or "–"


# docs/how-a-step-works.md.


def speeds(result: dict[str, Any]) -> str:
    """Steps on a GPU, a line for each model."""
    by_model: dict[str, dict[str, Row]] = {}
    for row in result["rows"]:
        by_model.setdefault(row["model"], {})[row["what"]] = row
    header = [
        "model", "eager, images/s", "auto, images/s", "ratio", "peak GiB", "auto's inference",
    ]  # fmt: skip
    about = f"{result['machine']}, torch {result['torch']}; {result['step']}; {result['date']}."
    return f"{markdown(header, map(_speed_line, by_model.values()))}\n\n{about}"


def _speed_line(sides: dict[str, Row]) -> list[str]:
    eager, auto, inference = (sides.get(what) for what in ("eager", "auto", "inference, auto"))
    if auto is None or eager is None or "skipped" in auto or "skipped" in eager:
        raise TableError(f"expected eager and auto of {next(iter(sides.values()))['model']}")
    learns = "" if auto["learns"] == "affine" else f", {auto['learns']} weights"
    between = (f"{side['peak_mebibytes'] / 1024:.1f}" for side in (eager, auto))
    rate = (inference or {}).get("images_per_second")  # none where it was left out
    return [
        f"{auto['model']}, {auto['size']}², batch {auto['batch']}{learns}",
        f"{eager['images_per_second']:,.0f}",
        f"{auto['images_per_second']:,.0f}",
        f"{auto['ratio_to_eager']:.2f}",
        " → ".join(between),
        "–" if rate is None else f"{rate:,.0f}",
    ]


# docs/serving.md.


def serving(result: dict[str, Any]) -> str:
    """Servers side by side: throughput, latency, processor time and error."""
    header = [
        "server",
        "requests/s",
        "of frozen",
        "p50, ms",
        "p99, ms",
        "CPU ms a request",
        "error %",
    ]
    lines = [
        [
            "FastAPI + PyTorch by hand" if row["server"] == "plain" else row["server"],
            f"{row['requests_per_second']:,.0f}",
            f"{row['of_frozen']:.2f}",
            f"{row['p50_ms']:.0f}",
            f"{row['p99_ms']:.0f}",
            f"{row['cpu_ms_per_request']:.1f}",
            f"{row['error_percent']:.1f}",
        ]
        for row in result["rows"]
    ]
    lost = sum(row["not_answered"] for row in result["rows"])
    about = (
        f"{result['model']}, {result['machine']}, load average {result['load_average']:g} at the "
        f"end; torch {result['versions']['torch']}; {result['rounds']} rounds of "
        f"{result['seconds']:g} s with {result['clients']} clients; {lost} requests not answered; "
        f"{result['date']}."
    )
    return f"{markdown(header, lines)}\n\n{about}"


def stream_table(rows: Sequence[Row]) -> str:
    """Streams that lead a model astray."""
    return streams.markdown([streams.Row(**row) for row in rows])


def fault_table(rows: Sequence[Row]) -> str:
    """Commands that were killed, and worse."""
    return faults.markdown([faults.Row(**row) for row in rows])


def fuzz_table(found: Mapping[str, Any]) -> str:
    """Cases that hypothesis drew."""
    return fuzz.markdown([fuzz.Row(**row) for row in found["tests"]])


@dataclass(frozen=True)
class PageTable:
    """A table, the page it stands in, and the results it is made from."""

    make: Callable[[Any], str]
    page: str
    results: str


PAGE_TABLES = {
    "headline": PageTable(headline, "docs/measured.md", "cifar10c.json"),
    "methods": PageTable(methods_table, "docs/methods.md", "methods.json"),
    "equality": PageTable(equality, "docs/methods.md", "equality.json"),
    "speed": PageTable(speeds, "docs/how-a-step-works.md", "step_gpu.json"),
    "serving": PageTable(serving, "docs/serving.md", "serve.json"),
    "soak": PageTable(soak.markdown, "docs/serving.md", "soak.json"),
    "soak_ray": PageTable(soak.markdown, "docs/serving.md", "soak_ray.json"),
    "verdicts": PageTable(estimates.pages, "docs/guard.md", "bank.test.jsonl.gz"),
    "defaults": PageTable(defaults.pages, "docs/defaults.md", "defaults.jsonl.gz"),
    "photos_by_default": PageTable(defaults.photos, "README.md", "defaults.jsonl.gz"),
    "rates": PageTable(rates.pages, "docs/defaults.md", "rates.jsonl.gz"),
    "precision": PageTable(precision.pages, "docs/how-a-step-works.md", "precision.jsonl.gz"),
    "faults": PageTable(fault_table, "docs/reliability.md", "faults.json"),
    "fuzz": PageTable(fuzz_table, "docs/reliability.md", "fuzz.json"),
    "streams": PageTable(stream_table, "docs/reliability.md", "streams.json"),
    **{
        make.__name__: PageTable(make, "docs/measured.md", f"{results}.json.gz")
        for results, makes in {
            "imagenet_c": (
                imagenet_tables.imagenet, imagenet_tables.imagenet_pooled,
                imagenet_tables.imagenet_severities,
            ),
            "imagenet_dev": (imagenet_tables.imagenet_epochs, imagenet_tables.imagenet_analyses),
            "cifar_grid": (cifar_tables.cifar_grid,),
            "cifar_settling": (cifar_tables.cifar_batches, cifar_tables.group_norm_oracle),
        }.items()
        for make in makes
    },
    "group_norm": PageTable(group_norm, "docs/measured.md", "cifar10c.json"),
    **{
        make.__name__: PageTable(make, "docs/measured.md", f"{make.__name__}.json")
        for make in (
            domains, self_ensembling, ablations, dino, few_classes, forgetting, photos, sources,
            small_batches, statistics,
        )
    },
}  # fmt: skip


def in_page(page: str, table: str, *, name: str) -> str:
    """A page with the table between its marks.

    >>> in_page("a <!-- t --> old <!-- /t --> b", "new", name="t")
    'a <!-- t -->\\nnew\\n<!-- /t --> b'
    """
    opening, closing = f"<!-- {name} -->", f"<!-- /{name} -->"
    before, opened, rest = page.partition(opening)
    _, closed, after = rest.partition(closing)
    if not (opened and closed):
        raise TableError(f"expected {opening} and {closing} in the page, around the table")
    return f"{before}{opening}\n{table}\n{closing}{after}"


def read_rows(path: Path) -> Any:
    """What a file of results holds, which may be compressed."""
    content = path.read_bytes()
    return json.loads(gzip.decompress(content) if path.suffix == ".gz" else content)


def _results(path: Path) -> Any:
    if path.name.endswith(".jsonl.gz"):
        return bank.read(path)
    if path.suffix == ".gz":  # of a long plan, whose tables show what is stored of it
        return read_rows(path) if path.exists() else []
    return json.loads(_read(path))


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise TableError(f"cannot read {path}: {error.strerror}") from error


def main(words: Sequence[str] | None = None) -> int:
    """Print, check or write tables."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    names = ", ".join(PAGE_TABLES)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"{names} (default: all)")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--check", action="store_true", help="1 where a page has another table")
    what.add_argument("--write", action="store_true", help="put the tables into their pages")
    parser.add_argument("--page", type=Path, help="another page than the table's own")
    parser.add_argument("--results", type=Path, help="other results than the table's own")
    args = parser.parse_args(words)
    status = 0
    for name in args.names or PAGE_TABLES:
        try:
            if name not in PAGE_TABLES:
                raise TableError(f"expected one of {names}, got {name!r}")
            table = PAGE_TABLES[name]
            results = args.results or RESULTS / table.results
            made = table.make(_results(results))
            page = args.page or ROOT / table.page
            if not (args.check or args.write):
                print(made)
                continue
            text = _read(page)
            wanted = in_page(text, made, name=name)
        except (TableError, imagenet_tables.ImagesDifferError) as error:
            print(error, file=sys.stderr)
            return 2
        if args.write:
            page.write_text(wanted, encoding="utf-8")
        elif wanted != text:
            update = f"python benchmarks/page_tables.py {name} --write"
            print(f"{page} has another table; {update} updates it")
            status = 1
    return status


if __name__ == "__main__":
    sys.exit(main())
