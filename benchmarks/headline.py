"""The table of CIFAR-10-C in the README, with the published numbers beside ours.

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
from statistics import fmean, stdev
from typing import Any

from acclimate.experiments.job import group_of
from acclimate.experiments.paper import tables
from page_table import Row, TableError, command

RESULTS = Path(__file__).parent / "results" / "cifar10c.json"
RECIPES = {"bn": "BN", "ent": "ENT", "rpl": "RPL", "hard": "hard", "soft": "soft"}
_REDUCTION = "reduction BN→ENT / BN→RPL (published)"
PLACES = 15 * 5  # corruptions × severities


@dataclass(frozen=True, kw_only=True)
class Mean:
    """A mean over corruptions and severities, and its deviation over seeds."""

    value: float
    std: float | None = None
    places: int = PLACES

    def __str__(self) -> str:
        spread = "" if self.std is None else f" ± {self.std:.1f}"
        less = "" if self.places == PLACES else f" ({self.places} of {PLACES})"
        return f"{self.value:.1f}{spread}{less}"


def headline(rows: Sequence[Row]) -> str:
    """The table, as Markdown, and how to read it."""
    if not rows:
        raise TableError("expected results, got none")
    rows = [_named(row) for row in rows]
    _check_rows(rows)
    models = sorted({row["model"] for row in rows})
    columns = ["model", "unadapted", *RECIPES.values(), _REDUCTION]
    lines = [columns, ["---"] * len(columns), *(_line(model, rows) for model in models)]
    drawn = ["| " + " | ".join(line) + " |" for line in lines]
    return "\n".join([*drawn, "", _about(rows)])


def _named(row: Row) -> Row:
    """A model of which other weights learn counts as another model."""
    options = dict(row.get("options") or {})
    selector = options.pop("selector", None)
    if selector is None:
        return row
    return row | {"model": f"{row['model']}, {selector} weights", "options": options}


def mean_error(rows: Iterable[Row]) -> Mean | None:
    """Severities first, then corruptions, then seeds; of the seed with the fewest places."""
    by_seed: dict[int, dict[str, dict[int, float]]] = {}
    for row in rows:
        corruptions = by_seed.setdefault(row["seed"], {})
        corruptions.setdefault(row["corruption"], {})[row["severity"]] = row["error"]
    if not by_seed:
        return None
    means = [fmean(fmean(each.values()) for each in found.values()) for found in by_seed.values()]
    places = min(sum(map(len, found.values())) for found in by_seed.values())
    return Mean(value=fmean(means), std=stdev(means) if len(means) > 1 else None, places=places)


def published(model: str, recipe: str) -> float | None:
    """What the paper prints for a model and a recipe on CIFAR-10-C; None where it does not.

    None too where an architecture stands for several models, which a name does not tell apart.
    """
    printed = {
        cell.published
        for table in tables()
        for cell in table.to_run
        if (cell.model, cell.recipe, cell.dataset) == (model, recipe, "cifar10-c")
        and (cell.metric, cell.shift, cell.severity) == ("error", "test", None)
        and cell.published is not None
        and not (cell.options or cell.epochs or cell.source)
    }
    return printed.pop() if len(printed) == 1 else None


def _line(model: str, rows: Sequence[Row]) -> list[str]:
    own = [row for row in rows if row["model"] == model]
    found = {name: mean_error(r for r in own if r["recipe"] == name) for name in RECIPES}
    printed = {name: published(model, name) for name in ("none", *RECIPES)}
    ours = {name: None if each is None else each.value for name, each in found.items()}
    return [
        model.removeprefix("acclimate:").removesuffix("-cifar10"),
        _beside(_unadapted(own), printed["none"]),
        *(_beside(found[name], printed[name]) for name in RECIPES),
        _reductions(ours) + _bracketed(_reductions(printed)),
    ]


def _unadapted(rows: Sequence[Row]) -> Mean | None:
    """Of the model as it is, which no seed changes."""
    places: dict[tuple[str, int], list[float]] = {}
    for row in rows:
        if row.get("unadapted") is not None:
            places.setdefault((row["corruption"], row["severity"]), []).append(row["unadapted"])
    return mean_error(
        {"corruption": corruption, "severity": severity, "seed": 0, "error": fmean(errors)}
        for (corruption, severity), errors in places.items()
    )


def _beside(ours: Mean | None, printed: float | None) -> str:
    return f"{'–' if ours is None else ours}{'' if printed is None else f' ({printed:.1f})'}"


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


def _about(rows: Sequence[Row]) -> str:
    seeds = len({row["seed"] for row in rows})
    spread = f"± is the standard deviation over {seeds} seeds; " if seeds > 1 else ""
    return (
        f"Top-1 error in percent, mean over 15 corruptions × 5 severities of CIFAR-10; {spread}"
        "in brackets what the paper prints. Reduction: of the error with new statistics alone."
    )


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
