"""The tables of CIFAR-10-C in the README, with the published numbers beside ours.

    python benchmarks/headline.py                      # prints it
    python benchmarks/headline.py --check README.md    # 1 where the README has another
    python benchmarks/headline.py --write README.md

It is made from results/cifar10c.json: a list with an object for each result, with its model,
recipe, corruption, severity, seed, options, error (after the chosen epoch, in percent) and the
error of the unadapted model on the same images.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from acclimate.bench.table import cell_of, mean_of_means
from acclimate.data.shift import group_of
from acclimate.paper.tables import tables
from page_table import Row, TableError, command, drawn

RESULTS = Path(__file__).parent / "results" / "cifar10c.json"
METHODS = {"bn": "BN", "ent": "ENT", "rpl": "RPL"}
LABELS = {"hard": "hard", "soft": "soft"}
_REDUCTION = "reduction BN→ENT / BN→RPL (published)"
CORRUPTIONS, SEVERITIES, HARDEST = 15, 5, 5


@dataclass(frozen=True, kw_only=True)
class Mean:
    """A mean over some places (corruptions × severities) of all, and its deviation over seeds."""

    value: float
    std: float | None = None
    places: int
    of: int

    def __str__(self) -> str:
        spread = "" if self.std is None else f" ± {self.std:.1f}"
        less = "" if self.places == self.of else f" ({self.places} of {self.of})"
        return f"{self.value:.1f}{spread}{less}"


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
    every = _table(all_severities, METHODS | labels, None)
    hardest = _table([row for row in rows if row["severity"] == HARDEST], METHODS | LABELS, HARDEST)
    less = ", or over how many shifts a mean is where not over all"
    some = less if " of " in every + hardest else ""
    spread = "±: over seeds; " if "±" in every + hardest else ""
    return "\n".join(
        [
            "Top-1 error in percent, of the images adapted to; in brackets what the paper prints "
            f"(on the published images, with its own networks){some}; {spread}"
            "–: not run, or not possible. BN: new statistics of all images; reduction: the share "
            "of that error which learning removes.",
            "",
            f"Mean over {CORRUPTIONS} corruptions × {SEVERITIES} severities:",
            "",
            every,
            "",
            *(line for words in _seeds_in_part(all_severities) for line in (words, "")),
            f"At severity {HARDEST}:",
            "",
            hardest,
        ]
    )


def _table(rows: Sequence[Row], recipes: dict[str, str], severity: int | None) -> str:
    models = sorted({row["model"] for row in rows}, key=_shown)
    columns = ["model", "unadapted", *recipes.values(), _REDUCTION]
    lines = [_line(model, rows, recipes, severity) for model in models]
    return drawn(columns, lines)


def _seeds_in_part(rows: Sequence[Row]) -> list[str]:
    """What further seeds say that have not been everywhere, where all of a recipe's have been."""
    found: dict[str, list[str]] = {}
    for model, recipe in sorted({(row["model"], row["recipe"]) for row in rows}):
        own = [row for row in rows if (row["model"], row["recipe"]) == (model, recipe)]
        been: dict[int, set[tuple[str, int]]] = {}
        for row in own:
            been.setdefault(row["seed"], set()).add((row["corruption"], row["severity"]))
        shared = set.intersection(*been.values())
        if len(set(map(len, been.values()))) == 1 or all(place[1] == HARDEST for place in shared):
            continue
        there = [row for row in own if (row["corruption"], row["severity"]) in shared]
        mean = mean_error(there, of=CORRUPTIONS * SEVERITIES)
        found.setdefault(model, []).append(f"{METHODS.get(recipe, recipe)} {mean}")
    return [
        f"Not all seeds of {_shown(model)} have been everywhere; where they have: "
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
    by_seed: dict[int, dict[str | None, dict[int | None, float]]] = {}
    for row in rows:
        corruptions = by_seed.setdefault(row["seed"], {})
        corruptions.setdefault(row["corruption"], {})[row["severity"]] = row["error"]
    if not by_seed:
        return None
    cell = cell_of(by_seed, measure=mean_of_means, shifts=of, severities=1)
    assert cell.value is not None
    return Mean(value=cell.value, std=cell.std, places=cell.parts // cell.seeds, of=of)


def published(
    model: str, recipe: str, severity: int | None = None, *, shift: str = "test"
) -> float | None:
    """What the paper prints for a model and a recipe on CIFAR-10-C; None where it does not.

    None too where an architecture stands for several models, which a name does not tell apart.
    """
    printed = {
        cell.published
        for table in tables()
        for cell in table.to_run
        if (cell.model, cell.recipe, cell.dataset) == (model, recipe, "cifar10-c")
        and (cell.metric, cell.shift, cell.severity) == ("error", shift, severity)
        and cell.published is not None
        and not (cell.options or cell.epochs or cell.source)
    }
    return printed.pop() if len(printed) == 1 else None


def _line(
    model: str, rows: Sequence[Row], recipes: dict[str, str], severity: int | None
) -> list[str]:
    own = _at_the_same_places([row for row in rows if row["model"] == model])
    of = CORRUPTIONS * (1 if severity else SEVERITIES)
    found = {name: mean_error((r for r in own if r["recipe"] == name), of=of) for name in recipes}
    printed = {name: published(model, name, severity) for name in ("none", *recipes)}
    ours = {name: None if each is None else each.value for name, each in found.items()}
    return [
        _shown(model),
        _beside(_unadapted(own, of=of), printed["none"]),
        *(_beside(found[name], printed[name]) for name in recipes),
        _reductions(ours) + _bracketed(_reductions(printed)),
    ]


def _at_the_same_places(rows: Sequence[Row]) -> list[Row]:
    """Only where all recipes went, so that their means are of the same images."""
    been: dict[str, set[tuple[str, int]]] = {}
    for row in rows:
        been.setdefault(row["recipe"], set()).add((row["corruption"], row["severity"]))
    everywhere = set.intersection(*been.values())
    return [row for row in rows if (row["corruption"], row["severity"]) in everywhere]


def _unadapted(rows: Sequence[Row], *, of: int) -> Mean | None:
    """Of the model as it is, which no seed changes: by itself, or before recipes begin."""
    alone = [row | {"unadapted": row["error"]} for row in rows if row["recipe"] == "none"]
    places: dict[tuple[str, int], list[float]] = {}
    for row in alone or rows:
        if row.get("unadapted") is not None:
            places.setdefault((row["corruption"], row["severity"]), []).append(row["unadapted"])
    errors = (
        {"corruption": corruption, "severity": severity, "seed": 0, "error": fmean(errors)}
        for (corruption, severity), errors in places.items()
    )
    return mean_error(errors, of=of)


def _beside(ours: Mean | None, printed: float | None) -> str:
    if ours is None:
        return "–"
    # What is printed is of all places, and says nothing beside a mean over some.
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


def main(words: Sequence[str] | None = None) -> int:
    """Print, check or write."""
    return command(headline, name="headline", results=RESULTS, about=str(__doc__), words=words)


if __name__ == "__main__":
    sys.exit(main())
