"""The errors of all methods in all settings, as docs/methods.md shows them.

    python benchmarks/methods.py                          # prints the table
    python benchmarks/methods.py --check docs/methods.md  # 1 where the page has another
    python benchmarks/methods.py --write docs/methods.md

It is made from results/methods.json, which measure.py makes.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

from page_table import Row, TableError, command, drawn

RESULTS = Path(__file__).parent / "results" / "methods.json"
SETTINGS = {
    "online": "online",
    "correlated:0.1": "correlated",
    "continual": "continual",
    "gradual": "gradual",
    "mixed": "mixed",
    "single": "one image",
}
CORRUPTIONS = 15


def methods_table(rows: Sequence[Row]) -> str:
    """The mean error of each method in each setting, and the rate that was chosen for it."""
    if not rows:
        raise TableError("expected results, got none")
    recipes = sorted({row["recipe"] for row in rows}, key=lambda name: (_order(rows, name), name))
    columns = ["recipe", "learning rate", *SETTINGS.values()]
    lines = []
    for name in recipes:
        own = [row for row in rows if row["recipe"] == name]
        cells = [_mean([r for r in own if r["setting"] == setting]) for setting in SETTINGS]
        lines.append([f"`{name}`", _rate(own), *cells])
    return drawn(columns, lines)


def _order(rows: Sequence[Row], name: str) -> float:
    """The best in the plain stream first."""
    errors = [r["online"] for r in rows if r["recipe"] == name and r["setting"] == "online"]
    return fmean(errors) if errors else float("inf")


def _mean(rows: Sequence[Row]) -> str:
    """Over the corruptions: a result for each, or one that ran through all."""
    if not rows:
        return "–"
    apart = [row for row in rows if not row["by_shift"]]
    if apart and len(apart) != CORRUPTIONS:
        raise TableError(
            f"expected {CORRUPTIONS} corruptions of {rows[0]['recipe']} {rows[0]['setting']}, "
            f"got {len(apart)}"
        )
    return f"{fmean(row['online'] for row in rows):.1f}"


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


def main(words: Sequence[str] | None = None) -> int:
    """Print, check or write."""
    return command(methods_table, name="measured", results=RESULTS, about=__doc__, words=words)


if __name__ == "__main__":
    sys.exit(main())
