"""The table of CIFAR-10-C in the README, with the published numbers beside ours.

    python benchmarks/headline.py                      # prints it
    python benchmarks/headline.py --check README.md    # 1 where the README has another
    python benchmarks/headline.py --write README.md

It is made from results/cifar10c.json: a list with an object for each result, with its model,
recipe, corruption, severity, seed, options, error (after the chosen epoch, in percent) and the
error of the unadapted model on the same images.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from acclimate.experiments.job import group_of
from acclimate.experiments.paper import tables

RESULTS = Path(__file__).parent / "results" / "cifar10c.json"
OPEN, CLOSE = "<!-- headline -->", "<!-- /headline -->"
RECIPES = {"bn": "BN", "ent": "ENT", "rpl": "RPL", "hard": "hard", "soft": "soft"}
_REDUCTION = "reduction BN→ENT / BN→RPL (published)"
PLACES = 15 * 5  # corruptions × severities

Row = dict[str, Any]


class HeadlineError(Exception):
    """The table cannot be made, or put where it was asked for."""


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
        raise HeadlineError("expected results, got none")
    _check_rows(rows)
    models = sorted({row["model"] for row in rows})
    columns = ["model", "unadapted", *RECIPES.values(), _REDUCTION]
    lines = [columns, ["---"] * len(columns), *(_line(model, rows) for model in models)]
    drawn = ["| " + " | ".join(line) + " |" for line in lines]
    return "\n".join([*drawn, "", _about(rows)])


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


def in_page(page: str, table: str) -> str:
    """A page with the table between the marks."""
    before, opened, rest = page.partition(OPEN)
    _, closed, after = rest.partition(CLOSE)
    if not (opened and closed):
        raise HeadlineError(f"expected {OPEN} and {CLOSE} in the page, around the table")
    return f"{before}{OPEN}\n{table}\n{CLOSE}{after}"


def _line(model: str, rows: Sequence[Row]) -> list[str]:
    own = [row for row in rows if row["model"] == model]
    found = {name: mean_error(r for r in own if r["recipe"] == name) for name in RECIPES}
    printed = {name: published(model, name) for name in ("none", *RECIPES)}
    ours = {name: None if each is None else each.value for name, each in found.items()}
    return [
        f"`{model.removeprefix('acclimate:')}`",
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
            raise HeadlineError(f"expected one setting of {key[1]} with {key[0]}, got {both}")
        run = (*key, row["corruption"], row["severity"], row["seed"])
        if run in seen:
            raise HeadlineError(f"expected each run once, got {run} again")
        seen.add(run)
        if group_of(row["corruption"]) != "test":
            raise HeadlineError(f"expected test corruptions, got {row['corruption']!r}")


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise HeadlineError(f"cannot read {path}: {error.strerror}") from error


def main(words: Sequence[str] | None = None) -> int:
    """Print, check or write."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--results", type=Path, default=RESULTS, help="the export to read")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--check", type=Path, metavar="PAGE", help="1 where it has another table")
    what.add_argument("--write", type=Path, metavar="PAGE", help="put the table into it")
    args = parser.parse_args(words)
    try:
        table = headline(json.loads(_read(args.results)))
        page = args.check or args.write
        if page is None:
            print(table)
            return 0
        text = _read(page)
        wanted = in_page(text, table)
    except HeadlineError as error:
        print(error, file=sys.stderr)
        return 2
    if args.write:
        page.write_text(wanted, encoding="utf-8")
    elif wanted != text:
        print(f"{page} has another table; python benchmarks/headline.py --write {page} mends it")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
